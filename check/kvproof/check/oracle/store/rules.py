"""The state of the specification of stores beside one opened store, and the rules that run on it.

Keys, pins, flights and owners of the specification are numbers from 0 on. Each key of the run gets the next number;
pins and flights are taken from a list, and go back when they end. A guard that refuses a rule is the finding.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from kvproof.check.oracle.store.firing import RunningText
from kvproof.check.oracle.store.transfer import NO_END, Transfer
from kvproof.check.protocol.capabilities import StoreCan
from kvproof.check.protocol.finding import Finding, direction
from kvproof.check.protocol.operations import count
from kvproof.check.protocol.store import NO_SLOT, StoreConfig, StoreObservation
from kvproof.spec.compilation import Guard
from kvproof.spec.store.machine import StoreSizes
from kvproof.spec.store.state import EVICTABLE, NONE

TIER, GROUP = 0, 0  # the tier below the device, and its only group of layers
NUM_SMALLEST = 16  # slots: the state of a smaller store has room for so many, so that few sizes are compiled
KEYS_PER_SLOT, PINS_PER_SLOT, NUM_OWNERS = 5, 3, 24
PLAIN = StoreCan()
READERS_PER_SLOT = 8  # blocks of readers far away, where a store has such
CALL = 0  # the owner of what one call holds while it is explained


class StoreRules(RunningText):
    """The state of the specification for one opened store."""

    def __init__(self, config: StoreConfig, coverage: Counter[str], can: StoreCan = PLAIN) -> None:
        has_readers, self.ends_leases = can.remote_loads, can.ends_leases
        self.num_slots, self.num_parts = config.num_slots, config.num_parts
        num_slots = max(NUM_SMALLEST, 1 << (self.num_slots - 1).bit_length())
        self.num_keys_max, num_pins = KEYS_PER_SLOT * num_slots, PINS_PER_SLOT * num_slots
        sizes = StoreSizes(
            num_blocks=num_slots + (READERS_PER_SLOT * num_slots if has_readers else 0),
            num_tiers=1 + (NUM_OWNERS if has_readers else 0),
            num_keys=self.num_keys_max,
            num_groups=1,
            num_pins=num_pins,
            num_owners=NUM_OWNERS,
            num_flights=num_pins,
            num_parts=config.num_parts,
            block_size=1,
        )
        super().__init__(sizes, coverage)
        self.is_resident = self.machine.function("is_resident")
        self.is_staged = self.machine.function("is_staged")
        self.unused_in = self.machine.function("unused_in")
        self.free_pins, self.free_flights = list(range(num_pins - 1, -1, -1)), list(range(num_pins - 1, -1, -1))
        self.free_owners = list(range(NUM_OWNERS - 1, CALL, -1))
        self.numbers: dict[int, int] = {}  # of keys
        self.lapsed: dict[int, int] = {}  # slots of stores whose lease is over, which the store may keep; their keys
        self.taken_over: set[int] = set()  # keys of such stores that another store writes
        self.lapsed_loads: Counter[int] = Counter()  # loads of a key whose lease is over, which the store may count
        self.keys: list[int] = []  # by number
        self.new_blocks = list(range(sizes.num_blocks - 1, self.num_slots - 1, -1))  # of no reader yet
        self.blocks_of_readers: dict[int, list[int]] = {}  # those that are free, by the tier of the reader
        for slot in range(self.num_slots):
            self.fire("grow", "open", slot, TIER)
        self.new_owner(CALL)

    def refused(self, guard: Guard, name: str, arguments: tuple[Any, ...], context: str) -> Finding:
        """The finding, with what the specification says of the slot or key that the rule is about."""
        about, blocks = "", list[int]()
        if name in ("begin_store", "evict"):
            blocks = [arguments[2] if name == "begin_store" else arguments[0]]
            about = f"; {self.described(blocks[0])}"
        elif name in ("promise", "begin_load"):
            about = f"; key {self.keys[arguments[3]]} is {self.status_of(arguments[3])}"
        sentence = f"it must be that {guard.sentence}{about}"
        return Finding(guard.property, sentence, call=context, blocks=blocks, rule=name)

    def new_owner(self, owner: int | None = None) -> int:
        """An owner for what comes: one that has nothing, unless it is named. It begins at its first use."""
        owner = self.free_owners.pop() if owner is None else owner
        if not self.state.live[owner]:
            self.fire("begin_owner", "open", owner)
        return owner

    # Keys and slots ------------------------------------------------------------------------------------------------

    def has_room(self, keys: Sequence[int]) -> bool:
        """Whether the state has room for these keys, and for one pin and one flight for each of them, twice."""
        new = sum(key not in self.numbers for key in keys)
        is_roomy = len(self.free_pins) >= 2 * len(keys) and bool(self.free_owners)
        return is_roomy and len(self.keys) + new <= self.num_keys_max and self.has_room_for_readers(len(keys))

    def has_room_for_readers(self, number: int) -> bool:
        """Whether there are so many blocks more for what a load brings, if it has a reader far away."""
        return len(self.state.entry) == 1 or len(self.new_blocks) >= number

    def number_of(self, key: int) -> int:
        """The number of a key in the specification, which is introduced at its first use."""
        number = self.numbers.get(key)
        if number is None:
            number = self.numbers[key] = len(self.keys)
            self.keys.append(key)
            self.fire("introduce", "open", number, GROUP, [number], 1)
        return number

    def slot_of(self, key: int) -> int:
        """The slot of a key, staged or resident; NO_SLOT if it has none."""
        number = self.numbers.get(key)
        slot: int = NO_SLOT if number is None else self.state.entry[TIER][number]
        return NO_SLOT if slot == NONE else slot

    def has(self, key: int) -> bool:
        """Whether a key is resident."""
        return key in self.numbers and bool(self.is_resident(self.state, TIER, self.numbers[key]))

    def is_evictable(self, key: int) -> bool:
        """Whether a key is resident, and nobody holds it, nor a load whose lease is over, which the store may count."""
        is_unheld = self.has(key) and bool(self.state.status[self.slot_of(key)] == EVICTABLE)
        return is_unheld and not self.lapsed_loads[key]

    def resident(self) -> list[int]:
        """The keys that are resident."""
        return [key for key, number in self.numbers.items() if self.is_resident(self.state, TIER, number)]

    def entries(self) -> dict[int, int]:
        """Every key with a slot, and the slot."""
        entry = self.state.entry[TIER]
        return {key: entry[number] for key, number in self.numbers.items() if entry[number] != NONE}

    def leases(self) -> list[int]:
        """For how long each lease is in force, in the order of the pins."""
        state = self.state
        return [until - state.clock[0] for kind, until in zip(state.kind, state.until, strict=True) if kind != NONE]

    def num_unused(self, *, evicts_on_call: bool) -> int:
        """How many slots are free, or can be evicted now; in a store that evicts on call, how many are free."""
        return self.num_slots - self.num_used() if evicts_on_call else int(self.unused_in(self.state, TIER))

    def status_of(self, number: int) -> str:
        """Whether a key is resident, being written or absent, as text."""
        if self.is_resident(self.state, TIER, number):
            return "resident"
        return "still being written" if self.is_staged(self.state, TIER, number) else "not there"

    def described(self, slot: int) -> str:
        """The state of a slot, as text."""
        if not 0 <= slot < self.num_slots:
            return f"slot {slot} is none of {self.num_slots}"
        state, number = self.state, self.state.key[slot]
        if number == NONE:
            return f"slot {slot} is free"
        key = self.keys[number]
        if state.writer[slot] != NONE:
            return f"slot {slot} is being written for key {key}"
        owners = [self.state.owner[pin] for pin in self._pins_of(slot)]
        if CALL in owners:
            return f"slot {slot} has key {key}, which this very call names"
        return f"slot {slot} has key {key}, held by {count(len(owners), 'load')}"

    def _pins_of(self, slot: int) -> list[int]:
        state = self.state
        return [pin for pin, kind in enumerate(state.kind) if kind != NONE and state.pinned[pin] == slot]

    # Programs ------------------------------------------------------------------------------------------------------

    def hold(self, keys: Sequence[int], context: str) -> list[int]:
        """The call holds those of its keys that are resident; the pins."""
        pins = []
        for key in keys:
            if self.has(key):
                pins.append(self.free_pins.pop())
                self.fire("begin_load", context, pins[-1], CALL, TIER, self.numbers[key], NO_END)
        return pins

    def let_go(self, pins: Sequence[int], context: str) -> None:
        """The call is over: it holds nothing any more."""
        for pin in pins:
            self.fire("end_load", context, pin, CALL)
            self.free_pins.append(pin)

    def promise(self, key: int, context: str) -> None:
        """A look-up answered that the key is there. Nothing comes between this promise and its end."""
        pin = self.free_pins.pop()
        self.fire("promise", context, pin, CALL, TIER, self.number_of(key), NO_END)
        self.let_go([pin], context)

    def evict(self, key: int, context: str) -> None:
        """The store evicted a key that has a slot."""
        slot = self.slot_of(key)
        if self.state.reads[slot] == 0 and any(self.state.reads):
            self.coverage["evict beside a load"] += 1
        self.fire("evict", context, slot)

    def begin(self, transfer: Transfer, context: str) -> None:
        """A transfer of these keys to or from these slots begins."""
        for key, slot in zip(transfer.keys, transfer.slots, strict=True):
            pin, flight, number = self.free_pins.pop(), self.free_flights.pop(), self.number_of(key)
            transfer.pins.append(pin)
            transfer.flights.append(flight)
            if transfer.is_load:
                self.fire("begin_load", context, pin, transfer.owner, TIER, number, transfer.until)
                if transfer.is_remote:
                    self._begin_to_send(transfer, number, context)
                else:
                    self.fire("submit_load", context, flight, pin)
            else:
                if self.lapsed:
                    self.taken_over.update({key}.intersection(self.lapsed.values()))
                    self.lapsed.pop(slot, None)
                self.fire("begin_store", context, pin, transfer.owner, slot, number, transfer.until)
                self.fire("submit_store", context, flight, pin)

    def land(self, transfer: Transfer, context: str) -> None:
        """The bytes of a transfer arrive, except for the keys for which it fails."""
        for place, flight in enumerate(transfer.flights):
            if place in transfer.failed or transfer.is_void:
                self.fire("fail", context, flight, [NONE])
            else:
                self.fire("land", context, flight)

    def _begin_to_send(self, transfer: Transfer, number: int, context: str) -> None:
        """The reader of the load that began last has a block for a key, and its bytes begin to move there."""
        write, tier = self.free_pins.pop(), 1 + transfer.owner
        blocks = self.blocks_of_readers.setdefault(tier, [])
        if not blocks:
            blocks.append(self.new_blocks.pop())
            self.fire("grow", "open", blocks[-1], tier)
        transfer.writes.append(write)
        self.fire("begin_store", context, write, transfer.owner, blocks.pop(), number, NO_END)
        self.fire("submit_move", context, transfer.flights[-1], transfer.pins[-1], write, 0, 0)

    def end_sent(self, transfer: Transfer, context: str, *, counts: bool) -> None:
        """A load with a reader far away is over. counts: whether the reader keeps what it brought."""
        for write, flight in zip(transfer.writes, transfer.flights, strict=True):
            block = self.state.pinned[write]
            self.fire("report", context, flight)
            self.fire("commit" if counts else "abort", context, write, transfer.owner)
            if counts:
                self.fire("evict", context, block)
            self.blocks_of_readers[1 + transfer.owner].append(block)
        for pin in transfer.pins:
            self.fire("end_load", context, pin, transfer.owner)
        self._give_back(transfer)

    def withdraw(self, transfer: Transfer, context: str) -> None:
        """A load that has landed or failed is withdrawn from its readers, and no notice is awaited any more."""
        for flight in transfer.flights:
            self.fire("report", context, flight)
        self.fire("end_owner", context, transfer.owner)
        self.blocks_of_readers.setdefault(1 + transfer.owner, []).extend(
            self.state.pinned[write] for write in transfer.writes
        )
        for pin in (*transfer.pins, *transfer.writes):
            self.fire("expire", context, pin)
        self._give_back(transfer)

    def end(self, transfer: Transfer, context: str) -> None:
        """The store was informed of a transfer that has landed."""
        for place, (pin, flight) in enumerate(zip(transfer.pins, transfer.flights, strict=True)):
            self.fire("report", context, flight)
            name = "end_load" if transfer.is_load else "abort" if place in transfer.failed else "commit"
            self.fire(name, context, pin, transfer.owner)
        self._give_back(transfer)

    def lapse(self, transfer: Transfer, context: str) -> None:
        """The lease of a transfer is over: it moves nothing more, and what it wrote is given up.

        What a reader far away still reads moves on, and is void.
        """
        if transfer.is_remote:
            for pin in transfer.pins:
                self.fire("expire", context, pin)
            self.free_pins += transfer.pins
            transfer.pins.clear()
            transfer.is_void, transfer.has_lapsed = not transfer.has_landed, True
            self._may_count(transfer.keys)
            return
        for pin, flight, key, slot in zip(transfer.pins, transfer.flights, transfer.keys, transfer.slots, strict=True):
            if not transfer.has_landed:
                self.fire("fail", context, flight, [NONE])
            self.fire("report", context, flight)
            self.fire("expire", context, pin)
            if not (transfer.is_load or self.ends_leases):
                self.lapsed[slot] = key
        if transfer.is_load:
            self._may_count(transfer.keys)
        transfer.has_lapsed = True
        self._give_back(transfer)

    def _may_count(self, keys: Sequence[int]) -> None:
        """The lease of a load of these keys is over. It may be counted until it is reported, or ends at once."""
        if not self.ends_leases:
            self.lapsed_loads.update(keys)

    def end_lapsed(self, transfer: Transfer) -> None:
        """The store was informed of the end of a transfer whose lease was over."""
        transfer.is_taken_over = not self.taken_over.isdisjoint(transfer.keys)
        if transfer.is_load and not self.ends_leases:
            self.lapsed_loads.subtract(transfer.keys)
        elif not transfer.is_load:
            self.taken_over.difference_update(transfer.keys)

    def _give_back(self, transfer: Transfer) -> None:
        self.free_pins += transfer.pins + transfer.writes
        self.free_flights += transfer.flights
        self.free_owners.append(transfer.owner)
        if self.state.parts[transfer.owner]:
            self.fire("end_owner", "end", transfer.owner)

    def drop_all(self, context: str) -> None:
        """Every entry goes."""
        self.lapsed_loads.clear()
        for key in self.resident():
            self.fire("drop", context, TIER, self.numbers[key])

    # What the store shows ------------------------------------------------------------------------------------------

    def compare(self, observed: StoreObservation, is_at_rest: bool, context: str) -> None:
        """What the store shows must be what the specification has."""
        if observed.free_ids is not None and len(set(observed.free_ids)) != len(observed.free_ids):
            twice = [slot for slot, number in Counter(observed.free_ids).items() if number > 1]
            sentence = "the free list names slots twice: $observed"
            raise Finding("no-double-free", sentence, call=context, observed=twice, blocks=twice)
        self.compare_count(observed.free, is_at_rest, context)
        expected = self.entries()
        if observed.entries != expected:
            kept = self.lapsed
            entries = {key: slot for key, slot in observed.entries.items() if key in expected or kept.get(slot) != key}
            self._compare_entries(entries, expected, context)
            self.lapsed = {slot: key for slot, key in kept.items() if observed.entries.get(key) == slot}
        if observed.refs is not None:
            self._compare_refs(observed.refs, expected, context)
        if observed.free_ids is not None:
            self._compare_free_ids(observed.free_ids, context)

    def compare_count(self, num_free: int, is_at_rest: bool, context: str) -> None:
        """The store must count as many slots without an entry as there are."""
        expected = self.num_slots - self.num_used()
        if num_free == expected:
            self.lapsed.clear()
        if expected - len(self.lapsed) <= num_free <= expected:
            return
        property = "no-leak-at-rest" if is_at_rest and num_free < expected else "conservation"
        sentence = "$expected slots have no entry, and the store counts $observed"
        about = direction([(expected, num_free)])
        raise Finding(property, sentence, call=context, expected=expected, observed=num_free, about=about)

    def num_used(self) -> int:
        """How many slots have an entry."""
        return self.num_slots - int(self.state.count[TIER][0])

    def _compare_entries(self, observed: dict[int, int], expected: dict[int, int], context: str) -> None:
        for key in dict.fromkeys((*expected, *observed)):
            slot, other = expected.get(key, NO_SLOT), observed.get(key, NO_SLOT)
            if slot == other:
                continue
            if other == NO_SLOT:
                sentence = f"key {key} has slot {slot}, and the store has lost it"
            elif slot == NO_SLOT:
                sentence = f"key {key} has no slot, and the store shows slot {other}"
            else:
                sentence = f"key {key} has slot $expected, and the store shows $observed"
            raise Finding("frame-kept", sentence, call=context, expected=slot, observed=other, blocks=[slot, other])

    def _compare_refs(self, refs: dict[int, int], entries: dict[int, int], context: str) -> None:
        state = self.state
        for key, slot in entries.items():
            expected = -1 if state.writer[slot] != NONE else state.reads[slot]
            observed = refs.get(key)
            if observed != expected and not 0 <= expected < (observed or 0) <= expected + self.lapsed_loads[key]:
                sentence = f"the count of key {key}: the specification says $expected, the store $observed"
                property = "hit-written" if expected < 0 <= refs.get(key, expected) else "refcount-exact"
                about = "" if observed is None else direction([(expected, observed)])
                raise Finding(
                    property, sentence, call=context, expected=expected, observed=observed, blocks=[slot], about=about
                )

    def _compare_free_ids(self, free_ids: list[int], context: str) -> None:
        for slot in free_ids:
            if not 0 <= slot < self.num_slots or self.state.key[slot] != NONE:
                sentence = f"slot {slot} is in the free list; {self.described(slot)}"
                raise Finding("no-use-after-free", sentence, call=context, blocks=[slot])
