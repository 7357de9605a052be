"""The scenarios of all classes, in the order in which they are proved."""

from collections.abc import Iterator

from kvproof.models.concolic import counting, eviction, free_list, scenario, swap_step
from kvproof.models.concolic.scenario import Scenario
from kvproof.models.obligation import Obligation

SCENARIOS: tuple[Scenario, ...] = (
    *counting.SCENARIOS,
    *free_list.SCENARIOS,
    *eviction.SCENARIOS,
    *swap_step.SCENARIOS,
)


def obligations() -> Iterator[Obligation]:
    """One for each path through each method, and for each shape of object that there is no other path."""
    for one in SCENARIOS:
        yield from scenario.obligations(one)
