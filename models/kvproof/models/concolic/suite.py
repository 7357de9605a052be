"""The scenarios of all classes, in the order in which they are proved. Their obligations are bounded."""

from collections.abc import Iterator
from functools import partial

from kvproof.models.concolic import eviction, free_list, scenario, swap_step
from kvproof.models.concolic.refusal import proof_of
from kvproof.models.concolic.scenario import Scenario
from kvproof.models.obligation import Obligation, Unit

SCENARIOS: tuple[Scenario, ...] = (
    *free_list.SCENARIOS,
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
