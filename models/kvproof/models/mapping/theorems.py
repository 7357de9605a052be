"""All obligations of the suite: two copies, lists, interleavings, the lists of a step, the moves of a step."""

from collections.abc import Iterator

from kvproof.models.mapping import interleavings, lists, pairs, phases, programs
from kvproof.models.proofs.obligation import Obligation
from kvproof.models.proofs.units import Unit
from kvproof.models.translation.text import specification

READ = ("are_apart", "commute", "is_forward_free", "is_race_free")  # predicates of the specification


def units() -> Iterator[Unit]:
    """One unit."""
    yield Unit("mapping", "mapping", specification(), READ, obligations)


def obligations() -> Iterator[Obligation]:
    """The theorems about copy mappings."""
    for part in (pairs, lists, interleavings, phases, programs):
        yield from part.obligations()
