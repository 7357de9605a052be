"""Bounded proofs about code that runs: small classes, unmodified, with symbolic integers, on at most four blocks.

`symbolic` has the integers, which fork a run where Python needs a concrete answer; `exploration` repeats a run until
every answer was given; `refusal` and `constructs` refuse what the code would answer without asking them; `frame` has
what a call must leave as it was; `scenario` describes a call of one method and makes the obligations; then there is one
module for each class. What is proved is the inductive step: from any state that satisfies the invariant of the class,
over at most four blocks with unbounded counts, each method returns, raises and changes what is claimed, and the
invariant holds afterwards. Nothing is proved for more blocks; `kvproof.models.refinement` does that, for the functions
that it covers.
"""

from collections.abc import Iterator
from functools import partial

from kvproof.models.concolic import eviction, scenario, swap_step
from kvproof.models.concolic.refusal import proof_of
from kvproof.models.concolic.scenario import Scenario
from kvproof.models.obligation import Obligation, Unit

SCENARIOS: tuple[Scenario, ...] = (
    *eviction.SCENARIOS,
    *swap_step.SCENARIOS,
)


def units() -> Iterator[Unit]:
    """One unit for each scenario."""
    for one in SCENARIOS:
        yield Unit(scenario.SUITE, one.name, partial(_obligations, one))


def _obligations(one: Scenario) -> Iterator[Obligation]:
    with proof_of(f"{scenario.SUITE}/{one.name}"):
        yield from scenario.obligations(one)


def refutation_of(obligation: Obligation) -> str:
    """A call with concrete numbers that breaks the obligation, as text; empty if none is found."""
    for one in SCENARIOS:
        if one.name == obligation.subject:
            shapes = [name for name in one.shapes if not name or obligation.claim.startswith(f"{name}: ")]
            return next((str(found) for found in scenario.refutations(one, shapes=shapes)), "")
    return ""
