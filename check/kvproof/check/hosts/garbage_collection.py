"""How often Python looks for garbage while many objects are made that stay."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collecting_seldom(num_new_objects: int) -> Iterator[None]:
    """Within the block, look for garbage only after so many new objects, if at all.

    A threshold that a subject has set within the block stays.
    """
    before = gc.get_threshold()
    ours = before[0] and max(before[0], num_new_objects), *before[1:]
    gc.set_threshold(*ours)
    try:
        yield
    finally:
        if gc.get_threshold() == ours:
            gc.set_threshold(*before)
