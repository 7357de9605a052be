"""The record of a release: what its proofs proved, of which text, with which solvers.

`proof_record.json` is written by `make proofs-record` (`kvproof prove --record`), after a run that proved everything,
and is part of the wheel. It names the specification by a digest of its files and of those that say what they mean (the
language with its domains, what compiles it to Python, and what translates it to formulas), and the obligations by a
digest of the pin. So `kvproof verify` can see in milliseconds, without a solver, whether the text that it judges by is
the text that was proved. A record is the report of an earlier run, not a proof: it is shown as what it is.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

import kvproof.spec.contracts
import kvproof.spec.store
import kvproof.spec.text

FILE = Path(__file__).with_name("proof_record.json")
PIN = Path(__file__).with_name("pinned.txt")
# Modules of `kvproof.spec` that read the text
READERS = ("compilation", "contract_texts", "language", "native", "sizes", "syntax_trees", "systems", "texts")
TRANSLATION = Path(__file__).with_name("translation")


@dataclass(frozen=True)
class ProofRecord:
    """What was proved, and when.

    release: of kvproof. text, obligations: digests. for_every_size: the number of obligations proved for every size.
    bounded: the number of obligations proved for objects of a bounded size. solvers: with their versions. date: as
    year-month-day.
    """

    release: str
    text: str
    obligations: str
    for_every_size: int
    bounded: int
    solvers: list[str]
    date: str

    @property
    def sentence(self) -> str:
        """What a report says of it."""
        return (
            f"the specification is as proved in kvproof {self.release} on {self.date}, by {', '.join(self.solvers)}: "
            f"{self.for_every_size:,} obligations for every size, {self.bounded:,} for objects of a bounded size; this "
            "run did not prove them again"
        )

    def mismatch(self) -> str:
        """Why the record is not about the specification as it is now; empty if it is."""
        if self.text != digest_of_text():
            return "the text of the specification, or what reads it, has changed since it was recorded"
        if self.obligations != digest_of_pin():
            return "the pinned obligations have changed since they were recorded"
        return ""


def digest_of_text() -> str:
    """The digest of every file of the specification and of its readers, with its name."""
    digest = hashlib.sha256()
    texts = [Path(str(one.__file__)).parent for one in (kvproof.spec.text, kvproof.spec.contracts, kvproof.spec.store)]
    root = texts[0].parent
    files = [file for folder in (*texts, TRANSLATION) for file in sorted(folder.rglob("*.py"))]
    for file in (*files, *(root / f"{name}.py" for name in READERS)):
        name = file.relative_to(TRANSLATION.parent if file.is_relative_to(TRANSLATION) else root).as_posix()
        digest.update(name.encode() + b"\0" + file.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return digest.hexdigest()


def digest_of_pin() -> str:
    """The digest of the pinned obligations."""
    return hashlib.sha256(PIN.read_bytes().replace(b"\r\n", b"\n")).hexdigest()


def read_record() -> tuple[ProofRecord | None, str]:
    """The record, if it is about the specification as it is now; otherwise the reason why there is none."""
    try:
        record = msgspec.json.decode(FILE.read_bytes(), type=ProofRecord)
        reason = record.mismatch()
    except (OSError, ValueError, TypeError) as error:
        return None, f"the record of the proofs cannot be read ({error})"
    return (None, reason) if reason else (record, "")


def write_record(record: ProofRecord) -> None:
    """Write the record beside this file. Raises OSError."""
    FILE.write_text(json.dumps(asdict(record), indent=2) + "\n", encoding="utf-8")
