"""A property that an adapter states itself: a sentence, and a predicate over a copy of the state."""

from typing import NamedTuple

from kvproof.spec.text.properties import MEANINGS

OWN_PROPERTY = "own-property"  # its name in findings; only a subject that states a property has checks of it


class OwnState(NamedTuple):
    """What a property of an adapter is about. All of it is a copy.

    tables: of each sequence, one table for each KV group, as the subject shows them. free: how many blocks of the GPU
    and of the host it counts as free. refcounts: of each block, those of the GPU first, as the specification counts
    them. shown_refcounts, free_ids: as the subject shows them; None if it does not. num_tokens: of each sequence, also
    of one that waits. num_computed: of these, how many have KV.
    """

    tables: dict[int, list[list[int]]]
    free: tuple[int, int]
    refcounts: list[int]
    shown_refcounts: list[int] | None
    free_ids: list[int] | None
    num_tokens: dict[int, int]
    num_computed: dict[int, int]


def is_property(name: str) -> bool:
    """Whether a finding can be of the property of this name."""
    return name in MEANINGS or name == OWN_PROPERTY
