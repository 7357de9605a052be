"""The state of the specification of stores beside an opened pair, and the rules that run on it.

A side is a tier. Blocks of the two sides may differ in size, so a block of the specification is a *unit*: as many token
slots as divide both sizes. An offer has the pin of a reader on each of its units, a claim that of a writer; a transfer
is a flight from unit to unit. Only what is offered or claimed is there: a unit comes when it is, and is evicted when
nobody has a pin on it. Two blocks of a side may have the same content, so a key has a number of copies. Where several
ranks share the KV of a side, each place of it (`Shares`) has units of its own, and its share is a part of the content.

What is offered has an owner for each rank of PREFILL, which waits for a notice of each rank that reads there.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import ceil, gcd

from kvproof.check.oracle.pair.records import Claim, Flights, OpenOffer
from kvproof.check.oracle.pair.shares import Shares
from kvproof.check.oracle.store.firing import RunningText
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.pair import DECODE, PREFILL, SIDES, PairConfig
from kvproof.spec.store.machine import StoreSizes
from kvproof.spec.store.state import EVICTABLE, NONE, RESERVED

GROUP, NO_END = 0, -1
NUM_SMALLEST = 32  # units: the state of a smaller pair has room for so many, so that few sizes are compiled
NUM_OWNERS, KEYS_PER_UNIT, PINS_PER_UNIT = 48, 8, 4  # owners: for each rank of PREFILL


class PairRules(RunningText):
    """The state of the specification for one opened pair.

    unit: token slots of a unit. first: the number of the first unit of each side. readers: of each rank of PREFILL, the
    ranks of which it waits for a notice; empty: for one, of any rank.
    """

    def __init__(
        self, config: PairConfig, coverage: Counter[str], shares: Shares | None = None, *, pushes: bool = False
    ) -> None:
        self.shares = shares = shares or Shares()
        self.slots = tuple(config.slots(side) for side in SIDES)
        self.unit = gcd(*self.slots)
        self.num_cells = [config.num_blocks(side) * self.slots[side] for side in SIDES]  # of a place
        counts = [len(shares.places[side]) * self.num_cells[side] // self.unit for side in SIDES]
        ranks = range(shares.num_ranks(PREFILL))
        self.readers = [() if pushes else shares.readers(rank) for rank in ranks]
        self.first = (0, counts[PREFILL])
        size = max(NUM_SMALLEST, 1 << (sum(counts) - 1).bit_length())
        self.num_readers_max = max(len(shares.holders(DECODE, share)) for share in range(len(shares.kinds)))
        self.num_keys_max, num_pins = KEYS_PER_UNIT * size, PINS_PER_UNIT * size * self.num_readers_max
        self.num_owners = NUM_OWNERS * len(ranks)
        sizes = StoreSizes(
            num_blocks=size,
            num_tiers=len(SIDES),
            num_keys=self.num_keys_max,
            num_pins=num_pins,
            num_owners=self.num_owners,
            num_flights=size,
            num_parts=shares.num_ranks(DECODE),
            block_size=self.unit,
        )
        super().__init__(sizes, coverage)
        function = self.machine.function
        self.is_over, self.num_moved = function("is_over"), function("num_moved")
        self.free_pins, self.free_flights = list(range(num_pins)), list(range(size))
        self.free_owners = list(range(self.num_owners))
        self.keys: dict[tuple[int, ...], list[int]] = {}  # of each content, its copies
        self.rows: list[tuple[int, ...]] = []  # the content of each key
        for side in SIDES:
            for unit in range(counts[side]):
                self.fire("grow", "open", self.first[side] + unit, side)

    # Units and keys ------------------------------------------------------------------------------------------------

    def unit_of(self, side: int, block: int, slot: int, place: int = 0) -> int:
        """The unit that has a slot of a block at a place of its side."""
        return self.unit_at(side, place, block * self.slots[side] + slot)

    def unit_at(self, side: int, place: int, cell: int) -> int:
        """The unit that has a cell of a place."""
        return self.first[side] + (place * self.num_cells[side] + cell) // self.unit

    def place_of(self, side: int, unit: int) -> int:
        """The place that has a unit of a side."""
        return (unit - self.first[side]) * self.unit // self.num_cells[side]

    def cell_of(self, side: int, unit: int) -> int:
        """The first cell of a unit of a side, counted through all blocks."""
        return (unit - self.first[side]) * self.unit % self.num_cells[side]

    def block_of(self, side: int, unit: int) -> int:
        """The block that has a unit of a side."""
        return self.cell_of(side, unit) // self.slots[side]

    def units_of(self, side: int, block: int) -> list[int]:
        """The units that a block of a side has, at all places."""
        slots, places = self.slots[side], range(len(self.shares.places[side]))
        return [self.unit_of(side, block, slot, place) for place in places for slot in range(0, slots, self.unit)]

    def units_at(
        self, side: int, table: Sequence[int], identities: Sequence[int], start: int
    ) -> list[tuple[int, tuple[int, ...], int]]:
        """The units that keep the positions of these identities from a start on, which begins one; each with its
        content and its place."""
        slots, num_shares, found = self.slots[side], len(self.shares.kinds), []
        for place, (_, share) in enumerate(self.shares.places[side]):
            for position in range(start, len(identities), self.unit):
                unit = self.unit_of(side, table[position // slots], position % slots, place)
                row = tuple(one * num_shares + share for one in identities[position : position + self.unit])
                found.append((unit, row, place))
        return found

    def is_reserved(self, unit: int) -> bool:
        """Whether a claim has the unit, which is not readable."""
        return bool(self.state.status[unit] == RESERVED)

    def content_of(self, unit: int) -> tuple[int, ...]:
        """What the positions of a unit hold that is offered or claimed; empty for any other."""
        key = self.state.key[unit]
        return () if key == NONE else self.rows[key]

    def has_room(self, num_units: int) -> bool:
        """Whether there are keys and pins for so many units more, and owners."""
        is_roomy = (
            len(self.rows) + num_units <= self.num_keys_max
            and len(self.free_pins) >= 3 * num_units * self.num_readers_max
        )
        return is_roomy and len(self.free_owners) > 2 * len(self.readers)

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
        end, ranks = NO_END if until is None else ceil(until), range(len(self.readers))
        owners = [self._owner(context) for _ in ranks]
        one = OpenOffer(request, owners, blocks, {}, [end for _ in ranks], [end for _ in ranks])
        for owner, readers in zip(owners, self.readers, strict=True):
            self.fire("await_parts", context, owner, max(1, len(readers)))
        for unit, row, place in self.units_at(PREFILL, blocks, identities, 0):
            rank, share = self.shares.places[PREFILL][place]
            for reader in self.shares.holders(DECODE, share):
                one.pins[unit, reader] = [self._hold(owners[rank], unit, row, end, context)]
        return one

    def rank_of(self, unit: int) -> int:
        """The rank of PREFILL that has a unit."""
        return self.shares.places[PREFILL][self.place_of(PREFILL, unit)][0]

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

    def renew(self, one: OpenOffer, rank: int, context: str) -> None:
        """The lease of an offer at a rank ends later, which its side has said."""
        for (unit, _), pins in one.pins.items():
            if self.rank_of(unit) == rank:
                pin = self.free_pins.pop()
                self.fire(
                    "begin_load", context, pin, one.owners[rank], PREFILL, self.state.key[unit], one.deadlines[rank]
                )
                pins.append(pin)
        one.until[rank] = one.deadlines[rank]

    def expire_renewed(self, one: OpenOffer, context: str) -> None:
        """The pins go that were renewed, as far as no flight uses them."""
        for pins in one.pins.values():
            for pin in pins[:-1]:
                if self.is_over(self.state, pin) and self.state.mover[pin] == NONE:
                    self.fire("expire", context, pin)
                    pins.remove(pin)
                    self.free_pins.append(pin)

    def is_in_force(self, one: OpenOffer, rank: int) -> bool:
        """Whether the lease of an offer at a rank has not run out."""
        return one.until[rank] == NO_END or self.state.clock[0] < one.until[rank]

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
            for owner in one.owners:
                self.fire("end_owner", context, owner)
        for (unit, _), pins in one.pins.items():
            for pin in pins:
                if is_dead or self.is_over(self.state, pin):
                    self.fire("expire", context, pin)
                else:
                    self.fire("end_load", context, pin, one.owners[self.rank_of(unit)])
                self.free_pins.append(pin)
        if not is_dead:
            for owner in one.owners:
                self.fire("end_owner", context, owner)
        self.free_owners.extend(one.owners)
        self._forget_unused(sorted({unit for unit, _ in one.pins}), context)

    def is_noticed(self, one: OpenOffer) -> bool:
        """Whether all readers of an offer have said that they are done."""
        return not self._awaited(one, range(len(self.readers)), ())

    def _awaited(self, one: OpenOffer, ranks: Iterable[int], speakers: Sequence[int]) -> list[tuple[int, int]]:
        """The owners, with their parts, that wait for a notice of these readers; of all, if none are named."""
        found = []
        for rank in ranks:
            owner, readers = one.owners[rank], self.readers[rank] or (None,)
            for part, reader in enumerate(readers):
                if not self.state.noticed[owner][part] and (not speakers or reader is None or reader in speakers):
                    found.append((owner, part))
        return found

    def notice(self, one: OpenOffer, context: str, rank: int | None = None, speakers: Sequence[int] = ()) -> bool:
        """Readers of an offer have notified a rank of PREFILL that they are done; by default all of them, all ranks.

        Returns whether one of the ranks waited for it. A rank of which others keep the same waits for any notice.
        """
        ranks = range(len(self.readers))
        notified = [one for one in ranks if rank in (None, one) or not self.readers[one]]
        awaited = self._awaited(one, notified, speakers)
        for owner, part in awaited:
            self.fire("notice", context, owner, part)
        return bool(awaited)

    # Claims --------------------------------------------------------------------------------------------------------

    def claim(self, claim: Claim, table: Sequence[int], identities: Sequence[int], context: str) -> None:
        """A request claims the positions from its hit on."""
        claim.owner = self._owner(context)
        for unit, row, _ in self.units_at(DECODE, table, identities[: claim.stop], claim.hit):
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
