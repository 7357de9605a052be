"""The stage that drives a subject with Hypothesis, at every level."""

import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from kvproof.check.hosts.time_limit import search_ends_after
from kvproof.check.hunting.findings import Saving
from kvproof.check.hunting.unit import key_of
from kvproof.check.isolation.remote_search import despite_a_late_answer
from kvproof.check.protocol.finding import FindingKey
from kvproof.check.protocol.manager import ManagerSubject
from kvproof.check.runs.effort import BY_BUDGET, Effort
from kvproof.check.runs.session import Stage, StageBudget, StageOutput
from kvproof.check.runs.verdicts import (
    NO_TIME,
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
from kvproof.check.search.hypothesis_machine import drive
from kvproof.check.search.result import SearchResult
from kvproof.check.search.strategies import strategy_of
from kvproof.spec.verdict import Verdict

JUDGE = "hypothesis"
NUM_EXAMPLES = 50  # of a round: about a second, so that rounds can be ended between by the clock
NUM_STEPS = 50


def driven(subject: ManagerSubject, seed: int, past: Collection[FindingKey] = ()) -> SearchResult:
    """A round of Hypothesis, as if a process of the subject that stood still once had not."""
    limits: dict[str, Any] = {"examples": NUM_EXAMPLES, "steps": NUM_STEPS, "past": past}
    return despite_a_late_answer(subject, lambda: drive(subject, seed, **limits))


def _round(
    make: Callable[[], ManagerSubject], saving: Saving, seed: int, past: list[FindingKey], seconds: float
) -> SearchResult:
    """A round of Hypothesis, unless its result is in the store of the run."""

    def search() -> SearchResult:
        with search_ends_after(seconds):
            return driven(make(), seed, past)

    if saving.results is None:
        return search()
    return saving.results.find_or_search(key_of(JUDGE, saving.judged, seed, past), search, seconds)


def hypothesis_stage(
    make: Callable[[], ManagerSubject],
    subject: ManagerSubject,
    saving: Saving,
    share: float,
    effort: Effort = BY_BUDGET,
) -> Stage:
    """Drive the state machine of Hypothesis in rounds, each with a seed of its own.

    Rounds after an excused finding go past it. The time is checked between rounds only, unless calls of a slow subject
    take longer: a run that it cut short would look like one that does not repeat.
    """
    planned = planned_checks(strategy_of(subject).level, JUDGE, subject)

    def run(budget: StageBudget) -> Iterator[StageOutput]:
        began = time.monotonic()
        outcome = JudgeOutcome(Verdict.NOT_REFUTED, {"operations": 0, "runs": 0}, 0.0)
        total, past = SearchResult(), list[FindingKey]()
        for number in range(effort.rounds):
            if time.monotonic() - began >= budget.seconds:
                stopped = budget.stopped_after(number, effort.rounds, "rounds")
                if effort.is_fixed:
                    outcome.verdict, outcome.text = Verdict.UNKNOWN, stopped
                break
            done = _round(make, saving, budget.seed + number, past, began + budget.seconds - time.monotonic())
            outcome.counts["operations"] += done.num_operations
            outcome.counts["runs"] += done.num_runs
            total.continue_with(done)
            budget.advance(outcome.counts["operations"])
            if done.is_unsupported:
                outcome.verdict, outcome.text = Verdict.UNKNOWN, NOTHING_ACCEPTED + done.refusal
                break
            if done.counterexample is not None:
                found, _ = saving.save(JUDGE, done.counterexample, outcome.counts["operations"])
                past.append(done.counterexample.kind)
                if all(found.signature != before.signature for before in outcome.refutations):
                    outcome.refutations.append(named(found, outcome.refutations) if found.excused else found)
                if not found.excused:
                    outcome.verdict, outcome.text = Verdict.UNKNOWN, STOPPED
                    break
        if outcome.verdict is Verdict.NOT_REFUTED and not outcome.counts["operations"]:
            outcome.verdict, outcome.text = Verdict.UNKNOWN, NO_TIME
        outcome.seconds = time.monotonic() - began
        outcome.notes = notes(total.notes, outcome.counts["operations"], "operations")
        yield from resolve_checks(JUDGE, planned, outcome)
        is_whole = outcome.verdict is Verdict.NOT_REFUTED
        yield from witness_counts(JUDGE, total.coverage, sizes_expected(total) if is_whole else {})
        yield from refused_by_subject(JUDGE, total.refusals, total.num_drawn)

    return Stage(JUDGE, share, planned, run)
