"""Operations by which a store is read: keys are looked up and used, a load begins, and a request is over."""

from collections.abc import Sequence

from kvproof.check.oracle.enabled import enabled_when
from kvproof.check.oracle.store.oracle import StoreOracle, slots_text
from kvproof.check.oracle.store.transfer import Transfer
from kvproof.check.protocol.adapter_check import check_answer
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import Refused
from kvproof.check.protocol.store import ANSWERS, HIT, NO_SLOT, keys_text


class LookUpJudge:
    """Does the operations look_up, touch and finish."""

    def __init__(self, store: StoreOracle) -> None:
        self.store, self.explained, self.transfers = store, store.explained, store.transfers
        self.capabilities, self.coverage, self.call = store.capabilities, store.coverage, store.call

    @enabled_when()
    def op_look_up(self, request: int, keys: Sequence[int]) -> bool:
        """The store says of each key whether it has it."""
        if not self.store.fits(keys):
            return False
        context = f"look_up({keys_text(keys)})"
        answers = self.call("total-calls", "look_up", request, list(keys))
        check_answer("look_up", answers, list)
        if len(answers) != len(keys) or not set(answers) <= set(ANSWERS):
            raise AdapterError(f"look_up must answer one of {', '.join(ANSWERS)} for each key; it answered {answers}")
        self.store.reply.text = ", ".join(f"key {key} {answer}" for key, answer in zip(keys, answers, strict=True))
        for key, answer in zip(keys, answers, strict=True):
            if answer == HIT:
                self.explained.promise(key, context)
                self.coverage["hit"] += 1
            elif self.explained.has(key):
                self.store.judge_miss(key, answer, context)
            else:
                self.coverage["miss of a staged key"] += self.explained.slot_of(key) != NO_SLOT
        self.store.use(request, keys)
        self.store.settle(context)
        return True

    @enabled_when()
    def op_touch(self, request: int, keys: Sequence[int]) -> bool:
        """The request uses keys; at most the order of eviction changes."""
        if not self.store.fits(keys):
            return False
        self.call("total-calls", "touch", request, list(keys))
        self.store.use(request, keys)
        self.store.recency.used([key for key in keys if self.explained.is_evictable(key)])
        self.store.settle(f"touch({keys_text(keys)})")
        return True

    @enabled_when(about=lambda judge: judge.store.requests)
    def op_finish(self, request: int) -> bool:
        """The request is over; its transfers go on."""
        self.call("total-calls", "finish", request)
        del self.store.requests[request]
        named = self.store.named.pop(request)
        self.store.recency.perhaps_used(named)
        for one in self.transfers.values():
            one.named += named if one.request == request else []
        self.coverage["finished with a transfer under way"] += any(
            one.request == request for one in self.transfers.values()
        )
        self.store.settle(f"finish({request})")
        return True


class LoadingJudge:
    """Does the operation begin_load."""

    def __init__(self, store: StoreOracle) -> None:
        self.store, self.explained, self.transfers = store, store.explained, store.transfers
        self.capabilities, self.coverage, self.call = store.capabilities, store.coverage, store.call

    @enabled_when()
    def op_begin_load(self, transfer: int, request: int, keys: Sequence[int]) -> bool:
        """The store holds the keys, and says where they are."""
        is_there = self.capabilities.loads_any_key or all(map(self.explained.has, keys))
        if transfer in self.transfers or not is_there or not self.store.fits(keys):
            return False
        context = f"begin_load({keys_text(keys)})"
        slots = self.call("total-calls", "begin_load", transfer, request, list(keys))
        check_answer("begin_load", slots, list, Refused)
        if isinstance(slots, Refused):
            self.store.reply.text = "refused"
            self.store.name(request, keys)
            self.store.require_unchanged(context)
            if not self.capabilities.loads_any_key:
                raise Finding("promise-kept", "was refused, and every key is there", call=context)
            return True
        if len(slots) != len(keys) or any(type(slot) is not int for slot in slots):
            raise AdapterError(f"begin_load must return one slot for each of {len(keys)} keys; it returned {slots}")
        given = {key: slot for key, slot in zip(keys, slots, strict=True) if slot != NO_SLOT}
        self.store.reply.text = slots_text(list(given.values()))
        self.store.judge_given(keys, given, context)
        if given:
            owner = self.explained.new_owner()
            one = Transfer(transfer, request, True, owner, list(given), list(given.values()))
            self.coverage["two loads of a key"] += any(
                other.is_load and set(other.keys) & set(one.keys) for other in self.transfers.values()
            )
            one.until, one.is_remote = self.store.until(is_load=True), self.capabilities.remote_loads
            self.explained.begin(one, context)
            if self.capabilities.parts:
                self.explained.fire("await_parts", context, owner, self.explained.num_parts)
            self.transfers[transfer] = one
        self.store.use(request, keys)
        self.store.settle(context)
        return True
