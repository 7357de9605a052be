"""Which keys a store may evict that evicts the least recently used one first (KEY_LRU).

Stores differ in what they count as a use. Some date a key when its write begins, others when it ends; some when a load
begins, others when it ends; some at each look-up. So two dates are kept of a key. It was *surely* used when it was
touched while it was there and nobody loaded it, and when it got its slot. It was *perhaps* used by every call that
names it, and by the end of a transfer of it or of a request that named it. A key must not be evicted if it was surely
used after another one was perhaps used for the last time, and that other one could be evicted and was not.
"""

from collections.abc import Callable, Collection, Iterable

from kvproof.check.protocol.finding import Finding
from kvproof.spec.text.eviction_policy import was_used_before

WITNESS = "eviction with a choice"


class KeyRecency:
    """When each key of a store was used, in calls. perhaps: those used longest ago come first."""

    def __init__(self) -> None:
        self.now = 0
        self.surely: dict[int, int] = {}
        self.perhaps: dict[int, int] = {}

    def used(self, keys: Collection[int]) -> None:
        """These keys were used by this call, whatever the store counts as a use."""
        for key in keys:
            self.surely[key] = self.now
        self.perhaps_used(keys)

    def perhaps_used(self, keys: Iterable[int]) -> None:
        """The store may count this call as a use of these keys."""
        for key in keys:
            self.perhaps.pop(key, None)
            self.perhaps[key] = self.now

    def forget(self, keys: Iterable[int]) -> None:
        """These keys are not there any more."""
        for key in keys:
            self.surely.pop(key, None)
            self.perhaps.pop(key, None)

    def order(self) -> tuple[tuple[int, bool, int], ...]:
        """The uses in their order, without the calls between them: equal for stores that must evict alike."""
        uses = [(at, False, key) for key, at in self.surely.items()] + [
            (at, True, key) for key, at in self.perhaps.items()
        ]
        ranks = {at: rank for rank, at in enumerate(sorted({at for at, _, _ in uses}))}
        return tuple(sorted((ranks[at], is_perhaps, key) for at, is_perhaps, key in uses))

    def judge(self, evicted: Collection[int], can_go: Callable[[int], bool], context: str) -> bool:
        """Raise Finding if a key was evicted that must outlive another one. Whether another one could have gone.

        can_go: whether a key is there after the call, and could have been evicted by it.
        """
        date, victim = max((self.surely.get(key, -1), key) for key in evicted)
        other = next(filter(can_go, self.perhaps), None)
        if other is not None and was_used_before(self.perhaps[other], date):
            raise Finding(
                "eviction-order",
                f"key {victim} was evicted, used $observed; key {other} was not, used at the latest $expected",
                call=context,
                expected=self._ago(self.perhaps[other]),
                observed=self._ago(date),
            )
        return other is not None

    def _ago(self, at: int) -> str:
        ago = self.now - at
        return "1 call before" if ago == 1 else f"{ago} calls before"
