"""The results of planted faults in a database, so that `kvproof faults --resume` can go on.

It is the store of a hunt: a result is written as soon as a fault is judged, as a whole or not at all. A later run uses
it again only if it would ask the same question: the text of the fault, every file of kvproof and of its tests, the
versions of Python and of the solvers, and the settings have the same digest, which is its key. Other results stay in
the file and are ignored. The digest shows that nothing has changed; it does not show who has written the result.
"""

import hashlib
import platform
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

import msgspec

from kvproof.check.hosts.workers import digest_of
from kvproof.check.hunting.store import ResultStore
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.store import explained
from kvproof.check.subjects.loading.partial_import import installed_version
from kvproof.reports.document import read_bytes

DATABASE_BEGINS = b"SQLite format 3\0"
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
    results: ResultStore

    @classmethod
    def opened(cls, file: Path, settings: Mapping[str, object], is_resumed: bool) -> "FaultStore":
        """The store in this file.

        Raises UsageError if it has results and is not to be resumed, DocumentError if it is not a regular file, and
        StoreError if it cannot be written.
        """
        with explained(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            content = read_bytes(file) if file.exists() else b""
        if content and not is_resumed:
            raise UsageError(f"{file} is not empty; continue with --resume, or name another file")
        if content and not content.startswith(DATABASE_BEGINS):
            raise UsageError(f"{file} has no results of this version of kvproof faults; name another file")
        store = cls(file, settings, ResultStore(file))
        weakref.finalize(store, store.results.close)
        store.results.check()
        return store

    def digest(self, text: str) -> str:
        """The digest of the question whether a fault is noticed. text: everything that the fault changes."""
        question = [text, tree_digest(), sorted((name, str(value)) for name, value in self.settings.items())]
        return hashlib.sha256(msgspec.json.encode([*question, environment()])).hexdigest()

    def find(self, text: str) -> StoredResult | None:
        """The result of an earlier run for the fault with this text. Raises StoreError."""
        if (found := self.results.find(self.digest(text))) is None:
            return None
        try:
            return msgspec.convert(found, StoredResult)
        except msgspec.ValidationError as error:
            raise self.results.damaged(error) from error

    def add(self, fault: str, text: str, by: str, evidence: str, seconds: float) -> None:
        """Write one result; it survives a kill when this returns. Raises StoreError."""
        one = StoredResult(fault, self.digest(text), by, evidence, round(seconds, 3))
        self.results.add(one.digest, "", one.seconds, msgspec.to_builtins(one))


def environment() -> list[str]:
    """The versions of Python and of the solvers."""
    return [platform.python_version(), *(f"{name} {installed_version(name)}" for name in SOLVERS)]


@cache
def tree_digest() -> str:
    """The digest of the files of kvproof that are imported and, in a checkout, of its tests."""
    roots = sorted(Path(one) for one in import_module("kvproof").__path__)
    tests = {root.parents[1] / "tests" for root in roots}
    return digest_of([*roots, *sorted(one for one in tests if (one / "conftest.py").is_file())])
