"""All obligations of the suite, on the source as it is or on another reading of it."""

from collections.abc import Iterator

from kvproof.models.arithmetic import admissions, appends, identifiers, lengths, memory, windows
from kvproof.models.arithmetic.sources import Sources
from kvproof.models.proofs.obligation import Obligation


def obligations(sources: Sources | None = None) -> Iterator[Obligation]:
    """Each theorem of the arithmetic of blocks."""
    for part in (lengths, appends, admissions, windows, identifiers, memory):
        yield from part.obligations(sources or Sources())
