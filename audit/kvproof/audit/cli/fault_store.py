"""The results of planted faults in a file, a JSON line for each, so that `kvproof faults --resume` can go on.

A line is written as soon as a fault is judged. A later run uses it again only if it would ask the same question: the
text of the fault, every file of kvproof and of its tests, the versions of Python and of the solvers, and the settings
have the same digest. Other lines stay in the file and are ignored. A line that was cut off while it was written is
removed. The digest shows that nothing has changed; it does not show who has written the line.
"""

import hashlib
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path

import msgspec

from kvproof.check.hosts.sources import digest_of
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.store import explained
from kvproof.check.subjects.loading.partial_import import installed_version
from kvproof.reports.document import read_bytes

SOLVERS = ("z3-solver", "cvc5")


class StoredResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One judged fault. fault: its id. digest: of the question. by, evidence, seconds: the answer."""

    fault: str
    digest: str
    by: str
    evidence: str = ""
    seconds: float = 0.0


@dataclass
class FaultStore:
    """The file of the results. settings: what can change an answer, apart from the fault and the files of kvproof."""

    file: Path
    settings: Mapping[str, object]
    known: dict[str, StoredResult] = field(default_factory=dict)  # by digest

    @classmethod
    def opened(cls, file: Path, settings: Mapping[str, object], is_resumed: bool) -> "FaultStore":
        """The store in this file.

        Raises UsageError if it has results and is not to be resumed, DocumentError if it is not a regular file, and
        StoreError if it cannot be written.
        """
        store = cls(file, settings)
        with explained(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
            content = read_bytes(file)
            if content and not is_resumed:
                raise UsageError(f"{file} is not empty; continue with --resume, or name another file")
            whole = content[: content.rfind(b"\n") + 1]
            if whole != content:
                os.truncate(file, len(whole))
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                one = msgspec.json.decode(line, type=StoredResult)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise UsageError(f"{file}:{number} is no result of kvproof faults: {error}") from error
            store.known[one.digest] = one
        return store

    def digest(self, text: str) -> str:
        """The digest of the question whether a fault is noticed. text: everything that the fault changes."""
        question = [text, tree_digest(), sorted((name, str(value)) for name, value in self.settings.items())]
        return hashlib.sha256(msgspec.json.encode([*question, environment()])).hexdigest()

    def find(self, text: str) -> StoredResult | None:
        """The result of an earlier run for the fault with this text."""
        return self.known.get(self.digest(text))

    def add(self, fault: str, text: str, by: str, evidence: str, seconds: float) -> None:
        """Write one result; it is on disk when this returns. Raises StoreError."""
        one = self.known[self.digest(text)] = StoredResult(fault, self.digest(text), by, evidence, round(seconds, 3))
        with explained(self.file), self.file.open("ab") as stream:
            stream.write(msgspec.json.encode(one) + b"\n")
            stream.flush()
            os.fsync(stream.fileno())


def environment() -> list[str]:
    """The versions of Python and of the solvers."""
    return [platform.python_version(), *(f"{name} {installed_version(name)}" for name in SOLVERS)]


@cache
def tree_digest() -> str:
    """The digest of the files of kvproof that are imported and, in a checkout, of its tests."""
    roots = sorted(Path(one) for one in import_module("kvproof").__path__)
    tests = {root.parents[1] / "tests" for root in roots}
    return digest_of([*roots, *sorted(one for one in tests if (one / "conftest.py").is_file())])
