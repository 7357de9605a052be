"""Operations by which a store takes keys and loses them: a store begins, and keys are evicted."""

from collections.abc import Sequence

from kvproof.check.oracle.enabled import enabled_when
from kvproof.check.oracle.store.oracle import StoreOracle, are_ints, check_slots, slots_text
from kvproof.check.oracle.store.transfer import Transfer
from kvproof.check.protocol.adapter_check import check_answer
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import Refused
from kvproof.check.protocol.store import NO_SLOT, Asked, Staged, keys_text


class StoringJudge:
    """Does the operations begin_store and evict."""

    def __init__(self, store: StoreOracle) -> None:
        self.store, self.explained, self.transfers = store, store.explained, store.transfers
        self.capabilities, self.coverage, self.call = store.capabilities, store.coverage, store.call

    @enabled_when()
    def op_begin_store(self, transfer: int, request: int, keys: Sequence[int]) -> bool:
        """The store takes those keys that it does not have, evicts others for them, or refuses."""
        if transfer in self.transfers or not self.store.fits(keys):
            return False
        explained = self.explained
        context = f"begin_store({keys_text(keys)})"
        staged = self.call("total-calls", "begin_store", transfer, request, list(keys))
        answers = (Staged, Refused, Asked) if self.capabilities.asks_first else (Staged, Refused)
        check_answer("begin_store", staged, *answers)
        if isinstance(staged, Refused):
            self.store.name(request, keys)
            self._refused(keys, [key for key in keys if explained.slot_of(key) == NO_SLOT], context)
            return True
        self.store.use(request, keys)
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
        self.store.reply.text = f"asks for {keys_text(asked.keys)}" if asked.keys else "has nothing to ask for"
        if asked.keys:
            one = Transfer(transfer, request, False, self.explained.new_owner(), list(asked.keys), [], is_asking=True)
            one.named += keys
            self.transfers[transfer] = one
        self.store.settle(context)

    def answered(self, one: Transfer, failed: Sequence[int]) -> bool:
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
        self.store.recency.perhaps_used([*one.keys, *one.named])
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
        self.store.reply.text = _staged_text(staged.keys, staged.slots, evicted)
        victims = [key for key in evicted if key not in explained.lapsed.values()]
        for key in victims:
            if explained.slot_of(key) == NO_SLOT:
                sentence = f"the store says that it evicted key {key}, which has no slot"
                raise Finding("lists-agree", sentence, call=context)
            explained.evict(key, context)
        self.store.judge_victims(victims, context)
        self.coverage["a key of the call is there, and another is evicted"] += bool(held and evicted)
        self._judge_staged(keys, new, staged, context)
        if staged.keys:
            owner = explained.new_owner()
            one = Transfer(transfer, request, False, owner, list(staged.keys), list(staged.slots))
            one.until, one.from_device = self.store.until(is_load=False), staged.from_device
            self.coverage["copies from the device"] += one.from_device
            explained.begin(one, context)
            self.transfers[transfer] = one
            self.store.recency.used(staged.keys)
        explained.let_go(held, context)
        self.store.settle(context)

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
        self.store.observe()
        return [key for key in self.explained.entries() if key not in self.store.observed.entries]

    def _refused(self, keys: Sequence[int], new: list[int], context: str) -> None:
        """The store refused: it may if the free and evictable slots that the call does not name are too few."""
        self.store.reply.text = "refused"
        self.coverage["refused"] += 1
        self.store.require_unchanged(context)
        held = self.explained.hold(keys, context)
        unused = self._num_unused()
        self.explained.let_go(held, context)
        if len(new) > unused - len(self.explained.lapsed):
            return
        if self.capabilities.refusal_slack is None:
            self.store.notes["refusal-needed"] += 1
            return
        sentence = "$observed slots are needed, $expected are free or can be evicted, and the store refused"
        raise Finding("refusal-needed", sentence, call=context, expected=unused, observed=len(new))

    def _num_unused(self) -> int:
        return self.explained.num_unused(evicts_on_call=self.capabilities.evicts_on_call)

    @enabled_when()
    def op_evict(self, keys: Sequence[int]) -> bool:
        """The store evicts those of the keys that nobody holds."""
        if not self.store.fits(keys):
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
            elif explained.has(key) and not self.is_held(key):
                sentence = f"nobody holds key {key}, and the store does not evict it"
                raise Finding("refusal-needed", sentence, call=context)
        self.store.reply.text = f"evicted {keys_text(evicted)}" if evicted else "evicted nothing"
        self.store.settle(context)
        return True

    def is_held(self, key: int) -> bool:
        """Whether a load holds a key, or held it until its lease was over and has not ended."""
        return any(one.is_load and key in one.keys for one in self.transfers.values())


def _check_staged(staged: Staged) -> None:
    """Raise AdapterError unless these are lists of numbers, with one slot for each key that is stored."""
    check_slots("begin_store", staged.keys, staged.slots)
    if staged.evicted is not None and not are_ints(staged.evicted):
        raise AdapterError(f"begin_store must return lists of ints; it returned {staged}")


def _staged_text(keys: Sequence[int], slots: Sequence[int], evicted: Sequence[int]) -> str:
    taken = f"writes {keys_text(keys)} to {slots_text(slots)}" if keys else "has nothing to write"
    return f"{taken}, evicted {keys_text(evicted)}" if evicted else taken
