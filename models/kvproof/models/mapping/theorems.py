"""All obligations of the suite: two copies, lists, interleavings, the lists of a step, the moves of a step."""

from collections.abc import Iterator

from kvproof.models.mapping import copies, lists, phases
from kvproof.models.obligation import Obligation, Unit


def units() -> Iterator[Unit]:
    """One unit."""
    yield Unit("mapping", "mapping", obligations)


def obligations() -> Iterator[Obligation]:
    """The theorems about copy mappings."""
    for part in (copies, lists, phases):
        yield from part.obligations()
