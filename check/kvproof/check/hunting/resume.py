"""The progress of a hunt, written while it runs, so that `kvproof hunt --resume DIR` can continue it.

The seed determines the runs of the walk in order, so continuing at the number of a run gives the same runs as one long
hunt; the findings that runs avoid are kept with that number. Scopes that were searched to their end are not searched
again. Earlier findings are reported again.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from kvproof.check.hunting.findings import Saving
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.session import Stage, StageBudget, StageOutput
from kvproof.check.runs.store import RESULT, StoreError, explained
from kvproof.check.runs.trust import Trust, UntrustedSubject
from kvproof.check.runs.verdicts import ReportedFinding
from kvproof.check.search.suppression import KnownFailure
from kvproof.reports.document import DocumentError, read, read_bytes, write_atomically
from kvproof.reports.result import Check, Result
from kvproof.spec.verdict import Verdict

FILE = "hunt.json"
BEFORE = "before"


class EarlierFinding(msgspec.Struct, forbid_unknown_fields=True, rename={"kind": "told"}):
    """A finding of the walk: its kind when it was found, which later runs avoid, and the report of it."""

    judge: str
    kind: KnownFailure
    found: ReportedFinding


class HuntProgress(msgspec.Struct, forbid_unknown_fields=True, rename={"findings": "met"}):
    """The progress of a hunt: the scopes that are done, the findings so far, and the next run of the walk."""

    subject: str
    seed: int
    fixed: dict[str, Any] = {}
    properties: list[str] = []
    scopes: list[str] = []
    findings: list[EarlierFinding] = []
    next_run: int = 0
    num_operations: int = 0
    num_runs: int = 0


class Bookmark:
    """The progress of a hunt, kept in its folder."""

    def __init__(self, folder: Path, progress: HuntProgress) -> None:
        self.folder, self.progress = folder, progress
        self.earlier: list[Check] = []

    def write(self) -> None:
        """Write it, or leave the old file; the result, written beside it, says why nothing can be written."""
        with suppress(StoreError), explained(self.folder / FILE):
            write_atomically(self.folder / FILE, msgspec.json.format(msgspec.json.encode(self.progress)) + b"\n")

    def scope_is_done(self, name: str) -> None:
        """Record that a scope was searched to its end, or to its first finding."""
        self.progress.scopes.append(name)
        self.write()

    def add_finding(self, judge: str, kind: KnownFailure, found: ReportedFinding) -> None:
        self.progress.findings.append(EarlierFinding(judge, kind, found))
        self.write()

    def findings_of(self, judge: str) -> list[EarlierFinding]:
        return [one for one in self.progress.findings if one.judge == judge]

    def remind(self, saving: Saving) -> None:
        """Let earlier findings be neither shrunk nor saved again."""
        for one in self.progress.findings:
            saving.remember(one.judge, one.kind, one.found)

    def walked(self, num_drawn: int, num_runs: int, num_operations: int) -> None:
        """Record that the walk has done so much more."""
        self.progress.next_run += num_drawn
        self.progress.num_runs += num_runs
        self.progress.num_operations += num_operations
        self.write()

    def stage(self) -> Stage:
        """The stage that reports again what the hunt found before it was resumed."""

        def run(stint: StageBudget) -> Iterator[StageOutput]:
            yield from self.earlier

        return Stage(BEFORE, 1e-9, [], run)


def resumed(folder: Path, subject: str | None, seed: int | None, trusted: Trust) -> Bookmark:
    """The bookmark that a hunt left in its folder.

    Raises UsageError if there is none, or if it is of another hunt, or if it names code that is not trusted.
    """
    if not (folder / FILE).exists():
        raise UsageError(f"{folder} holds no hunt that can be resumed: it has no {FILE}")
    try:
        data = read_bytes(folder / FILE)
        progress = msgspec.json.decode(data, type=HuntProgress)
        result = read(folder / RESULT, Result)
    except (msgspec.MsgspecError, ValueError, RecursionError, DocumentError) as error:
        raise UsageError(f"the hunt in {folder} cannot be resumed: {error}") from error
    for name, given, kept in (("subject", subject, progress.subject), ("seed", seed, progress.seed)):
        if given is not None and given != kept:
            raise UsageError(f"the hunt in {folder} has {name} {kept}; leave --{name} out, or begin another hunt")
    if subject is None:
        try:
            trusted.subject_of(folder, progress.subject)
        except UntrustedSubject as error:
            raise UsageError(str(error)) from error
    bookmark = Bookmark(folder, progress)
    bookmark.earlier = [check for check in result.checks if check.verdict is Verdict.REFUTED and check.trace]
    return bookmark
