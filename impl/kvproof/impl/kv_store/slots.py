"""Which slot of a tier belongs to which key. No bytes are moved here.

Each slot is free, or it has one entry. An entry is staged, or resident with a number of loads that hold it. The
resident entries without a load are the *evictable* ones, in the order in which they were last used. So a slot is found
in constant time: a free one, or that of the first evictable entry.

A call that needs more slots than are free or evictable is refused as a whole, before anything changes. A key that the
call names is not evicted by this call, even if it has a slot already: its caller relies on it (vLLM PR #35846).
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


class NoSlotError(Exception):
    """Too few slots are free or can be evicted; nothing was changed."""


@dataclass(slots=True)
class SlotEntry:
    """The entry of a key. num_loads: loads that hold it."""

    slot: int
    is_staged: bool = True
    num_loads: int = 0


class StagedSlots(NamedTuple, Generic[KeyT]):
    """What `stage` did. keys, slots: the keys that are staged now, and their slots. evicted: the keys that went."""

    keys: list[KeyT]
    slots: list[int]
    evicted: list[KeyT]


class StoreSlots(Generic[KeyT]):
    """The slots of one tier. entries: those of all keys that have a slot. free: the other slots."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self.clear()

    def clear(self) -> None:
        """Forget every entry. No transfer may be under way any more."""
        self.entries: dict[KeyT, SlotEntry] = {}
        self.free = list(range(self.num_slots - 1, -1, -1))
        self._evictable: dict[KeyT, None] = {}  # least recently used first

    def has(self, key: KeyT) -> bool:
        """Whether the key is resident."""
        entry = self.entries.get(key)
        return entry is not None and not entry.is_staged

    def stage(self, keys: Sequence[KeyT]) -> StagedSlots[KeyT]:
        """Give a slot to each of these different keys that has none. Raises NoSlotError if there are too few."""
        new = [key for key in keys if key not in self.entries]
        num_evicted = max(0, len(new) - len(self.free))
        named = sum(key in self._evictable for key in keys)
        if num_evicted > len(self._evictable) - named:
            raise NoSlotError(f"{len(new)} new entries: {len(self.free)} slots are free, and too few can be evicted")
        evicted = self._oldest(num_evicted, set(keys)) if num_evicted else []
        for key in evicted:
            self.drop(key)
        for key in new:
            self.entries[key] = SlotEntry(self.free.pop())
        return StagedSlots(new, [self.entries[key].slot for key in new], evicted)

    def _oldest(self, number: int, without: set[KeyT]) -> list[KeyT]:
        oldest: list[KeyT] = []
        for key in self._evictable:
            if key not in without:
                oldest.append(key)
                if len(oldest) == number:
                    break
        return oldest

    def commit(self, keys: Iterable[KeyT]) -> None:
        """These staged keys are written: they can be found from now on."""
        for key in keys:
            self.entries[key].is_staged = False
            self._evictable[key] = None

    def abandon(self, keys: Iterable[KeyT]) -> None:
        """The store of these staged keys failed: nothing of them can be found, and their slots are free."""
        for key in keys:
            self.free.append(self.entries.pop(key).slot)

    def hold(self, keys: Iterable[KeyT]) -> list[int]:
        """A load of these resident keys begins; their slots."""
        slots = []
        for key in keys:
            entry = self.entries[key]
            entry.num_loads += 1
            self._evictable.pop(key, None)
            slots.append(entry.slot)
        return slots

    def release(self, keys: Iterable[KeyT]) -> None:
        """A load of these keys has ended."""
        for key in keys:
            entry = self.entries[key]
            entry.num_loads -= 1
            if not entry.num_loads:
                self._evictable[key] = None

    def touch(self, keys: Iterable[KeyT]) -> None:
        """These keys were used just now; those that are unknown, staged or held stay as they are."""
        for key in keys:
            if key in self._evictable:
                del self._evictable[key]
                self._evictable[key] = None

    def drop(self, key: KeyT) -> None:
        """Evict a resident key that nobody holds."""
        del self._evictable[key]
        self.free.append(self.entries.pop(key).slot)

    def adopt(self, key: KeyT, slot: int) -> None:
        """A free slot already has the content of this key, for example after a restart."""
        self.free.remove(slot)
        self.entries[key] = SlotEntry(slot, is_staged=False)
        self._evictable[key] = None
