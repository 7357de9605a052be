"""Theorems about the arithmetic of blocks, for all integers and every block size, on the source code that runs.

Functions of the implementation and of the specification are translated into terms (`kvproof.models.translation`). Where
a function does more than arithmetic, only its arithmetic expressions are translated (`sources`). `lengths` is about
tokens, slots and blocks; `appends` about the blocks that an append takes; `admissions` about OK, LATER and NEVER;
`windows` about the blocks that a sliding window drops; `retention` about those that stay cached;
`identifiers` about block ids on two devices; `memory` about bytes.
"""

from collections.abc import Iterator

from kvproof.models.arithmetic import admissions, appends, identifiers, lengths, memory, retention, windows
from kvproof.models.arithmetic.sources import Sources
from kvproof.models.obligation import Obligation, Unit
from kvproof.models.proofs import least_element_lemma


def units() -> Iterator[Unit]:
    """One unit."""
    yield Unit("arithmetic", "arithmetic", obligations)


def obligations(sources: Sources | None = None) -> Iterator[Obligation]:
    """The theorems of the arithmetic of blocks. sources: replaces the source code that they are about."""
    for part in (lengths, appends, admissions, windows, retention, identifiers, memory):
        yield from part.obligations(sources or Sources())
    yield from least_element_lemma.obligations("arithmetic")
