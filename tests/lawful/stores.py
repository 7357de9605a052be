"""Stores that evict the least recently used key first, and differ in what they count as a use; and broken neighbours.

`EVENTS` names what dates keys: each store has some of them. What every such store must date is a touch of a key that is
there and that nobody loads, and a new key, when its write begins or ends.
"""

from dataclasses import replace
from typing import ClassVar

from kvproof.check.protocol.capabilities import StoreCan
from kvproof.check.protocol.manager import Refused
from kvproof.check.protocol.store import HIT, MISS, PENDING, Staged, StoreAdapter, StoreConfig, StoreObservation
from kvproof.spec.text.eviction_policy import KEY_LRU

TOUCH, WRITE_BEGINS, WRITE_ENDS, LOAD_BEGINS, LOAD_ENDS = (
    "touch",
    "write begins",
    "write ends",
    "load begins",
    "load ends",
)
LOOK_UP, KNOWN, REFUSED, REQUEST_ENDS = "look-up", "store of a known key", "refused store", "request ends"
STAGED = -1


class Lru(StoreAdapter):
    """Dates a key when it is touched and when its write begins. order: the key that goes first comes first."""

    name = "lawful"
    capabilities = StoreCan(reset=True, lost_hits=0, refusal_slack=0, eviction=KEY_LRU)
    events: ClassVar[set[str]] = {TOUCH, WRITE_BEGINS}

    def open(self, config: StoreConfig) -> None:
        self.num_slots = config.num_slots
        self.clear()

    def clear(self) -> None:
        self.free, self.slots, self.loads = [*range(self.num_slots)], dict[int, int](), dict[int, int]()
        self.order: list[int] = []
        self.asked: dict[int, list[int]] = {}

    def date(self, event: str, keys: list[int]) -> None:
        """These keys were used just now, if the store counts the event."""
        if event in self.events:
            known = [key for key in dict.fromkeys(keys) if key in self.slots]
            self.order = [key for key in self.order if key not in known] + known

    def look_up(self, request: int, keys: list[int]) -> list[str]:
        self.note(request, keys)
        self.date(LOOK_UP, keys)
        return [MISS if key not in self.slots else PENDING if self.loads[key] == STAGED else HIT for key in keys]

    def note(self, request: int, keys: list[int]) -> None:
        self.asked.setdefault(request, []).extend(keys)

    def begin_load(self, transfer: int, request: int, keys: list[int]) -> list[int]:
        self.note(request, keys)
        for key in keys:
            self.loads[key] += 1
        self.date(LOAD_BEGINS, keys)
        return [self.slots[key] for key in keys]

    def end_load(self, transfer: int, request: int, keys: list[int]) -> None:
        for key in keys:
            self.loads[key] -= 1
        self.date(LOAD_ENDS, keys)

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Staged | Refused:
        known, new = [key for key in keys if key in self.slots], [key for key in keys if key not in self.slots]
        can_go = [key for key in self.in_order() if key not in keys and self.loads[key] == 0]
        num_missing = len(new) - len(self.free)
        if num_missing > len(can_go):
            self.date(REFUSED, keys)
            return Refused()
        self.note(request, keys)
        evicted = can_go[: max(0, num_missing)]
        for key in evicted:
            self.drop(key)
        for key in new:
            self.slots[key], self.loads[key] = self.free.pop(), STAGED
            self.order.append(key)
        self.date(KNOWN, known)
        return Staged(new, [self.slots[key] for key in new], evicted)

    def in_order(self) -> list[int]:
        """The keys, the one that goes first first."""
        return self.order

    def drop(self, key: int) -> None:
        self.free.append(self.slots.pop(key))
        self.loads.pop(key)
        self.order.remove(key)

    def end_store(self, transfer: int, request: int, stored: list[int], failed: list[int]) -> None:
        for key in failed:
            self.drop(key)
        self.loads.update(dict.fromkeys(stored, 0))
        self.date(WRITE_ENDS, stored)

    def touch(self, request: int, keys: list[int]) -> None:
        self.note(request, keys)
        self.date(TOUCH, keys)

    def finish(self, request: int) -> None:
        self.date(REQUEST_ENDS, self.asked.pop(request, []))

    def observe(self) -> StoreObservation:
        return StoreObservation(dict(self.slots), len(self.free), dict(self.loads), list(self.free))


class DatesWhatIsWritten(Lru):
    """A key is dated when its write ends."""

    events: ClassVar[set[str]] = {TOUCH, WRITE_ENDS}


class DatesLoads(Lru):
    """So is a key that is loaded, when the load begins."""

    events: ClassVar[set[str]] = {TOUCH, LOAD_BEGINS}


class DatesEndsOfLoads(Lru):
    """So is a key that is loaded, when the load ends."""

    events: ClassVar[set[str]] = {TOUCH, LOAD_ENDS, WRITE_ENDS}


class DatesQuestions(Lru):
    """A look-up is a use, and so is the store of a key that is there, even one that is refused."""

    events: ClassVar[set[str]] = {TOUCH, LOOK_UP, KNOWN, REFUSED}


class DatesRequests(Lru):
    """At the end of a request all keys that it named are used."""

    events: ClassVar[set[str]] = {TOUCH, REQUEST_ENDS}


