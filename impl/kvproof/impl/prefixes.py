"""The longest common prefix of lists of block ids."""

from collections.abc import Sequence


def common_prefix(lists: Sequence[Sequence[int]]) -> list[int]:
    """Return the leading ids that all lists share; [] if there is no list."""
    if not lists:
        return []
    shortest = min(lists, key=len)
    for index, block_id in enumerate(shortest):
        if any(ids[index] != block_id for ids in lists):
            return list(shortest[:index])
    return list(shortest)
