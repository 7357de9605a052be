"""Operations by which transfers end: their bytes move, the store learns of it, everything is cleared, leases end."""

from collections.abc import Sequence

from kvproof.check.oracle.enabled import enabled_when
from kvproof.check.oracle.store.oracle import StoreOracle, check_slots
from kvproof.check.oracle.store.storing import StoringJudge
from kvproof.check.oracle.store.transfer import NO_END, Transfer
from kvproof.check.protocol.adapter_check import check_answer
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.store import Copied, keys_text


class EndJudge:
    """Does the operations land, report, clear and wait."""

    def __init__(self, store: StoreOracle, storing: StoringJudge) -> None:
        self.store, self.explained, self.transfers = store, store.explained, store.transfers
        self.capabilities, self.coverage, self.call = store.capabilities, store.coverage, store.call
        self.storing = storing

    @enabled_when(about=lambda judge: judge.store.moving())
    def op_land(self, transfer: int, failed: Sequence[int] = ()) -> bool:
        """The bytes move. The store is not informed."""
        one = self.transfers[transfer]
        if one.is_asking:
            return self.storing.answered(one, failed)
        cannot_fail = one.is_load or one.from_device or self.capabilities.never_fails
        one.failed = () if cannot_fail else tuple(place for place in failed if 0 <= place < len(one.keys))
        if one.failed and (self.capabilities.paths or self.capabilities.fails_whole):
            first = 0 if self.capabilities.fails_whole else min(one.failed)
            one.failed = tuple(range(first, len(one.keys)))
        context = f"land({transfer})"
        for place, (key, slot) in enumerate(zip(one.keys, one.slots, strict=True)):
            there = self.store.memory.get(slot)
            if one.is_load and there != key and not one.is_void:
                sentence = f"slot {slot} is read for key $expected, and has the content of key $observed"
                raise Finding("arrived-whole", sentence, call=context, expected=key, observed=there, blocks=[slot])
            if not one.is_load and place not in one.failed:
                self.store.memory[slot] = key
            elif not one.is_load:
                self.store.memory.pop(slot, None)
        self.explained.land(one, context)
        one.has_landed = True
        return True

    @enabled_when(about=lambda judge: judge.store.landed())
    def op_report(self, transfer: int) -> bool:
        """The store learns that a transfer has landed."""
        one = self.transfers[transfer]
        self.coverage["reported before an older one"] += next(iter(self.transfers)) != transfer
        copied, stored = None, list[int]()
        if one.is_load:
            context = f"end_load({keys_text(one.keys)})"
            self._load_ended(one, self.call("total-calls", "end_load", transfer, one.request, list(one.keys)), context)
        else:
            stored = [key for place, key in enumerate(one.keys) if place not in one.failed]
            lost = [key for place, key in enumerate(one.keys) if place in one.failed]
            context = f"end_store(stored {stored}, failed {lost})"
            copied = self.call("total-calls", "end_store", transfer, one.request, stored, lost)
            check_answer("end_store", copied, Copied, type(None))
            self._ended(one, context)
        del self.transfers[transfer]
        self.store.recency.perhaps_used([*one.keys, *one.named])
        if self.capabilities.copies_all and one.from_device:
            self._judge_all_copied(stored, [] if copied is None else copied.keys, context)
        if copied is not None and copied.keys:
            self._copied(one, copied, context)
        try:
            self.store.settle(context)
        except Finding as finding:
            raise sharpened(finding, one) from None
        return True

    def _ended(self, one: Transfer, context: str) -> None:
        """The store was informed of the end of a transfer."""
        if not self._ended_after_its_lease(one):
            self.explained.end(one, context)

    def _ended_after_its_lease(self, one: Transfer) -> bool:
        """Whether the lease of a transfer that is over had ended before, and took its pins."""
        if one.has_lapsed:
            self.coverage["ended after its lease"] += 1
            self.explained.end_lapsed(one)
        return one.has_lapsed

    def _load_ended(self, one: Transfer, answer: object, context: str) -> None:
        """The store was informed of the end of a load, and says of one from far away whether what it brought counts."""
        if not one.is_remote:
            self._ended(one, context)
            return
        check_answer(context.partition("(")[0], answer, bool)
        self.store.reply.text = "counts" if answer else "does not count"
        self.coverage["lost its source"] += one.is_void
        if not self._ended_after_its_lease(one) and not answer:
            sentence = "the lease of the load is in force, and the store says that what it brought does not count"
            raise Finding("pin-own", sentence, call=context)
        self.explained.end_sent(one, context, counts=bool(answer))

    @enabled_when(about=lambda judge: judge.store.done())
    def op_notice(self, transfer: int, part: int) -> bool:
        """A reader of a load says that it is done. What is said twice, or too late, changes nothing."""
        if not 0 <= part < self.explained.num_parts:
            return False
        one, context = self.transfers.get(transfer), f"notice(transfer {transfer}, part {part})"
        answer = self.call("total-calls", "notice", transfer, part)
        state = self.explained.state
        if one is None or state.noticed[one.owner][part]:
            self.coverage["noticed again"] += 1
            self.store.reply.text = "noticed before"
        else:
            self.explained.fire("notice", context, one.owner, part)
            if all(state.noticed[one.owner][: self.explained.num_parts]):
                self._load_ended(one, answer, context)
                del self.transfers[transfer]
                self.store.over.append(transfer)
                self.store.recency.perhaps_used([*one.keys, *one.named])
        try:
            self.store.settle(context)
        except Finding as finding:
            is_of_pin = finding.property in ("refcount-exact", "frame-kept", "conservation", "no-leak-at-rest")
            raise (finding.of_property("pin-own", about="of a part") if is_of_pin else finding) from None
        return True

    def _judge_all_copied(self, stored: Sequence[int], copied: Sequence[int], context: str) -> None:
        """Nothing of what was written is left out of the copy to the lower tier, where the store declares it."""
        left_out = [key for key in stored if self.explained.has(key) and key not in copied]
        if left_out:
            sentence, values = "$keys was written, and is not copied to the lower tier", {"keys": keys_text(left_out)}
            raise Finding("tiers-agree", sentence, call=context, values=values)

    def _copied(self, stored: Transfer, copied: Copied, context: str) -> None:
        """What was stored is copied to a lower tier: a load with the number of its store."""
        check_slots("end_store", copied.keys, copied.slots)
        if absent := [key for key in copied.keys if not self.explained.has(key)]:
            sentence, values = "$keys is copied to a lower tier, and is not there", {"keys": keys_text(absent)}
            raise Finding("hit-written", sentence, call=context, values=values)
        self.store.judge_given(copied.keys, dict(zip(copied.keys, copied.slots, strict=True)), context)
        owner = self.explained.new_owner()
        one = Transfer(stored.number, stored.request, True, owner, list(copied.keys), list(copied.slots))
        one.until = self.store.until(is_load=True)
        self.explained.begin(one, context)
        self.transfers[one.number] = one
        self.coverage["copied to a lower tier"] += 1

    @enabled_when()
    def op_clear(self) -> bool:
        """Every entry goes. Transfers under way are fenced, and the store is never informed of them."""
        context = "clear()"
        self.call("total-calls", "clear")
        self.coverage["cleared with a transfer under way"] += bool(self.transfers)
        for one in [one for one in self.transfers.values() if not one.is_stopped]:
            if not one.has_landed:
                one.failed = () if one.is_load and not one.is_remote else tuple(range(len(one.keys)))
                self.explained.land(one, context)
            if one.is_remote or self.store.is_awaited(one):
                self.explained.withdraw(one, context)
            else:
                self.explained.end(one, context)
        self.transfers.clear()
        self.store.over.clear()
        self.store.memory.clear()
        self.store.recency.forget(list(self.store.recency.perhaps))
        self.explained.drop_all(context)
        self.store.settle(context)
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
                self.store.recency.perhaps_used(one.keys)
        try:
            self.store.settle(context)
        except Finding as finding:
            raise (finding.of_property("lease-ends") if self.capabilities.ends_leases else finding) from None
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
