"""What a store offers to readers far away: each load has a lease, and ends when all of its readers are done.

A reader copies the bytes of slots by itself, and the store does not see when. So it says until when an offer is in
force, and at the end whether what was read counts: it does if the offer was in force until then. An offer whose lease
has run out ends at once, also under readers that are not done, and whatever other offers do.

A notice says that one reader is done. It counts once, however often it comes, and one that comes too late or for an
offer that is unknown changes nothing. Offers are named by numbers that are not used again while readers may be late.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kvproof.impl.kv_store.slots import StoreSlots

KeyT = TypeVar("KeyT")


@dataclass(slots=True)
class Offer(Generic[KeyT]):
    """What was offered. until: when its lease runs out. num_readers: how many read it. done: those that are done."""

    keys: Sequence[KeyT]
    until: int
    num_readers: int = 1
    done: set[int] = field(default_factory=set)


class Offers(Generic[KeyT]):
    """The offers of one tier, and the clock. open: those whose keys are held."""

    def __init__(self, slots: StoreSlots[KeyT], lease_seconds: int) -> None:
        self.slots, self.lease_seconds, self.now = slots, lease_seconds, 0
        self.open: dict[int, Offer[KeyT]] = {}

    def begin(self, number: int, keys: Sequence[KeyT], num_readers: int = 1) -> list[int]:
        """Hold these resident keys for readers until the lease has run out; their slots."""
        self.open[number] = Offer(keys, self.now + self.lease_seconds, num_readers)
        return self.slots.hold(keys)

    def notice(self, number: int, reader: int) -> bool:
        """A reader is done. Whether what it read counts: it does not if the offer is over."""
        offer = self.open.get(number)
        if offer is None:
            return False
        offer.done.add(reader)
        if len(offer.done) == offer.num_readers:
            self.end(number)
        return True

    def end(self, number: int) -> bool:
        """Every reader is done. Whether what they read counts: it does not if the offer is over."""
        offer = self.open.pop(number, None)
        if offer is not None:
            self.slots.release(offer.keys)
        return offer is not None

    def advance(self, seconds: int) -> None:
        """Time passes, and every offer ends whose lease has run out."""
        self.now += seconds
        for number in [number for number, offer in self.open.items() if offer.until <= self.now]:
            self.end(number)
