"""What the judges of recorded stores have in common: the replayed store, and the rules beside a store that lives long.

The engines report the end of a transfer with its keys, and do not say which call began it, so every key has a transfer
of its own. The bytes of a transfer are taken to move when its end is reported, which is the last moment at which they
can: a slot that was given to another key until then is read with the wrong content.

Memory stays bounded: the number of a key that has no slot is used again for another key.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, cast

from kvproof.check.oracle.store.ending import EndJudge, sharpened
from kvproof.check.oracle.store.looking_up import LoadingJudge, LookUpJudge
from kvproof.check.oracle.store.oracle import StoreOracle
from kvproof.check.oracle.store.rules import TIER, StoreRules
from kvproof.check.oracle.store.storing import StoringJudge
from kvproof.check.oracle.store.transfer import NO_END, Transfer
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Assumption
from kvproof.check.protocol.store import STORE_CALLS, StoreConfig, StoreObservation, StoreSubject
from kvproof.check.recording.format import LMCACHE_L1, Header, RecordedCall
from kvproof.check.recording.replayed_subject import LineJudge, ReplayedAnswers, Unjudged, require_fresh
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
    is_lmcache = header.interface == LMCACHE_L1
    return Capabilities(
        reset=True, loads_any_key=True, lost_hits=0, refusal_slack=slack, leases=is_lmcache, evicts_on_call=is_lmcache
    )


class ReplayedStore(ReplayedAnswers):
    """A store that returns the recorded answers and raises the recorded exceptions.

    name_of: the name that the judge has for a key with a slot.
    """

    assumptions: tuple[Assumption, ...] = ASSUMPTIONS
    names = STORE_CALLS.all

    def __init__(self, header: Header, name_of: Callable[[int, int], int]) -> None:
        super().__init__()
        self.name, self.capabilities = header.manager, capabilities_of(header)
        self._num_free, self._free_ids = header.free[0], header.free_ids
        self._entries: list[tuple[int, int, int]] = []
        self._counts_loads = header.interface != LMCACHE_L1
        self._name_of = name_of

    def play(self, line: RecordedCall) -> None:
        """Take over the state of the store after this line."""
        self.raised = line.raised
        self._num_free, self._free_ids, self._entries = line.free[0], line.free_ids, line.entries or []

    def open(self, config: StoreConfig) -> None:
        """Do nothing: the recorded store is open already."""

    def observe(self) -> StoreObservation:
        """The state of the store after the current line."""
        entries = {self._name_of(key, slot): slot for key, slot, _ in self._entries}
        refs = {key: number for key, _, number in self._entries} if self._counts_loads else None
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


class RecordedStore(StoreOracle):
    """A recorded store, what is expected of it, and the specification beside it. context: the call of the line."""

    def __init__(self, subject: ReplayedStore, config: StoreConfig) -> None:
        self.context = "open"
        super().__init__(cast(StoreSubject, subject), config, RecordedRules)

    def settle(self, context: str) -> None:
        """The state is compared at the end of the line."""
        self.context = context

    def end_line(self) -> None:
        """The line is explained: the store must show what the specification has."""
        super().settle(self.context)

    def use(self, request: int, keys: Sequence[int]) -> None:
        """What a request used is not needed."""

    def fits(self, keys: Sequence[int]) -> bool:
        """Whether the specification has room. Raises Unjudged if it has none."""
        if not self.explained.has_room(keys):
            raise Unjudged("more loads of one key are under way at a time than can be judged")
        return True

    def until(self, *, is_load: bool) -> int:
        """Leases of a recording end by the times of its lines, and not by the clock of the specification."""
        return NO_END


class StoreLines(LineJudge):
    """Judges a recording of a store. Subclasses have the calls of an engine."""

    def __init__(self, header: Header) -> None:
        require_fresh(header)
        self.replayed = ReplayedStore(header, self.name_of)
        self.new_numbers = count(1)
        self.ended: Transfer | None = None  # by the line
        self.store = store = RecordedStore(self.replayed, StoreConfig(num_gpu_blocks=header.num_gpu_blocks))
        store.is_sparse = not header.shows_pool
        self.explained, self.transfers = store.explained, store.transfers
        self.coverage, self.notes, self.call = store.coverage, store.notes, store.call
        self.look_ups, self.storing, self.loading = LookUpJudge(store), StoringJudge(store), LoadingJudge(store)
        self.ends = EndJudge(store, self.storing)

    def name_of(self, key: int, slot: int) -> int:
        """The name that the judge has for a key with a slot: the key."""
        return key

    def explain_call(self, line: RecordedCall, handler: Callable[[RecordedCall], None]) -> None:
        self.replayed.play(line)
        self.store.context, self.ended = line.call, None
        handler(line)
        try:
            self.store.end_line()
        except Finding as finding:
            raise finding if self.ended is None else sharpened(finding, self.ended) from None

    def num_blocks(self) -> Iterator[tuple[str, str, int]]:
        counts = self.explained.state.count[TIER]
        return ((POOL, name, counts[state]) for state, name in STATES.items())

    def end(self, one: Transfer, has_failed: bool) -> None:
        """The end of a transfer is reported. Its bytes have moved, if it has not failed."""
        self.replayed.answer = None
        self.ends.op_land(one.number, (0,) if has_failed else ())
        self.ended = one
        self.ends.op_report(one.number)
