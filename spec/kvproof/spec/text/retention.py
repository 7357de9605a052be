"""Retention: which entries behind a window, or states, stay cached, if a manager does not keep all of them.

Entries that a window has left are of use to another sequence only if it goes on from shortly behind them, and most
places are never gone on from. A manager may therefore keep only what is read from some *boundaries*, and forget the
other entries as soon as no sequence names them. A sequence keeps

- its *replay boundary*: where the same prompt goes on when it comes again, with the longest hit that it can have;
- its *junction*: where the layers that attend to all tokens found more of its prompt than all layers together. There
  another prompt left the same prefix, and the next one with this prefix will look for it;
- with an interval, every multiple of it. An interval of one entry keeps every boundary, and so every entry.

Boundaries and intervals are counted in table entries. Layers that attend to all tokens, or to those of a chunk, keep
every entry. More may be kept: what is said here is what has to be found.

Source: `prefix_cache_retention_interval` and `reachable_block_mask` of vLLM's V1 line.
"""

from kvproof.spec.language import BLOCK_SIZE, function, predicate
from kvproof.spec.text.state import first_read


@function
def entries_found_again(num_tokens: int, num_left: int, num_dropped: int) -> int:
    """The most entries that a prompt hits: whole blocks, without tokens that are left and blocks that are dropped."""
    return (
        (num_tokens - num_left) // BLOCK_SIZE - num_dropped
        if (num_tokens - num_left) // BLOCK_SIZE > num_dropped
        else 0
    )


@predicate
def is_read_from(index: int, boundary: int, window: int, num_dropped: int) -> bool:
    """A sequence that goes on from the boundary must find the entry: it is read, or dropped for a draft model."""
    return (
        0 < boundary
        and first_read(boundary * BLOCK_SIZE, window) < (index + 1) * BLOCK_SIZE
        and index < boundary + num_dropped
    )


@predicate
def is_kept(index: int, window: int, interval: int, replay: int, junction: int, num_dropped: int) -> bool:
    """The entry stays cached: it is read from a boundary that is kept. junction, interval: 0 if there is none.

    Of the multiples of the interval it suffices to ask those just before and behind the entry.
    """
    return (
        is_read_from(index, replay, window, num_dropped)
        or is_read_from(index, junction, window, num_dropped)
        or (
            interval > 0
            and (
                is_read_from(index, index // interval * interval, window, num_dropped)
                or is_read_from(index, index // interval * interval + interval, window, num_dropped)
            )
        )
    )
