"""The stage of the random walk, at every level."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from kvproof.check.hosts.time_limit import search_ends_after
from kvproof.check.hunting.findings import Saving
from kvproof.check.hunting.resume import Bookmark
from kvproof.check.hunting.unit import WalkUnits
from kvproof.check.isolation.remote_search import walk
from kvproof.check.protocol.manager import ManagerSubject
from kvproof.check.runs.arguments import Narrowed
from kvproof.check.runs.session import Stage, StageBudget, StageOutput
from kvproof.check.runs.verdicts import (
    NO_TIME,
    NOTHING_ACCEPTED,
    STOPPED,
    JudgeOutcome,
    ReportedFinding,
    notes,
    planned_checks,
    refused_by_subject,
    refuted_by,
    resolve_checks,
    sizes_expected,
    witness_counts,
)
from kvproof.check.search.random_walk import WalkOptions
from kvproof.check.search.result import UNLIMITED, SearchResult
from kvproof.check.search.strategies import strategy_of
from kvproof.check.search.suppression import KnownFailure
from kvproof.spec.verdict import Verdict

OPERATIONS_ENOUGH = 5_000  # as many as `--effort quick` has behind a pipe
BESIDE_KNOWN_FINDINGS = "it avoided what leads to known findings, and never reached"
BOOKMARK_OPERATIONS, BOOKMARK_OPERATIONS_MAX = 5_000, 20_000  # between two bookmarks: counted, so that runs repeat


def walker_stage(
    make: Callable[[], ManagerSubject],
    subject: ManagerSubject,
    saving: Saving,
    share: float,
    max_operations: int = UNLIMITED,
    keeps_going: bool = False,
    bookmark: Bookmark | None = None,
    fixed: dict[str, Any] | None = None,
    units: WalkUnits | None = None,
) -> Stage:
    """Walk until a run refutes, so many operations are done, or the time is over.

    With a number of operations, a walk that the time ends before is not complete, and decides nothing but its findings.

    With keeps_going, findings of one property and mechanism that need the same features are one finding; it is shrunk
    and reported once, as soon as it is there, and most of the runs after it avoid it. An excused finding (known, not
    hunted for, or outside the contract of the engine) never ends a walk. Where a finding is known, a situation that a
    walk of OPERATIONS_ENOUGH never reaches is no open end, since runs avoid what leads to the finding; a note names it.

    bookmark: the progress of an earlier walk of this hunt. fixed: fields of the configuration that every run keeps.
    units: the walk as units for workers; without it, this process walks.
    """
    narrowed = Narrowed(subject, fixed) if fixed else subject
    strategy = strategy_of(subject)
    judge = strategy.judge
    checks = planned_checks(strategy.level, judge, narrowed)
    expected = strategy.level.expected_witnesses(narrowed.capabilities, fixed)

    def run(stint: StageBudget) -> Iterator[StageOutput]:
        deadline = time.monotonic() + stint.seconds
        total, outcome = SearchResult(), JudgeOutcome(Verdict.NOT_REFUTED, {}, 0.0)
        before = [] if bookmark is None else bookmark.findings_of(judge)
        has_known = any(one.found.is_known for one in before)
        reported: dict[KnownFailure, None] = {_kind(one.found): None for one in before}
        known: dict[KnownFailure, None] = {one.kind: None for one in before}
        first_run = num_before = runs_before = 0
        if bookmark is not None:
            progress = bookmark.progress
            first_run, num_before, runs_before = progress.next_run, progress.num_operations, progress.num_runs

        def walks() -> Iterator[SearchResult]:
            """The walks of this process, each until a run refutes; they avoid what is known when they begin."""
            pause = BOOKMARK_OPERATIONS
            while total.num_operations < max_operations and (left := deadline - time.monotonic()) > 0:
                options = WalkOptions(
                    first_run + total.num_drawn,
                    known=tuple(known),
                    pause_after=UNLIMITED if bookmark is None else pause,
                    runs_before=runs_before + total.num_runs,
                )
                with search_ends_after(left):
                    done = walk(
                        strategy,
                        make(),
                        stint.seed,
                        max_operations=max_operations - total.num_operations,
                        seconds=left,
                        fixed=fixed,
                        progress=stint.further(num_before + total.num_operations),
                        options=options,
                    )
                yield done
                pause = min(2 * pause, BOOKMARK_OPERATIONS_MAX)
                if done.is_unsupported or (done.counterexample is None and bookmark is None):
                    return

        searches = walks() if units is None else units(stint, max_operations, fixed, known, deadline)
        for done in searches:
            total.continue_with(done)
            if bookmark is not None:
                bookmark.walked(done.num_drawn, done.num_runs, done.num_operations)
            if done.is_unsupported:
                break
            if done.counterexample is None:
                continue
            found = saving.save(judge, done.counterexample, num_before + total.num_operations)
            kind: KnownFailure = *done.counterexample.kind, found.features
            known[kind] = None
            has_known = has_known or found.is_known
            is_new = _is_new(reported, found, keeps_going)
            if bookmark is not None:
                bookmark.add_finding(judge, kind, found)
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
            outcome.verdict, outcome.text = Verdict.UNKNOWN, NOTHING_ACCEPTED + total.refusal
        elif not total.num_operations and not outcome.refutations:
            outcome.verdict, outcome.text = Verdict.UNKNOWN, NO_TIME
        elif outcome.verdict is Verdict.NOT_REFUTED and time.monotonic() >= deadline:
            stopped = stint.stopped_after(total.num_operations, max_operations, "operations")
            if total.num_operations < max_operations < UNLIMITED:
                outcome.verdict, outcome.text = Verdict.UNKNOWN, stopped
        is_cut_short = outcome.verdict is Verdict.UNKNOWN
        outcome.notes = notes(total.notes, total.num_operations, "operations")
        yield from resolve_checks(judge, checks, outcome)
        situations = expected | sizes_expected(total)
        missed = [name for name, is_expected in expected.items() if is_expected and not total.coverage[name]]
        if missed and has_known and total.num_operations >= OPERATIONS_ENOUGH and not is_cut_short:
            stint.notes.append(f"{BESIDE_KNOWN_FINDINGS}: {', '.join(missed)}")
            situations = situations | dict.fromkeys(missed, False)
        yield from witness_counts(judge, total.coverage, {} if is_cut_short else situations)
        yield from refused_by_subject(judge, total.refusals, total.num_drawn)
        yield from witness_counts(f"{judge} operations", total.kinds, {})

    total = max_operations if max_operations < UNLIMITED else 0
    return Stage(judge, share, checks, run, total=total)


def _kind(found: ReportedFinding) -> KnownFailure:
    """Findings of equal kind are one finding in a report."""
    return found.property, found.signature, found.features


def _is_new(reported: dict[KnownFailure, None], found: ReportedFinding, keeps_going: bool) -> bool:
    """Whether no finding of this kind was reported before. If several may be reported, each gets a name of its own."""
    kind = _kind(found)
    if kind in reported:
        return False
    if keeps_going or found.excused:
        name = found.signature.partition(":")[0].replace(" ", "-")
        number = 1 + sum(
            property == found.property and signature.partition(":")[0].replace(" ", "-") == name
            for property, signature, _ in reported
        )
        found.scope = name if number == 1 else f"{name}-{number}"
    reported[kind] = None
    return True
