"""All obligations of the suite."""

from collections.abc import Iterator

from kvproof.models.arithmetic import admissions, appends, identifiers, lengths, memory, windows
from kvproof.models.arithmetic.sources import Sources
from kvproof.models.obligation import Obligation, Unit
from kvproof.models.proofs import least_element_lemma


def units() -> Iterator[Unit]:
    """One unit."""
    yield Unit("arithmetic", "arithmetic", obligations)


def obligations(sources: Sources | None = None) -> Iterator[Obligation]:
    """The theorems of the arithmetic of blocks. sources: replaces the source code that they are about."""
    for part in (lengths, appends, admissions, windows, identifiers, memory):
        yield from part.obligations(sources or Sources())
    yield from least_element_lemma.obligations("arithmetic")
