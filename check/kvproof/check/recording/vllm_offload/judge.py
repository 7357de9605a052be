"""The meaning of the calls of vLLM's offloading manager, judged by the judge of stores.

A transfer of many keys is judged as one transfer for each key: the engine reports its end with its keys, and does not
say which call began it. The bytes of a transfer are taken to move when its end is reported, which is the last moment
at which they can: a slot that was given to another key until then is read with the wrong content.

Memory stays bounded: the number of a key that has no slot is used again for another key.
"""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, ClassVar, cast

from kvproof.check.oracle.store.judge import StoreJudge, sharpened
from kvproof.check.oracle.store.rules import TIER, StoreRules, Transfer
from kvproof.check.protocol.adapter_check import check_answer
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Assumption, Capabilities, Refused
from kvproof.check.protocol.store import STORE_CALLS, Staged, StoreConfig, StoreObservation, StoreSubject
from kvproof.check.recording.format import Header, RecordedCall
from kvproof.check.recording.line_judge import LineJudge, require_fresh
from kvproof.check.recording.replayed_subject import ReplayedAnswers, Unjudged
from kvproof.spec.store.state import EVICTABLE, FREE, HELD, NONE, RESERVED

POOL = "store"
STATES = {FREE: "free", RESERVED: "reserved", HELD: "used", EVICTABLE: "evictable"}
ASSUMPTIONS: tuple[Assumption, ...] = (
    Assumption("recorded-whole", "The recording contains every call of the manager, from the first one on."),
    Assumption("moves-before-its-end", "The bytes of a transfer have moved when its end is reported, and not after."),
    Assumption("fences-resets", "When the cache is reset, transfers under way end before another one begins."),
)
NOT_RECORDED = "a recording does not say when the bytes of a transfer move"


def capabilities_of(header: Header) -> Capabilities:
    """What the recorded store declares."""
    slack = 0 if header.refuses_exactly else None
    return Capabilities(reset=True, loads_any_key=True, lost_hits=0, refusal_slack=slack)


class ReplayedStore(ReplayedAnswers):
    """A store that returns the recorded answers and raises the recorded exceptions."""

    assumptions: tuple[Assumption, ...] = ASSUMPTIONS
    names = STORE_CALLS.all

    def __init__(self, header: Header) -> None:
        super().__init__()
        self.name, self.capabilities = header.manager, capabilities_of(header)
        self._num_free, self._free_ids = header.free[0], header.free_ids
        self._entries: list[tuple[int, int, int]] = []

    def play(self, line: RecordedCall) -> None:
        """Take over the state of the store after this line."""
        self.raised = line.raised
        self._num_free, self._free_ids, self._entries = line.free[0], line.free_ids, line.entries or []

    def open(self, config: StoreConfig) -> None:
        """Do nothing: the recorded store is open already."""

    def observe(self) -> StoreObservation:
        """The state of the store after the current line."""
        entries = {key: slot for key, slot, _ in self._entries}
        refs = {key: number for key, _, number in self._entries}
        return StoreObservation(entries, self._num_free, refs, self._free_ids)

    def observe_part(self) -> StoreObservation:
        """The number of free slots after the current line."""
        return StoreObservation({}, self._num_free)


