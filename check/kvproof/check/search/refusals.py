"""What a manager has refused: a run does not ask the same again in one step, while as many blocks are free.

An engine does not either. A run whose pool is full would mostly repeat questions: without this, four in five appends on
vLLM 0.9.2 were refused, most of them again and again. When everything else is refused, what is left makes room.
"""

from collections import defaultdict
from collections.abc import Mapping

from kvproof.spec.trace import Operation

ABOUT_ALL = 0  # of an operation that is about no group: groups have numbers from 1 on


class RefusedOperations:
    """The operations that were refused since the last step, or since the counts of free blocks last changed."""

    def __init__(self) -> None:
        self.free: tuple[int, ...] = ()
        self.refused: defaultdict[str, set[int]] = defaultdict(set)

    def note(self, operation: Operation | None, is_refused: bool, free: tuple[int, ...]) -> None:
        """Take in the last operation, whether it was refused, and the counts of free blocks after it."""
        if free != self.free or (operation is not None and operation[0] == "run"):
            self.free = free
            self.refused.clear()
        elif is_refused and operation is not None:
            self.refused[operation[0]].add(operation[1] if len(operation) > 1 else ABOUT_ALL)

    def left(self, enabled: Mapping[str, list[int]]) -> Mapping[str, list[int]]:
        """What is enabled, without what was refused."""
        if not self.refused:
            return enabled
        found = {}
        for kind, about in enabled.items():
            refused = self.refused.get(kind)
            if not refused:
                found[kind] = about
            elif left := [one for one in about if one not in refused]:
                found[kind] = left
        return found
