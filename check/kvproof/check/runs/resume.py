"""Where a hunt has come to: written as it goes, so that `kvproof hunt --resume DIR` goes on from there.

The walker's runs are numbered by the seed, so going on at a number gives the very runs that one long hunt would have
given, since what they are steered around is kept with the number. Scopes that were searched to their end are not
searched again; what was found before is told again.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.save_findings import Saving
from kvproof.check.runs.session import Stage, StageBudget, StageOutput
from kvproof.check.runs.store import RESULT, StoreError, explained
from kvproof.check.runs.verdicts import ReportedFinding
from kvproof.check.search.suppression import KnownFailure
from kvproof.reports.atomic import write_atomically
from kvproof.reports.document import DocumentError, read
from kvproof.reports.result import Check, Result
from kvproof.spec.verdict import Verdict

FILE = "hunt.json"
BEFORE = "before"


class Met(msgspec.Struct, forbid_unknown_fields=True):
    """A finding of the walk: as what it was met, which runs are steered around, and what was told of it."""

    judge: str
    told: KnownFailure
    found: ReportedFinding


class Progress(msgspec.Struct, forbid_unknown_fields=True):
    """What a hunt has done: the scopes that are done, the next run of the walker, and what it has met."""

    subject: str
    seed: int
    fixed: dict[str, Any] = {}
    properties: list[str] = []
    scopes: list[str] = []
    met: list[Met] = []
    next_run: int = 0
    num_operations: int = 0
    num_runs: int = 0


class Bookmark:
    """The progress of a hunt, kept in its folder."""

    def __init__(self, folder: Path, progress: Progress) -> None:
        self.folder, self.progress = folder, progress
        self.earlier: list[Check] = []

    def write(self) -> None:
        """Keep it, or leave the one before: the result, written beside it, says why nothing can be written."""
        with suppress(StoreError), explained(self.folder / FILE):
            write_atomically(self.folder / FILE, msgspec.json.format(msgspec.json.encode(self.progress)) + b"\n")

    def scope_is_done(self, name: str) -> None:
        """A scope was searched to its end, or to its first finding."""
        self.progress.scopes.append(name)
        self.write()

    def has_met(self, judge: str, told: KnownFailure, found: ReportedFinding) -> None:
        """The walker has come across a finding."""
        self.progress.met.append(Met(judge, told, found))
        self.write()

    def met_by(self, judge: str) -> list[Met]:
        """What this judge came across before."""
        return [one for one in self.progress.met if one.judge == judge]

    def remind(self, saving: Saving) -> None:
        """Let what was met before be neither shortened nor saved again."""
        for one in self.progress.met:
            saving.remember(one.judge, one.told, one.found)

    def walked(self, num_drawn: int, num_runs: int, num_operations: int) -> None:
        """The walker has done so much more."""
        self.progress.next_run += num_drawn
        self.progress.num_runs += num_runs
        self.progress.num_operations += num_operations
        self.write()

    def stage(self) -> Stage:
        """What the hunt found before it was resumed, told again."""

        def run(stint: StageBudget) -> Iterator[StageOutput]:
            yield from self.earlier

        return Stage(BEFORE, 1e-9, [], run)


def resumed(folder: Path, subject: str | None, seed: int | None) -> Bookmark:
    """The bookmark that a hunt left in its folder. Raises UsageError if it was another hunt, or none."""
    try:
        progress = msgspec.json.decode((folder / FILE).read_bytes(), type=Progress)
        result = read(folder / RESULT, Result)
    except FileNotFoundError as error:
        raise UsageError(f"{folder} holds no hunt that can be resumed: it has no {FILE}") from error
    except (OSError, msgspec.MsgspecError, DocumentError) as error:
        raise UsageError(f"the hunt in {folder} cannot be resumed: {error}") from error
    for name, given, kept in (("subject", subject, progress.subject), ("seed", seed, progress.seed)):
        if given is not None and given != kept:
            raise UsageError(f"the hunt in {folder} has {name} {kept}; leave --{name} out, or begin another hunt")
    bookmark = Bookmark(folder, progress)
    bookmark.earlier = [check for check in result.checks if check.verdict is Verdict.REFUTED and check.trace]
    return bookmark