class TouchesInReverse(Lru):
    """Of the keys of a touch, the first one goes last."""

    def date(self, event: str, keys: list[int]) -> None:
        super().date(event, keys[::-1])


class TouchesNoHeldKey(Lru):
    """A touch of a key that is loaded or written is no use."""

    events: ClassVar[set[str]] = {TOUCH, LOAD_ENDS}

    def touch(self, request: int, keys: list[int]) -> None:
        self.note(request, keys)
        self.date(TOUCH, [key for key in keys if self.loads.get(key) == 0])


class NotesRefused(DatesRequests):
    """So are the keys of its refused stores."""

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Staged | Refused:
        self.note(request, keys)
        return super().begin_store(transfer, request, keys)


class EndsRequestsLate(DatesRequests):
    """A request is over when the last of its transfers is."""

    def clear(self) -> None:
        super().clear()
        self.under_way: dict[int, set[int]] = {}
        self.ending: set[int] = set()

    def begin_load(self, transfer: int, request: int, keys: list[int]) -> list[int]:
        self.under_way.setdefault(request, set()).add(transfer)
        return super().begin_load(transfer, request, keys)

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Staged | Refused:
        done = super().begin_store(transfer, request, keys)
        if isinstance(done, Staged) and done.keys:
            self.under_way.setdefault(request, set()).add(transfer)
        return done

    def end_load(self, transfer: int, request: int, keys: list[int]) -> None:
        super().end_load(transfer, request, keys)
        self.end(transfer, request)

    def end_store(self, transfer: int, request: int, stored: list[int], failed: list[int]) -> None:
        super().end_store(transfer, request, stored, failed)
        self.end(transfer, request)

    def end(self, transfer: int, request: int) -> None:
        self.under_way.get(request, set()).discard(transfer)
        if request in self.ending and not self.under_way.get(request):
            self.ending.discard(request)
            super().finish(request)

    def finish(self, request: int) -> None:
        if self.under_way.get(request):
            self.ending.add(request)
        else:
            super().finish(request)


class CountsLapsedLoads(Lru):
    """It has leases, and counts a load whose lease is over until its end is reported. What was written then goes."""

    capabilities = replace(Lru.capabilities, leases=True, refusal_slack=None)

    def open(self, config: StoreConfig) -> None:
        self.seconds, self.now = config.lease_seconds, 0
        super().open(config)

    def clear(self) -> None:
        super().clear()
        self.written: dict[int, tuple[int, list[int]]] = {}  # transfer -> the end of its lease, and its keys

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Staged | Refused:
        done = super().begin_store(transfer, request, keys)
        if isinstance(done, Staged) and done.keys:
            self.written[transfer] = self.now + self.seconds, list(done.keys)
        return done

    def advance(self, seconds: int) -> None:
        self.now += seconds
        for transfer, (end, keys) in list(self.written.items()):
            if end <= self.now:
                del self.written[transfer]
                for key in keys:
                    self.drop(key)

    def end_store(self, transfer: int, request: int, stored: list[int], failed: list[int]) -> None:
        if self.written.pop(transfer, None) is not None:
            super().end_store(transfer, request, stored, failed)


class RefusesLoads(Lru):
    """A load may ask for any keys, and uses those that are there, even if it is refused because one is missing."""

    capabilities = replace(Lru.capabilities, loads_any_key=True)
    events: ClassVar[set[str]] = {TOUCH, WRITE_BEGINS, LOAD_BEGINS}

    def begin_load(self, transfer: int, request: int, keys: list[int]) -> list[int] | Refused:  # type: ignore[override]
        if any(self.loads.get(key, STAGED) == STAGED for key in keys):
            self.date(LOAD_BEGINS, keys)
            return Refused()
        return super().begin_load(transfer, request, keys)


LAWFUL: list[type[Lru]] = [
    Lru,
    NotesRefused,
    EndsRequestsLate,
    CountsLapsedLoads,
    RefusesLoads,
    DatesWhatIsWritten,
    DatesLoads,
    DatesEndsOfLoads,
    DatesQuestions,
    DatesRequests,
    TouchesInReverse,
    TouchesNoHeldKey,
]


class FirstIn(Lru):
    """A touch is no use."""

    events: ClassVar[set[str]] = set()


class LastUsedGoes(Lru):
    """The key that was used last goes first."""

    def in_order(self) -> list[int]:
        return self.order[::-1]


class LowestGoes(Lru):
    """The key with the lowest number goes first."""

    def in_order(self) -> list[int]:
        return sorted(self.order)


class WrittenIsOldest(Lru):
    """A key that was just written goes first."""

    def end_store(self, transfer: int, request: int, stored: list[int], failed: list[int]) -> None:
        super().end_store(transfer, request, stored, failed)
        self.order.sort(key=lambda key: key not in stored)


class TouchesTheFirstOnly(Lru):
    """Of the keys of a touch, only the first one is used."""

    def touch(self, request: int, keys: list[int]) -> None:
        super().touch(request, keys[:1])


BROKEN: list[type[Lru]] = [FirstIn, LastUsedGoes, LowestGoes, WrittenIsOldest, TouchesTheFirstOnly]
