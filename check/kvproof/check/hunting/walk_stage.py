"""The stage of the random walk, at every level."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kvproof.check.hunting.findings import Saving
from kvproof.check.hunting.head import Head, here
from kvproof.check.hunting.unit import Walk
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import ManagerSubject
from kvproof.check.runs.arguments import Narrowed
from kvproof.check.runs.session import RanLines, Stage, StageBudget, StageOutput
from kvproof.check.runs.verdicts import (
    NO_TIME,
    NOT_WANTED,
    NOTHING_ACCEPTED,
    STOPPED,
    JudgeOutcome,
    named,
    notes,
    planned_checks,
    refused_by_subject,
    resolve_checks,
    sizes_expected,
    witness_counts,
)
from kvproof.check.search.result import UNLIMITED
from kvproof.check.search.strategies import Strategy, strategy_of
from kvproof.check.search.suppression import KnownFailure
from kvproof.reports.result import OPERATIONS, Check
from kvproof.spec.verdict import Verdict

CONFIGS_ASKED = 100  # which operations they allow
OPERATIONS_ENOUGH = 5_000  # as many as `--effort quick` has behind a pipe
BESIDE_KNOWN_FINDINGS = "it avoided what leads to known findings, and never reached"


def walker_stage(
    subject: ManagerSubject,
    saving: Saving,
    share: float,
    walk: Walk,
    keeps_going: bool = False,
    head: Head | None = None,
) -> Stage:
    """Walk until a run refutes, the walk has done its operations, or the time is over.

    A walk that the time ends before its number of operations is not complete, and decides nothing but its findings.

    With keeps_going, findings of one property and mechanism that need the same features are one finding; it is shrunk
    and reported once, as soon as it is there, and most of the runs after it avoid it. An excused finding (known, not
    hunted for, or outside the contract of the engine) never ends a walk. Where a finding is known, a situation that a
    walk of OPERATIONS_ENOUGH never reaches is no open end, since runs avoid what leads to the finding; a note names it.
    A contract is the word of the subject alone: what it costs is not checked, and so the run is inconclusive.

    head: who does the units of the walk; by default this process.
    """
    fixed, max_operations = dict(walk.fixed or {}), walk.max_operations
    narrowed = Narrowed(subject, fixed) if fixed else subject
    strategy = strategy_of(subject)
    checks = planned_checks(strategy.level, strategy.judge, narrowed)

    def run(budget: StageBudget) -> Iterator[StageOutput]:
        possible = operations_possible(strategy, capabilities_of(narrowed), fixed)
        done = WalkReport(strategy, saving, walk, keeps_going, dict.fromkeys(possible, False))
        chosen = head or here(saving.make)
        deadline = time.monotonic() + budget.seconds
        chosen.on_progress = lambda count: budget.advance(walk.total.num_operations + count)
        yield from done.findings(chosen, deadline)
        done.conclude(budget, deadline)
        expected = strategy.level.expected_witnesses(capabilities_of(narrowed), fixed)
        yield from done.outputs(budget, checks, expected)

    total = max_operations if max_operations < UNLIMITED else 0
    return Stage(strategy.judge, share, checks, run, total=total)


@dataclass
class WalkReport:
    """What a walk says: its findings as soon as they are there, then its outcome."""

    strategy: Strategy
    saving: Saving
    walk: Walk
    keeps_going: bool
    possible: dict[str, bool] = field(default_factory=dict)  # operations; those that must occur are true
    outcome: JudgeOutcome = field(default_factory=lambda: JudgeOutcome(Verdict.NOT_REFUTED, {}, 0.0))
    has_known: bool = False
    reported: set[KnownFailure] = field(default_factory=set)  # findings of equal kind are one finding in a report

    def findings(self, head: Head, deadline: float) -> Iterator[StageOutput]:
        """Walk on, and yield a check for each finding that is new."""
        for done in head.walk_on(self.walk, deadline):
            head.on_progress(0)
            if done.counterexample is not None:
                yield from self._finding(done.counterexample)
            if self.outcome.verdict is not Verdict.NOT_REFUTED:
                return

    def _finding(self, counterexample: Counterexample) -> Iterator[StageOutput]:
        judge, outcome, total = self.strategy.judge, self.outcome, self.walk.total
        found, features = self.saving.save(judge, counterexample, total.num_operations)
        self.walk.avoid(counterexample, features)
        if found.excused and counterexample.finding.contract:  # if no other such call ever ends, it is not judged
            self.possible[counterexample.operations[-1][0]] = True
        else:
            self.has_known = self.has_known or (bool(found.excused) and found.excused != NOT_WANTED)
        if (kind := (found.property, found.signature, features)) not in self.reported:
            self.reported.add(kind)
            found.seconds = total.seconds
            if self.keeps_going or found.excused:
                named(found, outcome.refutations)
            outcome.refutations.append(found)
            yield found
        if not self.keeps_going and not found.excused:
            outcome.verdict, outcome.text = Verdict.UNKNOWN, STOPPED

    def conclude(self, budget: StageBudget, deadline: float) -> None:
        """Give the walk its outcome."""
        outcome, total, planned = self.outcome, self.walk.total, self.walk.max_operations
        outcome.seconds = total.seconds
        outcome.counts = {"operations": total.num_operations, "runs": total.num_runs}
        if self.walk.lost:
            done = f"{total.num_operations:,} of {planned:,} operations"
            outcome.verdict, outcome.text = Verdict.UNKNOWN, f"{done}; then {self.walk.lost}"
        elif total.is_unsupported:
            outcome.verdict, outcome.text = Verdict.UNKNOWN, NOTHING_ACCEPTED + total.refusal
        elif not total.num_operations and not outcome.refutations:
            outcome.verdict, outcome.text = Verdict.UNKNOWN, NO_TIME
        elif outcome.verdict is Verdict.NOT_REFUTED and time.monotonic() >= deadline:
            stopped = budget.stopped_after(total.num_operations, planned, "operations")
            if total.num_operations < planned < UNLIMITED:
                outcome.verdict, outcome.text = Verdict.UNKNOWN, stopped
        elif outcome.verdict is Verdict.NOT_REFUTED and (lacking := total.lacking(planned)):
            outcome.verdict, outcome.text = Verdict.UNKNOWN, lacking
        outcome.notes = notes(total.notes, total.num_operations, "operations")

    def outputs(self, budget: StageBudget, checks: list[Check], expected: dict[str, bool]) -> Iterator[StageOutput]:
        """The checks that were planned, what was reached, and what was refused. expected: the witnesses."""
        judge, total = self.strategy.judge, self.walk.total
        is_cut_short = self.outcome.verdict is Verdict.UNKNOWN
        yield from resolve_checks(judge, checks, self.outcome)
        situations = expected | sizes_expected(total)
        missed = [name for name, is_expected in expected.items() if is_expected and not total.coverage[name]]
        if missed and self.has_known and total.num_operations >= OPERATIONS_ENOUGH and not is_cut_short:
            budget.notes.append(f"{BESIDE_KNOWN_FINDINGS}: {', '.join(missed)}")
            situations = situations | dict.fromkeys(missed, False)
        yield from witness_counts(judge, total.coverage, {} if is_cut_short else situations)
        yield from refused_by_subject(judge, total.refusals, total.num_drawn)
        yield from witness_counts(f"{judge}{OPERATIONS}", total.kinds, {} if is_cut_short else self.possible)
        yield RanLines(total.num_operations, total.lines)


def operations_possible(strategy: Strategy, can: Capabilities, fixed: dict[str, Any]) -> list[str]:
    """The kinds of operation that walks can do in configurations of a subject with these capabilities.

    fixed: fields of every configuration. Some configurations are drawn, always the same ones.
    """
    random = Random(0)
    configs = [strategy.draw_config(random, can, dict(fixed)) for _ in range(CONFIGS_ASKED)]
    kinds = {name: kind for name, kind in strategy.level.kinds.items() if kind.is_drawn}
    return [name for name, kind in kinds.items() if any(kind.is_possible(config, can) for config in configs)]
