"""The state of the specification of stores beside an opened pair, and the rules that run on it.

A side is a tier. Blocks of the two sides may differ in size, so a block of the specification is a *unit*: as many token
slots as divide both sizes. An offer has the pin of a reader on each of its units, a claim that of a writer; a transfer
is a flight from unit to unit. Only what is offered or claimed is there: a unit comes when it is, and is evicted when
nobody has a pin on it. Two blocks of a side may have the same content, so a key has a number of copies.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import ceil, gcd

from kvproof.check.oracle.pair.records import Claim, Flights, OpenOffer
from kvproof.check.oracle.store.firing import RunningText
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.pair import DECODE, PREFILL, SIDES, PairConfig
from kvproof.spec.store.machine import StoreSizes
from kvproof.spec.store.state import EVICTABLE, NONE, RESERVED

GROUP, NO_END, ONE_PART = 0, -1, 0
NUM_SMALLEST = 32  # units: the state of a smaller pair has room for so many, so that few sizes are compiled
NUM_OWNERS, KEYS_PER_UNIT, PINS_PER_UNIT = 48, 8, 4


class PairRules(RunningText):
    """The state of the specification for one opened pair.

    unit: token slots of a unit. first: the number of the first unit of each side.
    """

    def __init__(self, config: PairConfig, coverage: Counter[str]) -> None:
        self.slots = tuple(config.slots(side) for side in SIDES)
        self.unit = gcd(*self.slots)
        counts = [config.num_blocks(side) * self.slots[side] // self.unit for side in SIDES]
        self.first = (0, counts[PREFILL])
        size = max(NUM_SMALLEST, 1 << (sum(counts) - 1).bit_length())
        self.num_keys_max, num_pins = KEYS_PER_UNIT * size, PINS_PER_UNIT * size
        sizes = StoreSizes(
            num_blocks=size,
            num_tiers=len(SIDES),
            num_keys=self.num_keys_max,
            num_pins=num_pins,
            num_owners=NUM_OWNERS,
            num_flights=size,
            block_size=self.unit,
        )
        super().__init__(sizes, coverage)
        function = self.machine.function
        self.is_over, self.num_moved = function("is_over"), function("num_moved")
        self.free_pins, self.free_flights = list(range(num_pins)), list(range(size))
        self.free_owners = list(range(NUM_OWNERS))
        self.keys: dict[tuple[int, ...], list[int]] = {}  # of each content, its copies
        self.rows: list[tuple[int, ...]] = []  # the content of each key
        for side in SIDES:
            for unit in range(counts[side]):
                self.fire("grow", "open", self.first[side] + unit, side)

    # Units and keys ------------------------------------------------------------------------------------------------

    def unit_of(self, side: int, block: int, slot: int) -> int:
        """The unit that has a slot of a block."""
        return self.first[side] + (block * self.slots[side] + slot) // self.unit

    def block_of(self, side: int, unit: int) -> int:
        """The block that has a unit of a side."""
        return (unit - self.first[side]) * self.unit // self.slots[side]

    def units_at(self, side: int, table: Sequence[int], start: int, stop: int) -> list[tuple[int, int]]:
        """The units of the positions from a start on, which begins one, each with its first position."""
        slots = self.slots[side]
        return [
            (self.unit_of(side, table[position // slots], position % slots), position)
            for position in range(start, stop, self.unit)
        ]

    def is_reserved(self, unit: int) -> bool:
        """Whether a claim has the unit, which is not readable."""
        return bool(self.state.status[unit] == RESERVED)

    def content_of(self, unit: int) -> tuple[int, ...]:
        """What the positions of a unit hold that is offered or claimed; empty for any other."""
        key = self.state.key[unit]
        return () if key == NONE else self.rows[key]

    def has_room(self, num_units: int) -> bool:
        """Whether there are keys and pins for so many units more, and owners."""
        is_roomy = len(self.rows) + num_units <= self.num_keys_max and len(self.free_pins) >= 3 * num_units
        return is_roomy and len(self.free_owners) > 2

    def _key(self, tier: int, row: tuple[int, ...], context: str) -> int:
        """A key with this content for which the tier has no entry."""
        copies = self.keys.setdefault(row, [])
        for key in copies:
            if self.state.entry[tier][key] == NONE:
                return key
        copies.append(len(self.rows))
        self.rows.append(row)
        self.fire("introduce", context, copies[-1], GROUP, [*row, *[NONE] * (self.unit - len(row))], len(row))
        return copies[-1]

    def _owner(self, context: str) -> int:
        owner = self.free_owners.pop()
        self.fire("begin_owner", context, owner)
        return owner

    def _forget_unused(self, units: Sequence[int], context: str) -> None:
        for unit in units:
            if self.state.status[unit] == EVICTABLE:
                self.fire("evict", context, unit)

    # Offers --------------------------------------------------------------------------------------------------------

    def offer(
        self, request: int, blocks: list[int], identities: Sequence[int], until: float | None, context: str
    ) -> OpenOffer:
        """A request offers the positions with these identities."""
        end, owner = NO_END if until is None else ceil(until), self._owner(context)
        one = OpenOffer(request, owner, blocks, {}, end, end)
        self.fire("await_parts", context, owner, 1)
        for unit, position in self.units_at(PREFILL, blocks, 0, len(identities)):
            row = tuple(identities[position : position + self.unit])
            one.pins[unit] = [self._hold(owner, unit, row, end, context)]
        return one

    def _hold(self, owner: int, unit: int, row: tuple[int, ...], until: int, context: str) -> int:
        pin, state = self.free_pins.pop(), self.state
        if state.key[unit] != NONE:
            if self.content_of(unit) != row:
                sentence = "the offer has a block that is held for another content"
                raise Finding("source-held", sentence, call=context, blocks=[self.block_of(PREFILL, unit)])
            self.fire("begin_load", context, pin, owner, PREFILL, state.key[unit], until)
            return pin
        flight = self.free_flights[-1]
        self.fire("begin_store", context, pin, owner, unit, self._key(PREFILL, row, context), until)
        self.fire("submit_store", context, flight, pin)
        self.fire("land", context, flight)
        self.fire("report", context, flight)
        self.fire("keep", context, pin, owner)
        return pin

    def renew(self, one: OpenOffer, context: str) -> None:
        """The lease of an offer ends later, which its side has said."""
        for unit, pins in one.pins.items():
            pin = self.free_pins.pop()
            self.fire("begin_load", context, pin, one.owner, PREFILL, self.state.key[unit], one.deadline)
            pins.append(pin)
        one.until = one.deadline

    def expire_renewed(self, one: OpenOffer, context: str) -> None:
        """The pins go that were renewed, as far as no flight uses them."""
        for pins in one.pins.values():
            for pin in pins[:-1]:
                if self.is_over(self.state, pin) and self.state.mover[pin] == NONE:
                    self.fire("expire", context, pin)
                    pins.remove(pin)
                    self.free_pins.append(pin)

    def is_in_force(self, one: OpenOffer) -> bool:
        """Whether the lease of an offer has not run out."""
        return one.until == NO_END or self.state.clock[0] < one.until

    def is_read(self, one: OpenOffer) -> bool:
        """Whether a flight reads what is offered."""
        return any(self.state.mover[pin] != NONE for pins in one.pins.values() for pin in pins)

    def read_by(self, moved: Flights, offers: Iterable[OpenOffer]) -> list[OpenOffer]:
        """Those of these offers that a transfer reads."""
        flights, mover = {*moved.flights}, self.state.mover
        return [one for one in offers if any(mover[pin] in flights for pins in one.pins.values() for pin in pins)]

    def end_offer(self, one: OpenOffer, context: str, *, is_dead: bool = False) -> None:
        """A side gives the blocks of an offer back, or is dead."""
        if is_dead:
            self.fire("end_owner", context, one.owner)
        for pins in one.pins.values():
            for pin in pins:
                if is_dead or self.is_over(self.state, pin):
                    self.fire("expire", context, pin)
                else:
                    self.fire("end_load", context, pin, one.owner)
                self.free_pins.append(pin)
        if not is_dead:
            self.fire("end_owner", context, one.owner)
        self.free_owners.append(one.owner)
        self._forget_unused([*one.pins], context)

    def is_noticed(self, one: OpenOffer) -> bool:
        """Whether the reader of an offer has said that it is done."""
        return bool(self.state.noticed[one.owner][ONE_PART])

    def notice(self, one: OpenOffer, context: str) -> None:
        """The reader of an offer is done."""
        self.fire("notice", context, one.owner, ONE_PART)

    # Claims --------------------------------------------------------------------------------------------------------

    def claim(self, claim: Claim, table: Sequence[int], identities: Sequence[int], context: str) -> None:
        """A request claims the positions from its hit on."""
        claim.owner = self._owner(context)
        for unit, position in self.units_at(DECODE, table, claim.hit, claim.stop):
            row = tuple(identities[position : min(position + self.unit, claim.stop)])
            pin, key = self.free_pins.pop(), self._key(DECODE, row, context)
            self.fire("begin_store", context, pin, claim.owner, unit, key, NO_END)
            claim.writes[unit] = pin

    def commit(self, claim: Claim, context: str) -> None:
        """What was claimed has arrived, and can be read."""
        for unit, pin in claim.writes.items():
            self.fire("commit", context, pin, claim.owner)
            self.fire("evict", context, unit)
            self.free_pins.append(pin)
        claim.writes.clear()
        self.end_claim(claim, context)

    def give_up(self, claim: Claim, units: Sequence[int], context: str, *, is_dead: bool = False) -> None:
        """Units of a claim are not reserved any more, without a result."""
        for unit in units:
            pin = claim.writes.pop(unit)
            if is_dead:
                self.fire("expire", context, pin)
            else:
                self.fire("abort", context, pin, claim.owner)
            self.free_pins.append(pin)

    def end_claim(self, claim: Claim, context: str) -> None:
        """Nothing is reserved for a claim any more."""
        self.fire("end_owner", context, claim.owner)
        self.free_owners.append(claim.owner)

    # Flights -------------------------------------------------------------------------------------------------------

    def begin_to_move(
        self, moved: Flights, read: int, write: int, first: tuple[int, int], number: int, context: str
    ) -> None:
        """So many slots begin to move from one unit to another, from these slots of the two on."""
        flight = self.free_flights.pop()
        self.fire("submit_move", context, flight, read, write, *first)
        moved.flights.append(flight)
        wanted = self.num_moved(self.state, self.state.pinned[read], self.state.pinned[write], *first)
        if number < wanted:
            sentence = "$observed of $expected positions of a block are moved"
            raise Finding("arrived-whole", sentence, call=context, expected=wanted, observed=number)

    def arrive(self, moved: Flights, context: str, *, fails: bool) -> None:
        """The bytes of a transfer have moved, or it has failed. What is void has failed in any case."""
        state = self.state
        for flight in moved.flights:
            if fails or state.is_void[state.writes_by[flight]]:
                self.coverage["lost its source"] += not fails
                self.fire("fail", context, flight, [NONE] * self.unit)
            else:
                self.fire("land", context, flight)
            self.fire("report", context, flight)
            self.free_flights.append(flight)
