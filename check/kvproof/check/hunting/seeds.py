"""The runs that earlier hunts of a subject have saved in the folder are replayed first in the next one.

So a fault that was found once is seen at once while it is there, as in the example database of Hypothesis. It says
nothing about the search: what these runs refute is neither known to the search nor counted in it, so it draws and finds
what it draws and finds in an empty folder.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from kvproof.check.counterexample.store import load
from kvproof.check.counterexample.trace_schema import CounterexampleError, config_of, operations_of
from kvproof.check.hosts.time_limit import search_ends_after
from kvproof.check.hunting.findings import Saving
from kvproof.check.oracle.level import Level, level_of, level_of_config
from kvproof.check.oracle.repetition import nondeterministic, replay_twice
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.runs.arguments import agrees
from kvproof.check.runs.session import Stage, StageBudget, StageOutput
from kvproof.check.runs.store import CRASHES
from kvproof.check.subjects.loading.checkouts import without_folders
from kvproof.reports.summary import number

JUDGE = "saved runs"
SHARE = 1.0  # percent of the budget
SEEDS_MAX = 100


def saved_runs(folder: Path, subject: str) -> list[str]:
    """The names of the files in the folder of a result that hold runs of this subject."""
    names = []
    for path in sorted((folder / CRASHES).glob("*.json")):
        with suppress(CounterexampleError, OSError):
            if load(path).subject in (subject, without_folders(subject)):
                names.append(path.name)
    return names[:SEEDS_MAX]


def seeds_stage(saving: Saving, names: list[str], fixed: dict[str, Any], keeps_going: bool) -> Stage:
    """Replay the runs of these files, and report those that still refute, one of each property and mechanism.

    fixed: fields that the configuration of a run must have. Without keeps_going, the first of them ends the hunt.
    """

    def run(budget: StageBudget) -> Iterator[StageOutput]:
        kinds, num_done = set[tuple[str, str]](), 0
        level = level_of(saving.make())
        with search_ends_after(budget.seconds):
            for name in names:
                path = saving.store.crashes / name
                if (run := _run_of(path, fixed, level)) is None:
                    continue
                num_done += 1
                found = _replayed(saving, *run)
                if found is None or found.kind in kinds:
                    continue
                kinds.add(found.kind)
                yield (check := saving.report_again(JUDGE, path, found))
                if check.is_failure and not keeps_going:
                    break
        if num_done:
            budget.notes.append(
                f"{number(num_done, 'was', 'were')} replayed first, {number(len(kinds), 'fails', 'fail')}"
            )

    return Stage(JUDGE, SHARE, [], run)


def _run_of(path: Path, fixed: dict[str, Any], level: Level) -> tuple[Any, list[Any]] | None:
    """The configuration and the operations of a file; None if it is no run of this hunt."""
    try:
        trace = load(path)
        config = config_of(trace, path)
        is_ours = level_of_config(config) is level and agrees(config, fixed)
        return (config, operations_of(trace, path)) if is_ours else None
    except (CounterexampleError, OSError):
        return None


def _replayed(saving: Saving, config: Any, operations: list[Any]) -> Counterexample | None:
    """What the run refutes now; None if it refutes nothing, or the subject does not have the configuration."""
    try:
        done, parted = replay_twice(saving.make, config, operations)
    except Unsupported:
        return None
    finding = done.finding if parted is None else nondeterministic(parted)
    return None if finding is None else Counterexample(config, operations[: len(done.steps)], finding)
