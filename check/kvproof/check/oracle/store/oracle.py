"""What the parts of the judge of stores share: one opened store, what is expected, and the specification beside it.

The types and the texts of what a store answers are here, too.
"""

from collections import Counter, deque
from collections.abc import Sequence

from kvproof.check.oracle.comparison import unordered
from kvproof.check.oracle.enabled import Reply
from kvproof.check.oracle.store.recency import WITNESS, KeyRecency
from kvproof.check.oracle.store.rules import StoreRules
from kvproof.check.oracle.store.transfer import NO_END, Transfer
from kvproof.check.oracle.subject_calls import SubjectCalls
from kvproof.check.protocol.adapter_check import capabilities_of, check_adapter
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.store import (
    LRU,
    STORE_CALLS,
    StoreConfig,
    StoreObservation,
    StoreSubject,
    check_store_observation,
    path_to,
)
from kvproof.spec.text.eviction_policy import KEY_LRU

NUM_KEYS_MAX = 256  # of one operation
NUM_OVER = 2  # loads that have ended, of which a notice may still come


class StoreOracle:
    """One opened store, what is expected of it, and the specification beside it.

    requests: what each request that is there has asked for, in order. named: the same, with what was refused. memory:
    of each slot, the key whose content was last written there. over: the loads that ended last. explained: the
    specification. observed: what the store showed last. recency: when its keys were used. judges_order: whether it
    declares that the least recently used one goes first.
    """

    def __init__(self, subject: StoreSubject, config: StoreConfig, rules: type[StoreRules] = StoreRules) -> None:
        check_adapter(subject, STORE_CALLS)
        self.subject, self.config, self.capabilities = subject, config, capabilities_of(subject)
        self.coverage: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.reply, self.is_sparse = Reply(), False
        self.requests: dict[int, list[int]] = {}
        self.named: dict[int, list[int]] = {}
        self.transfers: dict[int, Transfer] = {}
        self.memory: dict[int, int] = {}
        self.over: deque[int] = deque(maxlen=NUM_OVER)
        calls = SubjectCalls(subject)
        self.call = calls.call
        calls.open(config)
        self.explained = rules(config, self.coverage, self.capabilities)
        self.recency = KeyRecency()
        self.judges_order = self.capabilities.eviction == KEY_LRU and config.replacement == LRU
        self.observed: StoreObservation = self.call("total-calls", "observe")
        self.check_observed()
        self.explained.compare(self.observed, True, "open")

    def observe(self) -> StoreObservation:
        """Observe the store."""
        self.observed = self.call("total-calls", "observe")
        return self.observed

    def moving(self) -> list[int]:
        """The transfers that have not landed, and may."""
        moving = [one for one in self.transfers.values() if not (one.has_landed or one.is_stopped)]
        copy = next((one for one in moving if one.from_device), None)
        return [one.number for one in moving if one is copy or not one.from_device]

    def landed(self) -> list[int]:
        """The transfers that have landed or whose lease is over, of which the store is not informed yet."""
        copy = next((one for one in self.transfers.values() if one.from_device), None)
        ended = [one for one in self.transfers.values() if one.has_landed or one.is_stopped]
        return [one.number for one in ended if (one is copy or not one.from_device) and not self.is_awaited(one)]

    def is_awaited(self, transfer: Transfer) -> bool:
        """Whether a transfer ends by notices of its readers."""
        return bool(self.explained.state.parts[transfer.owner])

    def done(self) -> list[int]:
        """The loads of which a reader may say that it is done, and those that ended last, of which it may be late."""
        ended = [one for one in self.transfers.values() if one.has_landed or one.is_stopped]
        over = [number for number in self.over if number not in self.transfers]
        return [one.number for one in ended if self.is_awaited(one)] + over

    def loadable(self) -> list[int]:
        """The keys that a load may ask for."""
        return list(self.explained.numbers) if self.capabilities.loads_any_key else self.explained.resident()

    def check_observed(self) -> None:
        """Raise AdapterError if what the subject last showed has a wrong type; types are not checked at each call."""
        check_store_observation(self.observed)

    def compare_all(self, context: str) -> None:
        """Compare everything that the store shows."""
        self.explained.compare(self.observe(), self.is_at_rest(), context)

    def is_at_rest(self) -> bool:
        """Whether no transfer is under way."""
        return not self.transfers

    def settle(self, context: str) -> None:
        """The call is explained: the store must show what the specification has."""
        self.recency.now += 1
        if self.is_sparse:
            self.observe_part()
            self.explained.compare_count(self.observed.free, self.is_at_rest(), context)
        else:
            self.compare_all(context)
        self.coverage["pool full"] += not self.observed.free

    def observe_part(self) -> None:
        """Observe the number of free slots at least."""
        name = "observe_part" if hasattr(self.subject, "observe_part") else "observe"
        self.observed = self.call("total-calls", name)

    def require_unchanged(self, context: str) -> None:
        """A call that refuses changes nothing that the store shows, but the order of its entries."""
        before = self.observed
        if self.is_sparse:
            self.observe_part()
            before = self.observed._replace(free=before.free)
        else:
            self.observe()
        for name, old, new in zip(StoreObservation._fields, unordered(before), unordered(self.observed), strict=True):
            if old != new:
                sentence = f"was refused, but {name} changed; $expected -> $observed"
                raise Finding("failed-call-changes-nothing", sentence, call=context, expected=old, observed=new)

    def use(self, request: int, keys: Sequence[int]) -> None:
        """The request uses these keys."""
        self.requests.setdefault(request, []).extend(keys)
        self.name(request, keys)

    def name(self, request: int, keys: Sequence[int]) -> None:
        """The request names these keys, which the store may count as a use even if it refuses the call."""
        self.named.setdefault(request, []).extend(keys)
        self.recency.perhaps_used(keys)

    def judge_victims(self, evicted: Sequence[int], context: str) -> None:
        """A call has evicted these keys: no other one should have gone before them."""
        if self.judges_order and evicted:
            self.coverage[WITNESS] += self.recency.judge(evicted, self._can_go, context)
        self.recency.forget(evicted)

    def _can_go(self, key: int) -> bool:
        """Whether a key could be evicted: nothing holds it, and if keys are paths, it is the last one of its path."""
        is_last = not self.capabilities.paths or all(key not in path_to(one)[:-1] for one in self.explained.entries())
        return is_last and self.explained.is_evictable(key)

    def fits(self, keys: Sequence[int]) -> bool:
        """Whether an operation may be about these keys, and the specification has room for it."""
        is_path = not self.capabilities.paths or (bool(keys) and tuple(keys) == path_to(keys[-1]))
        return is_path and len(set(keys)) == len(keys) <= NUM_KEYS_MAX and self.explained.has_room(keys)

    def judge_miss(self, key: int, answer: str, context: str) -> None:
        """The store did not find a key that is there: a fault if it declares how much it misses."""
        self.notes["hit-complete"] += 1
        if self.capabilities.lost_hits is not None:
            raise Finding(
                "hit-found", f"the answer is $observed, and key {key} is there", call=context, observed=answer
            )

    def judge_given(self, keys: Sequence[int], given: dict[int, int], context: str) -> None:
        """A load gets the keys that are there, from their slots. given: the slots that the store answered."""
        for key in keys:
            if key not in given and self.explained.has(key):
                self.judge_miss(key, "nothing", context)
            elif key in given and self.explained.has(key) and given[key] != self.explained.slot_of(key):
                sentence = f"key {key} is in slot $expected, and the store answers $observed"
                expected = self.explained.slot_of(key)
                raise Finding("arrived-whole", sentence, call=context, expected=expected, observed=given[key])

    def until(self, *, is_load: bool) -> int:
        """When the lease of a transfer ends that begins now."""
        if not self.capabilities.leases or (self.capabilities.remote_loads and not is_load):
            return NO_END
        return int(self.explained.state.clock[0]) + self.config.lease_seconds


def are_ints(numbers: object) -> bool:
    """Whether this is a list of numbers."""
    return isinstance(numbers, list) and all(type(number) is int for number in numbers)


def check_slots(name: str, keys: object, slots: object) -> None:
    """Raise AdapterError unless these are lists of numbers, with one slot for each key."""
    if not (isinstance(keys, list) and isinstance(slots, list) and are_ints(keys + slots) and len(keys) == len(slots)):
        raise AdapterError(f"{name} must return lists of ints, one slot for each key; it returned {keys}, {slots}")


def slots_text(slots: Sequence[int]) -> str:
    """Slots as text."""
    return f"slot{'s' if len(slots) != 1 else ''} {', '.join(map(str, slots))}" if slots else "no slot"