class RecordedRules(StoreRules):
    """The state of the specification, for a store that lives long: with one owner, and with numbers used again."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._spare: list[int] = []  # numbers of keys that may be used again

    def new_owner(self, owner: int | None = None) -> int:
        """One owner has all transfers: their number is not bounded."""
        return super().new_owner(self.free_owners[-1] if owner is None else owner)

    def _give_back(self, transfer: Transfer) -> None:
        self.free_pins += transfer.pins
        self.free_flights += transfer.flights

    def has_room(self, keys: Sequence[int]) -> bool:
        """Whether the state has room for one pin and one flight for each of these keys, twice."""
        return len(self.free_pins) >= 2 * len(keys)

    def number_of(self, key: int) -> int:
        """The number of a key. If there is no new one, the keys without a slot are forgotten."""
        if key in self.numbers or len(self.keys) < self.num_keys_max:
            return super().number_of(key)
        if not self._spare:
            entry = self.state.entry[TIER]
            unused = [(old, number) for old, number in self.numbers.items() if entry[number] == NONE]
            for old, number in unused:
                del self.numbers[old]
                self._spare.append(number)
        number = self.numbers[key] = self._spare.pop()
        self.keys[number] = key
        return number


class OffloadJudge(LineJudge, StoreJudge):
    """Judges a recording of an offloading manager."""

    explaining: ClassVar[type[StoreRules]] = RecordedRules

    def __init__(self, header: Header) -> None:
        require_fresh(header)
        self.replayed = ReplayedStore(header)
        self._numbers = count(1)
        self._requests: dict[str, int] = {"": 0}
        self._by_key: dict[tuple[bool, int], list[Transfer]] = {}
        self._ended: Transfer | None = None
        self._context = "open"
        super().__init__(cast(StoreSubject, self.replayed), StoreConfig(num_gpu_blocks=header.num_gpu_blocks))
        self.is_sparse = not header.shows_pool

    def explain_call(self, line: RecordedCall, handler: Any) -> None:
        self.replayed.play(line)
        self._context, self._ended = line.call, None
        handler(line)
        try:
            super()._settle(self._context)
        except Finding as finding:
            raise finding if self._ended is None else sharpened(finding, self._ended) from None

    def _settle(self, context: str) -> None:
        """The state is compared at the end of the line."""
        self._context = context

    def _use(self, request: int, keys: Sequence[int]) -> None:
        """What a request used is not needed."""

    def _fits(self, keys: Sequence[int]) -> bool:
        if not self.explained.has_room(keys):
            raise Unjudged("more loads of one key are under way at a time than can be judged")
        return True

    def num_blocks(self) -> Iterator[tuple[str, str, int]]:
        counts = self.explained.state.count[TIER]
        return ((POOL, name, counts[state]) for state, name in STATES.items())

    def _request(self, line: RecordedCall) -> int:
        return self._requests.setdefault(line.group, len(self._requests))

    # Calls ----------------------------------------------------------------------------------------------------------

    def on_lookup(self, line: RecordedCall) -> None:
        """Judge a look-up: a hit is there, and what is there is a hit."""
        self.replayed.answer = line.found
        self.op_look_up(self._request(line), line.keys)

    def on_touch(self, line: RecordedCall) -> None:
        """Judge a use, which changes at most the order of eviction."""
        self.replayed.answer = None
        self.op_touch(self._request(line), line.keys)

    def on_prepare_load(self, line: RecordedCall) -> None:
        """Judge a load that begins: every key is there, in the slot of the answer."""
        if line.raised and not all(map(self.explained.has, line.keys)):
            raise Unjudged("the program loads a key that no look-up finds, which the engine does not allow")
        self.replayed.answer = line.slots
        number = next(self._numbers)
        self.op_begin_load(number, self._request(line), line.keys)
        self._split(number)

    def on_prepare_store(self, line: RecordedCall) -> None:
        """Judge a store that begins: which keys it takes, which slots they get, and what it evicted."""
        self.replayed.answer = Staged(line.taken, line.slots, line.evicted) if line.answer else Refused()
        number = next(self._numbers)
        self.op_begin_store(number, self._request(line), line.keys)
        self._split(number)

    def _split(self, number: int) -> None:
        """Make one transfer for each key of this one, if it began."""
        whole = self.transfers.pop(number, None)
        if whole is None:
            return
        for key, slot, pin, flight in zip(whole.keys, whole.slots, whole.pins, whole.flights, strict=True):
            one = Transfer(
                next(self._numbers), whole.request, whole.is_load, whole.owner, [key], [slot], [pin], [flight]
            )
            self.transfers[one.number] = one
            self._by_key.setdefault((one.is_load, key), []).append(one)

    def on_complete_load(self, line: RecordedCall) -> None:
        """Judge the end of a load: it read the content of its keys."""
        self._end(line, True, False)

    def on_complete_store(self, line: RecordedCall) -> None:
        """Judge the end of a store: its keys can be found, or nothing is left of them."""
        check_answer("complete_store", line.answer, bool)
        self._end(line, False, not line.answer)

    def _end(self, line: RecordedCall, is_load: bool, has_failed: bool) -> None:
        self.replayed.answer = None
        for key in line.keys:
            begun = self._by_key.get((is_load, key), [])
            request = self._request(line)
            one = next((one for one in begun if one.request == request), begun[0] if begun else None)
            if one is None:
                raise Unjudged(f"the program ends a transfer of key {key}, which no earlier line began")
            begun.remove(one)
            if not begun:
                del self._by_key[is_load, key]
            self.op_land(one.number, (0,) if has_failed else ())
            self._ended = one
            self.op_report(one.number)

    def on_on_request_finished(self, line: RecordedCall) -> None:
        """Judge the end of a request, which changes nothing; its transfers go on."""
        self.replayed.answer = None
        self.call("total-calls", "finish", self._requests.pop(line.group, 0) if line.group else 0)

    def on_reset_cache(self, line: RecordedCall) -> None:
        """Judge a reset: nothing is left."""
        self.replayed.answer = None
        self._by_key.clear()
        self.op_clear()
