"""Theorems about copy mappings: lists of (source, target) pairs that a worker applies to blocks of memory.

A list does not determine how it is run: pair by pair, or all reads before all writes, or by a kernel whose threads read
and write in any order. The theorems state when all of these give the same bytes, for lists of every length, any number
of blocks and any content. `copies` has the definitions and the exact conditions for two copies, `lists` the
inductions, and `phases` the three lists of one step, and the order in which a manager decides on its moves.
"""

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
