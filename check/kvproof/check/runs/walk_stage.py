"""The walker as a stage, of a manager or of a whole scheduler."""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kvproof.check.isolation.remote_search import walk, walk_loop, walk_pool
from kvproof.check.oracle.coverage import expected_witnesses
from kvproof.check.oracle.level import MANAGER, POOL, SCHEDULER, level_of
from kvproof.check.protocol.manager import ManagerSubject
from kvproof.check.runs.fixed_fields import Narrowed
from kvproof.check.runs.resume import Bookmark
from kvproof.check.runs.save_findings import Saving
from kvproof.check.runs.session import Stage, StageBudget, StageOutput
from kvproof.check.runs.verdicts import (
    STOPPED,
    WALKER,
    Outcome,
    ReportedFinding,
    notes,
    planned_checks,
    refuted_by,
    resolve_checks,
    witness_counts,
)
from kvproof.check.search.random_walk import Walk, WalkOptions
from kvproof.check.search.suppression import KnownFailure
from kvproof.reports.result import Check
from kvproof.spec.verdict import Verdict

JUDGE, LOOP_JUDGE, POOL_JUDGE = WALKER, "loop", "pool"
NUM_OPERATIONS_MAX = 1_000_000
BOOKMARK_SECONDS = 10.0  # between two bookmarks


class Search(NamedTuple):
    """What is walked: a manager or a scheduler."""

    judge: str
    walk: Callable[..., Walk]
    planned_checks: list[Check]
    expected: dict[str, bool]

    @staticmethod
    def of(subject: Any) -> "Search":
        """The walk of the subject's level."""
        level = level_of(subject)
        judge, search = {
            MANAGER.name: (JUDGE, walk),
            SCHEDULER.name: (LOOP_JUDGE, walk_loop),
            POOL.name: (POOL_JUDGE, walk_pool),
        }[level.name]
        witnesses = expected_witnesses(level.name, subject.capabilities)
        return Search(judge, search, planned_checks(level, judge, subject), witnesses)


def walker_stage(
    make: Callable[[], ManagerSubject],
    subject: ManagerSubject,
    saving: Saving,
    share: float,
    max_operations: int = NUM_OPERATIONS_MAX,
    keeps_going: bool = False,
    bookmark: Bookmark | None = None,
    fixed: dict[str, Any] | None = None,
) -> Stage:
    """Walk until something is refuted, so many operations are done, or the time is up.

    Going on, findings of one property and mechanism that need the same features are one, minimised and reported once,
    as soon as it is there, and most of the runs after it are steered around it. What is excused (known, not hunted for,
    or outside the contract of the engine) never ends a walk. bookmark: where an earlier walk of this hunt has come to.
    fixed: fields of the configuration that every run keeps.
    """
    search = Search.of(Narrowed(subject, fixed) if fixed else subject)
    judge = search.judge

    def run(stint: StageBudget) -> Iterator[StageOutput]:
        deadline = time.monotonic() + stint.seconds
        total, outcome = Walk(), Outcome(Verdict.NOT_REFUTED, {}, 0.0)
        before = [] if bookmark is None else bookmark.met_by(judge)
        told: dict[KnownFailure, None] = {_kind(one.found): None for one in before}
        passed: dict[KnownFailure, None] = {one.told: None for one in before}
        first_run, num_before, runs_before = _where(bookmark)
        while total.num_operations < max_operations and (left := deadline - time.monotonic()) > 0:
            done = search.walk(
                make(),
                stint.seed,
                max_operations=max_operations - total.num_operations,
                seconds=left if bookmark is None else min(left, BOOKMARK_SECONDS),
                fixed=fixed,
                progress=stint.further(num_before + total.num_operations),
                options=WalkOptions(first_run + total.num_drawn, told=tuple(passed)),
            )
            total.add(done)
            if bookmark is not None:
                bookmark.walked(done.num_drawn, done.num_runs, done.num_operations)
            if done.is_unsupported or (done.finding is None and bookmark is None):
                break
            if done.finding is None:
                continue
            found = saving.save(judge, done.config, done.operations, done.finding, num_before + total.num_operations)
            met_as: KnownFailure = *done.finding.key(done.operations), found.features
            passed[met_as] = None
            is_new = _is_new(told, found, keeps_going)
            if bookmark is not None:
                bookmark.has_met(judge, met_as, found)
            if is_new:
                outcome.refutations.append(found)
                outcome.seconds = total.seconds
                yield refuted_by(judge, found, outcome)
            if not keeps_going and not found.excused:
                outcome.verdict, outcome.text = Verdict.UNKNOWN, STOPPED
                break
        outcome.seconds = total.seconds
        total.num_operations += num_before
        outcome.counts = {"operations": total.num_operations, "runs": total.num_runs + runs_before}
        if total.is_unsupported:
            outcome.verdict, outcome.text = Verdict.UNKNOWN, "the subject accepted no configuration that was drawn"
        elif not total.num_operations:
            outcome.verdict, outcome.text = Verdict.UNKNOWN, "no time was left"
        is_cut_short = outcome.verdict is Verdict.UNKNOWN
        outcome.refutations += notes(total.notes, total.num_operations, "operations")
        yield from resolve_checks(judge, search.planned_checks, outcome)
        yield from witness_counts(judge, total.witnesses, {} if is_cut_short else search.expected)
        yield from witness_counts(f"{judge} operations", total.kinds, {})

    return Stage(judge, share, search.planned_checks, run)


def _where(bookmark: Bookmark | None) -> tuple[int, int, int]:
    """The next run, and operations and runs done before."""
    if bookmark is None:
        return 0, 0, 0
    return bookmark.progress.next_run, bookmark.progress.num_operations, bookmark.progress.num_runs


def _kind(found: ReportedFinding) -> KnownFailure:
    """What makes two findings one for whoever reads of them."""
    return found.property, found.signature, found.features


def _is_new(told: dict[KnownFailure, None], found: ReportedFinding, keeps_going: bool) -> bool:
    """Whether it is the first of its property, mechanism and features; if several are told, each has a name."""
    kind = _kind(found)
    if kind in told:
        return False
    if keeps_going or found.excused:
        name = found.signature.partition(":")[0].replace(" ", "-")
        number = 1 + sum(
            property == found.property and signature.partition(":")[0].replace(" ", "-") == name
            for property, signature, _ in told
        )
        found.scope = name if number == 1 else f"{name}-{number}"
    told[kind] = None
    return True
