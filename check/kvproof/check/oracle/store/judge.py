"""The operations of a store: what is called, which rules explain the answer, and what must be shown then."""

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from kvproof.check.oracle.enabled import RuledJudge, enabled_when
from kvproof.check.oracle.store.rules import NO_END, StoreRules, Transfer
from kvproof.check.oracle.subject_calls import SubjectCalls
from kvproof.check.oracle.unordered import unordered
from kvproof.check.protocol.adapter_check import check_adapter, check_answer
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import Refused
from kvproof.check.protocol.store import (
    ANSWERS,
    HIT,
    NO_SLOT,
    STORE_CALLS,
    Asked,
    Copied,
    Staged,
    StoreConfig,
    StoreObservation,
    StoreOperation,
    StoreSubject,
    check_store_observation,
    keys_text,
    path_to,
)

NUM_KEYS_MAX = 256  # of one operation


class StoreJudge(SubjectCalls, RuledJudge):
    """One opened store in lockstep with the specification."""

    kinds = StoreOperation.kinds()
    explaining: ClassVar[type[StoreRules]] = StoreRules
    config: StoreConfig

    def __init__(self, subject: StoreSubject, config: StoreConfig, identities: object = None) -> None:
        check_adapter(subject, STORE_CALLS)
        self.subject, self.config, self.capabilities = subject, config, subject.capabilities
        self.coverage: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.answer, self.is_sparse = "", False
        self.requests: dict[int, list[int]] = {}  # what each request that is there has asked for, in order
        self.transfers: dict[int, Transfer] = {}
        self.used: dict[int, None] = {}  # keys in the order in which they were last used, for exhaustive searches
        self.memory: dict[int, int] = {}  # slot -> the key whose content was last written there
        self._open()
        self.explained = self.explaining(config, self.coverage)
        self.observed: StoreObservation = self.call("total-calls", "observe")
        check_store_observation(self.observed)
        self.explained.compare(self.observed, True, "open")

    # What is there --------------------------------------------------------------------------------------------------

    def moving(self) -> list[int]:
        """The transfers that have not landed, and may."""
        moving = [one for one in self.transfers.values() if not (one.has_landed or one.has_lapsed)]
        copy = next((one for one in moving if one.from_device), None)
        return [one.number for one in moving if one is copy or not one.from_device]

    def landed(self) -> list[int]:
        """The transfers that have landed or whose lease is over, of which the store is not informed yet."""
        copy = next((one for one in self.transfers.values() if one.from_device), None)
        ended = [one for one in self.transfers.values() if one.has_landed or one.has_lapsed]
        return [one.number for one in ended if one is copy or not one.from_device]

    def loadable(self) -> list[int]:
        """The keys that a load may ask for."""
        return list(self.explained.numbers) if self.capabilities.loads_any_key else self.explained.resident()

    def check_observed(self) -> None:
        """Raise AdapterError if what the subject last showed has a wrong type; types are not checked at each call."""
        check_store_observation(self.observed)

    def compare_all(self, context: str) -> None:
        """Compare everything that the store shows."""
        self.observed = self.call("total-calls", "observe")
        self.explained.compare(self.observed, self._is_at_rest(), context)

    def _is_at_rest(self) -> bool:
        return not self.transfers

    def _settle(self, context: str) -> None:
        """The call is explained: the store must show what the specification has."""
        if self.is_sparse:
            self._observe_part()
            self.explained.compare_count(self.observed.free, self._is_at_rest(), context)
        else:
            self.compare_all(context)
        self.coverage["pool full"] += not self.observed.free

    def _observe_part(self) -> None:
        name = "observe_part" if hasattr(self.subject, "observe_part") else "observe"
        self.observed = self.call("total-calls", name)

    def _unchanged(self, context: str) -> None:
        """A call that refuses changes nothing that the store shows, but the order of its entries."""
        before = self.observed
        if self.is_sparse:
            self._observe_part()
            before = self.observed._replace(free=before.free)
        else:
            self.observed = self.call("total-calls", "observe")
        for name, old, new in zip(StoreObservation._fields, unordered(before), unordered(self.observed), strict=True):
            if old != new:
                sentence = f"was refused, but {name} changed; $expected -> $observed"
                raise Finding("failed-call-changes-nothing", sentence, call=context, expected=old, observed=new)

    def _use(self, request: int, keys: Sequence[int]) -> None:
        self.requests.setdefault(request, []).extend(keys)
        if not self.is_sparse:
            for key in keys:
                self.used.pop(key, None)
                self.used[key] = None

    def _fits(self, keys: Sequence[int]) -> bool:
        is_path = not self.capabilities.paths or (bool(keys) and tuple(keys) == path_to(keys[-1]))
        return is_path and len(set(keys)) == len(keys) <= NUM_KEYS_MAX and self.explained.has_room(keys)

    # Questions ------------------------------------------------------------------------------------------------------

    @enabled_when()
    def op_look_up(self, request: int, keys: Sequence[int]) -> bool:
        """The store says of each key whether it has it."""
        if not self._fits(keys):
            return False
        context = f"look_up({keys_text(keys)})"
        answers = self.call("total-calls", "look_up", request, list(keys))
        check_answer("look_up", answers, list)
        if len(answers) != len(keys) or not set(answers) <= set(ANSWERS):
            raise AdapterError(f"look_up must answer one of {', '.join(ANSWERS)} for each key; it answered {answers}")
        self.answer = ", ".join(f"key {key} {answer}" for key, answer in zip(keys, answers, strict=True))
        for key, answer in zip(keys, answers, strict=True):
            if answer == HIT:
                self.explained.promise(key, context)
                self.coverage["hit"] += 1
            elif self.explained.has(key):
                self._missed(key, answer, context)
            else:
                self.coverage["miss of a staged key"] += self.explained.slot_of(key) != NO_SLOT
        self._use(request, keys)
        self._settle(context)
        return True

    def _missed(self, key: int, answer: str, context: str) -> None:
        self.notes["hit-complete"] += 1
        if self.capabilities.lost_hits is not None:
            raise Finding(
                "hit-found", f"the answer is $observed, and key {key} is there", call=context, observed=answer
            )

    @enabled_when()
    def op_touch(self, request: int, keys: Sequence[int]) -> bool:
        """The request uses keys; at most the order of eviction changes."""
        if not self._fits(keys):
            return False
        self.call("total-calls", "touch", request, list(keys))
        self._use(request, keys)
        self._settle(f"touch({keys_text(keys)})")
        return True

    @enabled_when(about=lambda judge: judge.requests)
    def op_finish(self, request: int) -> bool:
        """The request is over; its transfers go on."""
        self.call("total-calls", "finish", request)
        del self.requests[request]
        self.coverage["finished with a transfer under way"] += any(
            one.request == request for one in self.transfers.values()
        )
        self._settle(f"finish({request})")
        return True

    # Transfers begin ------------------------------------------------------------------------------------------------

    @enabled_when()
    def op_begin_store(self, transfer: int, request: int, keys: Sequence[int]) -> bool:
        """The store takes those keys that it does not have, evicts others for them, or refuses."""
        if transfer in self.transfers or not self._fits(keys):
            return False
        explained = self.explained
        context = f"begin_store({keys_text(keys)})"
        staged = self.call("total-calls", "begin_store", transfer, request, list(keys))
        answers = (Staged, Refused, Asked) if self.capabilities.asks_first else (Staged, Refused)
        check_answer("begin_store", staged, *answers)
        if isinstance(staged, Refused):
            self._refused(keys, [key for key in keys if explained.slot_of(key) == NO_SLOT], context)
            return True
        self._use(request, keys)
        if isinstance(staged, Asked):
            self._asked(transfer, request, keys, staged, context)
        else:
            self._staged(transfer, request, keys, staged, context)
        return True

    def _asked(self, transfer: int, request: int, keys: Sequence[int], asked: Asked, context: str) -> None:
        """The store asks a lower tier first: nothing that it shows changes."""
        check_answer("begin_store().keys", asked.keys, list)
        if foreign := [key for key in asked.keys if key not in keys]:
            sentence, values = "the store asks for $keys, which the call does not name", {"keys": keys_text(foreign)}
            raise Finding("frame-kept", sentence, call=context, values=values)
        self.answer = f"asks for {keys_text(asked.keys)}" if asked.keys else "has nothing to ask for"
        if asked.keys:
            one = Transfer(transfer, request, False, self.explained.new_owner(), list(asked.keys), [], is_asking=True)
            self.transfers[transfer] = one
        self._settle(context)

    def _answered(self, one: Transfer, failed: Sequence[int]) -> bool:
        """The lower tier says which keys it has, and the store takes slots for them."""
        if not self.explained.has_room(one.keys):
            return False
        places = [place for place in failed if 0 <= place < len(one.keys)]
        stop = min(places, default=len(one.keys)) if self.capabilities.paths else len(one.keys)
        there = [key for place, key in enumerate(one.keys[:stop]) if place not in places]
        context = f"begin_asked({there})"
        staged = self.call("total-calls", "begin_asked", one.number, one.request, list(there))
        check_answer("begin_asked", staged, Staged)
        self.coverage["a lower tier answered"] += 1
        del self.transfers[one.number]
        self.explained.free_owners.append(one.owner)
        self._staged(one.number, one.request, there, staged, context)
        return True

    def _staged(self, transfer: int, request: int, keys: Sequence[int], staged: Staged, context: str) -> None:
        """The store gave slots to keys, and may have evicted others for them."""
        explained = self.explained
        new = [key for key in keys if explained.slot_of(key) == NO_SLOT]
        _check_staged(staged)
        may_evict = staged.evicted or staged.evicted is None
        held = explained.hold(keys, context) if may_evict or self.capabilities.stores_what_fits else []
        evicted = self._evicted() if staged.evicted is None else staged.evicted
        self.answer = _staged_text(staged.keys, staged.slots, evicted)
        for key in [key for key in evicted if key not in explained.lapsed.values()]:
            if explained.slot_of(key) == NO_SLOT:
                sentence = f"the store says that it evicted key {key}, which has no slot"
                raise Finding("lists-agree", sentence, call=context)
            explained.evict(key, context)
        self.coverage["a key of the call is there, and another is evicted"] += bool(held and evicted)
        self._judge_staged(keys, new, staged, context)
        if staged.keys:
            owner = explained.new_owner()
            one = Transfer(transfer, request, False, owner, list(staged.keys), list(staged.slots))
            one.until, one.from_device = self._until(), staged.from_device
            self.coverage["copies from the device"] += one.from_device
            explained.begin(one, context)
            self.transfers[transfer] = one
        explained.let_go(held, context)
        self._settle(context)

    def _judge_staged(self, keys: Sequence[int], new: list[int], staged: Staged, context: str) -> None:
        """The store takes each key that has no slot, and no other one, and gives it a slot that exists."""
        if foreign := [key for key in staged.keys if key not in keys]:
            sentence, values = "the store takes $keys, which the call does not name", {"keys": keys_text(foreign)}
            raise Finding("frame-kept", sentence, call=context, values=values)
        for key, slot in zip(staged.keys, staged.slots, strict=True):
            if not 0 <= slot < self.explained.num_slots:
                sentence = f"key {key} gets slot $observed, of $expected"
                raise Finding(
                    "no-use-after-free", sentence, call=context, expected=self.explained.num_slots, observed=slot
                )
        left = [key for key in new if key not in staged.keys and key not in self.explained.lapsed.values()]
        is_full = self.capabilities.evicts_on_call and len(left) > self._num_unused() - len(self.explained.lapsed)
        if left and self.capabilities.refusal_slack is not None and not is_full:
            sentence = "$keys got no slot, and the call was not refused"
            raise Finding("refusal-needed", sentence, call=context, values={"keys": keys_text(left)})
        if left and self.capabilities.stores_what_fits and (num_more := self._num_unused() - len(staged.keys)) > 0:
            sentence, values = (
                "$keys got no slot, and $observed more are free or can be evicted",
                {"keys": keys_text(left)},
            )
            raise Finding("refusal-needed", sentence, call=context, observed=num_more, values=values)

    def _evicted(self) -> list[int]:
        """The keys that the store shows no more. It does not report what it evicts."""
        self.observed = self.call("total-calls", "observe")
        return [key for key in self.explained.entries() if key not in self.observed.entries]

    def _refused(self, keys: Sequence[int], new: list[int], context: str) -> None:
        """The store refused: it may if the free and evictable slots that the call does not name are too few."""
        self.answer = "refused"
        self.coverage["refused"] += 1
        self._unchanged(context)
        held = self.explained.hold(keys, context)
        unused = self._num_unused()
        self.explained.let_go(held, context)
        if len(new) > unused - len(self.explained.lapsed):
            return
        if self.capabilities.refusal_slack is None:
            self.notes["refusal-needed"] += 1
            return
        sentence = "$observed slots are needed, $expected are free or can be evicted, and the store refused"
        raise Finding("refusal-needed", sentence, call=context, expected=unused, observed=len(new))

    def _num_unused(self) -> int:
        return self.explained.num_unused(evicts_on_call=self.capabilities.evicts_on_call)

    @enabled_when()
    def op_evict(self, keys: Sequence[int]) -> bool:
        """The store evicts those of the keys that nobody holds."""
        if not self._fits(keys):
            return False
        explained, context = self.explained, f"evict({keys_text(keys)})"
        evicted = self.call("total-calls", "evict", list(keys))
        check_answer("evict", evicted, list)
        if foreign := [key for key in evicted if key not in keys]:
            sentence, values = "$keys went, which the call does not name", {"keys": keys_text(foreign)}
            raise Finding("frame-kept", sentence, call=context, values=values)
        for key in keys:
            if explained.has(key) and key in evicted:
                explained.evict(key, context)
            elif explained.slot_of(key) != NO_SLOT and key in evicted:
                raise Finding("one-writer", f"key {key} is being written, and the store evicts it", call=context)
            elif explained.has(key) and not self._is_held(key):
                sentence = f"nobody holds key {key}, and the store does not evict it"
                raise Finding("refusal-needed", sentence, call=context)
        self.answer = f"evicted {keys_text(evicted)}" if evicted else "evicted nothing"
        self._settle(context)
        return True

    def _is_held(self, key: int) -> bool:
        """Whether a load holds a key, or held it until its lease was over and has not ended."""
        return any(one.is_load and key in one.keys for one in self.transfers.values())

    @enabled_when()
    def op_begin_load(self, transfer: int, request: int, keys: Sequence[int]) -> bool:
        """The store holds the keys, and says where they are."""
        is_there = self.capabilities.loads_any_key or all(map(self.explained.has, keys))
        if transfer in self.transfers or not is_there or not self._fits(keys):
            return False
        context = f"begin_load({keys_text(keys)})"
        slots = self.call("total-calls", "begin_load", transfer, request, list(keys))
        check_answer("begin_load", slots, list, Refused)
        if isinstance(slots, Refused):
            self.answer = "refused"
            self._unchanged(context)
            if not self.capabilities.loads_any_key:
                raise Finding("promise-kept", "was refused, and every key is there", call=context)
            return True
        if len(slots) != len(keys) or any(type(slot) is not int for slot in slots):
            raise AdapterError(f"begin_load must return one slot for each of {len(keys)} keys; it returned {slots}")
        given = {key: slot for key, slot in zip(keys, slots, strict=True) if slot != NO_SLOT}
        self.answer = _slots_text(list(given.values()))
        self._judge_given(keys, given, context)
        if given:
            owner = self.explained.new_owner()
            one = Transfer(transfer, request, True, owner, list(given), list(given.values()))
            self.coverage["two loads of a key"] += any(
                other.is_load and set(other.keys) & set(one.keys) for other in self.transfers.values()
            )
            one.until = self._until()
            self.explained.begin(one, context)
            self.transfers[transfer] = one
        self._use(request, keys)
        self._settle(context)
        return True

    def _judge_given(self, keys: Sequence[int], given: dict[int, int], context: str) -> None:
        for key in keys:
            if key not in given and self.explained.has(key):
                self._missed(key, "nothing", context)
            elif key in given and self.explained.has(key) and given[key] != self.explained.slot_of(key):
                sentence = f"key {key} is in slot $expected, and the store answers $observed"
                expected = self.explained.slot_of(key)
                raise Finding("arrived-whole", sentence, call=context, expected=expected, observed=given[key])

    def _until(self) -> int:
        if not self.capabilities.leases:
            return NO_END
        return int(self.explained.state.clock[0]) + self.config.lease_seconds

    # Transfers land, and end ----------------------------------------------------------------------------------------

    @enabled_when(about=lambda judge: judge.moving())
    def op_land(self, transfer: int, failed: Sequence[int] = ()) -> bool:
        """The bytes move. The store is not informed."""
        one = self.transfers[transfer]
        if one.is_asking:
            return self._answered(one, failed)
        cannot_fail = one.is_load or one.from_device or self.capabilities.never_fails
        one.failed = () if cannot_fail else tuple(place for place in failed if 0 <= place < len(one.keys))
        if one.failed and (self.capabilities.paths or self.capabilities.fails_whole):
            first = 0 if self.capabilities.fails_whole else min(one.failed)
            one.failed = tuple(range(first, len(one.keys)))
        context = f"land({transfer})"
        for place, (key, slot) in enumerate(zip(one.keys, one.slots, strict=True)):
            if one.is_load and self.memory.get(slot) != key:
                sentence = f"slot {slot} is read for key $expected, and has the content of key $observed"
                raise Finding(
                    "arrived-whole", sentence, call=context, expected=key, observed=self.memory.get(slot), blocks=[slot]
                )
            if not one.is_load and place not in one.failed:
                self.memory[slot] = key
            elif not one.is_load:
                self.memory.pop(slot, None)
        self.explained.land(one, context)
        one.has_landed = True
        return True

    @enabled_when(about=lambda judge: judge.landed())
    def op_report(self, transfer: int) -> bool:
        """The store learns that a transfer has landed."""
        one = self.transfers[transfer]
        self.coverage["reported before an older one"] += next(iter(self.transfers)) != transfer
        copied = None
        if one.is_load:
            context = f"end_load({keys_text(one.keys)})"
            self.call("total-calls", "end_load", transfer, one.request, list(one.keys))
        else:
            stored = [key for place, key in enumerate(one.keys) if place not in one.failed]
            lost = [key for place, key in enumerate(one.keys) if place in one.failed]
            context = f"end_store(stored {stored}, failed {lost})"
            copied = self.call("total-calls", "end_store", transfer, one.request, stored, lost)
            check_answer("end_store", copied, Copied, type(None))
        if one.has_lapsed:
            self.coverage["ended after its lease"] += 1
            self.explained.end_lapsed(one)
        else:
            self.explained.end(one, context)
        del self.transfers[transfer]
        if copied is not None and copied.keys:
            self._copied(one, copied, context)
        try:
            self._settle(context)
        except Finding as finding:
            raise sharpened(finding, one) from None
        return True

    def _copied(self, stored: Transfer, copied: Copied, context: str) -> None:
        """What was stored is copied to a lower tier: a load with the number of its store."""
        _check_slots("end_store", copied.keys, copied.slots)
        if absent := [key for key in copied.keys if not self.explained.has(key)]:
            sentence, values = "$keys is copied to a lower tier, and is not there", {"keys": keys_text(absent)}
            raise Finding("hit-written", sentence, call=context, values=values)
        self._judge_given(copied.keys, dict(zip(copied.keys, copied.slots, strict=True)), context)
        owner = self.explained.new_owner()
        one = Transfer(stored.number, stored.request, True, owner, list(copied.keys), list(copied.slots))
        one.until = self._until()
        self.explained.begin(one, context)
        self.transfers[one.number] = one
        self.coverage["copied to a lower tier"] += 1

    @enabled_when()
    def op_clear(self) -> bool:
        """Every entry goes. Transfers under way are fenced, and the store is never informed of them."""
        context = "clear()"
        self.call("total-calls", "clear")
        self.coverage["cleared with a transfer under way"] += bool(self.transfers)
        for one in [one for one in self.transfers.values() if not one.has_lapsed]:
            if not one.has_landed:
                one.failed = () if one.is_load else tuple(range(len(one.keys)))
                self.explained.land(one, context)
            self.explained.end(one, context)
        self.transfers.clear()
        self.memory.clear()
        self.used.clear()
        self.explained.drop_all(context)
        self._settle(context)
        return True

    @enabled_when()
    def op_wait(self, seconds: int) -> bool:
        """Time passes, and leases may end."""
        context = f"advance({seconds})"
        self.call("total-calls", "advance", seconds)
        self.explained.fire("advance", context, seconds)
        now = self.explained.state.clock[0]
        for one in self.transfers.values():
            if NO_END != one.until <= now and not one.has_lapsed:
                self.explained.lapse(one, context)
        self._settle(context)
        return True


def sharpened(finding: Finding, ended: Transfer) -> Finding:
    """The finding after a transfer has ended, under the property that says what its end must do."""
    property = finding.property
    if ended.has_lapsed:
        property = "pin-own"
    elif ended.failed and property in ("frame-kept", "conservation", "no-leak-at-rest"):
        property = "abort-unseen"
    elif ended.is_load and property == "refcount-exact":
        property = "pin-own"
    return finding.of_property(property, about=_described(ended))


def _described(ended: Transfer) -> str:
    """What kind of transfer has ended, for the identity of a finding."""
    kind = f"of a {'load' if ended.is_load else 'store'}{' that failed' if ended.failed else ''}"
    if not ended.has_lapsed:
        return kind
    return f"{kind} whose lease was over{' and whose key another store took over' if ended.is_taken_over else ''}"


def _check_staged(staged: Staged) -> None:
    """Raise AdapterError unless these are lists of numbers, with one slot for each key that is stored."""
    _check_slots("begin_store", staged.keys, staged.slots)
    if staged.evicted is not None and not _are_ints(staged.evicted):
        raise AdapterError(f"begin_store must return lists of ints; it returned {staged}")


def _are_ints(numbers: object) -> bool:
    return isinstance(numbers, list) and all(type(number) is int for number in numbers)


def _check_slots(name: str, keys: object, slots: object) -> None:
    """Raise AdapterError unless these are lists of numbers, with one slot for each key."""
    if not (isinstance(keys, list) and isinstance(slots, list) and _are_ints(keys + slots) and len(keys) == len(slots)):
        raise AdapterError(f"{name} must return lists of ints, one slot for each key; it returned {keys}, {slots}")


def _staged_text(keys: Sequence[int], slots: Sequence[int], evicted: Sequence[int]) -> str:
    taken = f"writes {keys_text(keys)} to {_slots_text(slots)}" if keys else "has nothing to write"
    return f"{taken}, evicted {keys_text(evicted)}" if evicted else taken


def _slots_text(slots: Sequence[int]) -> str:
    return f"slot{'s' if len(slots) != 1 else ''} {', '.join(map(str, slots))}" if slots else "no slot"
