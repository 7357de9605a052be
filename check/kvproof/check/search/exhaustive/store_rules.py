"""Every reachable state of the specification of stores, in small scopes.

One transition is one firing, with every argument that is not a mere renaming of another. Left out, without loss of
generality: a free block other than the lowest of its tier, and a pin or transfer that does not exist other than the
lowest. In each new state every claim is evaluated; every firing evaluates the obligations of its rule; and a firing
that is refused must leave every field as it was.

*When two states are the same.* No rule prefers one block of a tier, one pin, one owner or one transfer to another. So
the key of a state is the least of its encodings, in which these are replaced by their places in an order. Blocks are
sorted by what does not depend on names, and permuted where they are left equal; then the order of pins and transfers
follows. The key leaves out ghosts, the fields of pins that have ended, and the clock. A lease counts by the time that
is left to it, so the clock does not make states endless. What a block holds counts, also where nobody may read it.
"""

import gc
import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, permutations, product
from typing import Any

from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.store import StoreConfig
from kvproof.check.search.exhaustive.breadth_first import Operation, search
from kvproof.check.search.exhaustive.specification_space import BROKEN, refuted
from kvproof.check.search.result import UNLIMITED, SearchResult
from kvproof.spec.store.machine import STORES, StoreMachine, StoreSizes
from kvproof.spec.store.state import FREE, NONE, StoreState

TORN = [NONE]  # what a transfer that has failed leaves in its target; no key has it as its content
LEASE = 1  # seconds
CHUNKS = ([1, 2], [2, NONE])  # contents of keys where transfers move ranges of slots
EDGES_MAX = (1 << 64) - 1


@dataclass(frozen=True)
class StoreScope:
    """The bounds of one exhaustive search. Chunks and blocks have one token slot, but with ranges.

    tiers: the blocks of each tier. leases: whether pins may be leases, and the clock goes on. ends: whether owners
    begin and end. drops: whether entries are dropped. promises: whether look-ups make promises. loads, moves: whether
    there are transfers to an owner, and between blocks. ranges: whether the latter may begin at any slot, where blocks
    have two and chunks one or two. parts: for how many parts an owner may wait. is_built: whether the tiers, keys and
    owners exist when the search begins; if not, rules make them.
    """

    tiers: tuple[int, ...] = (1,)
    num_keys: int = 1
    num_pins: int = 1
    num_owners: int = 1
    num_flights: int = 1
    leases: bool = False
    ends: bool = False
    drops: bool = False
    promises: bool = False
    loads: bool = True
    moves: bool = False
    ranges: bool = False
    parts: int = 0
    is_built: bool = True

    @property
    def sizes(self) -> StoreSizes:
        """The sizes of the state for the scope."""
        return StoreSizes(
            num_blocks=sum(self.tiers),
            num_tiers=len(self.tiers),
            num_keys=self.num_keys,
            num_pins=self.num_pins,
            num_owners=self.num_owners,
            num_flights=self.num_flights,
            num_parts=self.parts,
            block_size=2 if self.ranges else 1,
        )

    @property
    def tier_of_block(self) -> list[int]:
        """The tier of each block."""
        return [tier for tier, number in enumerate(self.tiers) for _ in range(number)]


class StoreRuleSpace:
    """Single firings of the rules of stores, with ghosts and obligations. machine: one of the sizes of the scope.

    edges: a number for all transitions together, each by the state before, the firing and the state after. Texts for
    which it differs have different rules. It is of one process, as the hash of a string is.
    """

    def __init__(self, scope: StoreScope, machine: StoreMachine | None = None) -> None:
        self.scope, self.machine = scope, machine or StoreMachine(scope.sizes)
        self.fired: Counter[str] = Counter()
        self.edges = 0
        self._keys: dict[Hashable, Hashable] = {}
        self._claims = [
            (claim, self.machine.function(claim.name))
            for claim in STORES.collected.invariants + STORES.collected.theorems
        ]

    def first(self) -> StoreState:
        """The state in which nothing has happened, or in which tiers, keys and owners exist."""
        state = self.machine.first_state()
        if self.scope.is_built:
            for operation in chain(self._growing(), self._introducing(), self._beginning()):
                if refused := self.machine.rules[operation[0]](state, *operation[1:]):
                    text = f"$operation is refused: {refused.sentence}"
                    raise Finding("total-calls", text, values={"operation": operation})
        return state

    def state_key(self, state: StoreState) -> Hashable:
        """Equal for two states exactly if a renaming of blocks, pins, owners and transfers turns one into the other."""
        numbers = _numbers(state)
        key = self._keys.get(numbers)
        if key is None:
            key = self._keys[numbers] = min(_encodings(state))
        return key

    def expand(self, state: StoreState) -> StoreState:
        """The state, if it breaks no claim. Raises Finding."""
        for claim, holds in self._claims:
            try:
                is_broken = not holds(state)
            except IndexError:
                raise Finding("lists-agree", f"{claim.name} reads a number that is out of range") from None
            if is_broken:
                raise Finding(claim.property, f"{claim.name}: {claim.sentence}")
        return state

    def successors(self, state: StoreState) -> Iterator[tuple[Operation, StoreState]]:
        """Every firing that is not refused."""
        copy, rules, numbers = self.machine.copy, self.machine.rules, _numbers(state)
        work = copy(state)
        for operation in self._candidates(state):
            rule, *arguments = operation
            try:
                refused = rules[rule](work, *arguments)
            except BROKEN as error:
                raise refuted(error, operation, operation) from error
            if refused is None:
                self.fired[rule] += 1
                self.edges = (self.edges + hash((numbers, str(operation), _numbers(work)))) & EDGES_MAX
                yield operation, work
                work = copy(state)
            elif vars(work) != vars(state):
                text = f"{rule} is refused, because {refused.sentence} does not hold, and changes the state"
                raise Finding("failed-call-changes-nothing", text, tried=operation)

    def _growing(self) -> Iterator[Operation]:
        yield from (("grow", block, tier) for block, tier in enumerate(self.scope.tier_of_block))

    def _introducing(self) -> Iterator[Operation]:
        for key in range(self.scope.num_keys):
            row = CHUNKS[key] if self.scope.ranges else [key + 1]
            yield "introduce", key, 0, row, len(row) - row.count(NONE)

    def _beginning(self) -> Iterator[Operation]:
        yield from (("begin_owner", owner) for owner in range(self.scope.num_owners))

    def _candidates(self, state: StoreState) -> Iterator[Operation]:
        """Rules and arguments to try."""
        scope = self.scope
        owners = range(scope.num_owners)
        pins = _used_and_one(state.kind)
        if not scope.is_built:
            yield from self._growing()
            yield from self._introducing()
            yield from (("introduce", key, 0, [key + 1], length) for key in range(scope.num_keys) for length in (0, 2))
        if scope.ends or not scope.is_built:
            yield from self._beginning()
            yield from (("end_owner", owner) for owner in owners)
        if scope.leases:
            yield "advance", LEASE
        for owner in owners if scope.parts else ():
            yield from (("await_parts", owner, number) for number in range(scope.parts + 2))
            yield from (("notice", owner, part) for part in range(scope.parts))
        for pin in pins:
            for owner in owners:
                yield from self._openings(state, pin, owner)
                yield from ((rule, pin, owner) for rule in ("redeem", "end_load", "commit", "keep", "abort"))
            yield "expire", pin
        yield from self._transfers(_used_and_one(state.phase), pins)
        yield from (("evict", block) for block in self._blocks(state))
        if scope.drops:
            yield from (("drop", tier, key) for tier in range(len(scope.tiers)) for key in range(scope.num_keys))

    def _openings(self, state: StoreState, pin: int, owner: int) -> Iterator[Operation]:
        scope = self.scope
        for until in (NONE, state.clock[0] + LEASE) if scope.leases else (NONE,):
            for key in range(scope.num_keys):
                yield from (("begin_store", pin, owner, block, key, until) for block in self._blocks(state))
                for tier in range(len(scope.tiers)):
                    yield "begin_load", pin, owner, tier, key, until
                    if scope.promises:
                        yield "promise", pin, owner, tier, key, until

    def _transfers(self, flights: list[int], pins: list[int]) -> Iterator[Operation]:
        for flight in flights:
            yield from (("submit_store", flight, pin) for pin in pins)
            if self.scope.loads:
                yield from (("submit_load", flight, pin) for pin in pins)
            if self.scope.moves:
                firsts = tuple(product((0, 1), repeat=2)) if self.scope.ranges else ((0, 0),)
                yield from (("submit_move", flight, *two, *one) for two in permutations(pins, 2) for one in firsts)
            yield "land", flight
            yield "fail", flight, TORN * self.machine.sizes.block_size
            yield "report", flight

    def _blocks(self, state: StoreState) -> list[int]:
        """The blocks that are in use, and the lowest free one of each tier."""
        free = {state.tier[b]: b for b in reversed(range(len(state.status))) if state.status[b] == FREE}
        return [b for b, status in enumerate(state.status) if status != FREE or b in free.values()]


def _used_and_one(values: list[int]) -> list[int]:
    """The ids that are in use, and the lowest that is not."""
    used = [one for one, value in enumerate(values) if value != NONE]
    return used if len(used) == len(values) else [*used, values.index(NONE)]


def _left(state: StoreState, pin: int) -> int:
    """The seconds that are left to a lease; NONE if the pin is no lease."""
    return NONE if state.until[pin] < 0 else max(0, state.until[pin] - state.clock[0])


def _numbers(state: StoreState) -> Hashable:
    """What rules can read, with the names as they are: equal states are compared once."""
    pins = [
        (kind, state.pinned[p], state.owner[p], _left(state, p), state.mover[p], state.is_void[p])
        if kind != NONE
        else state.mover[p]
        for p, kind in enumerate(state.kind)
    ]
    memory = [tuple(row) for row in state.memory]
    blocks = zip(state.tier, state.status, state.key, state.written, memory, state.reads, state.writer, strict=True)
    flights = zip(*(state.phase, state.reads_by, state.writes_by, state.reads_from, state.writes_from), strict=True)
    entries = [tuple(row) for row in state.entry]
    return *pins, *blocks, *flights, *entries, *state.live, *_waiting(state, range(len(state.live))), *_plain(state)


def _waiting(state: StoreState, owners: Sequence[int]) -> tuple[Any, ...]:
    """What each owner waits for."""
    return tuple([(state.parts[owner], tuple(state.noticed[owner])) for owner in owners])


def _plain(state: StoreState) -> tuple[Any, ...]:
    """The numbers in which nothing has a name that may change."""
    content = [tuple(row) for row in state.content]
    return *map(tuple, state.count), *state.capacity, *state.known, *state.group, *state.length, *content


def _encodings(state: StoreState) -> Iterator[tuple[Any, ...]]:
    """The state for each order of the owners, and of blocks that nothing but their names distinguishes."""
    of_blocks: list[list[int]] = [[] for _ in state.tier]
    for pin, kind in enumerate(state.kind):
        if kind != NONE:
            of_blocks[state.pinned[pin]].append(pin)
    for owners in permutations(range(len(state.live))):
        owner_place = {owner: place for place, owner in enumerate(owners)}
        live = tuple([state.live[owner] for owner in owners])
        for blocks in _orders_of_blocks(state, of_blocks, owner_place):
            yield live, _waiting(state, owners), *_encoded(state, blocks, of_blocks, owner_place)


def _orders_of_blocks(
    state: StoreState, of_blocks: list[list[int]], owner_place: dict[int, int]
) -> Iterator[tuple[int, ...]]:
    marks = {
        block: (
            state.tier[block],
            state.status[block],
            state.key[block],
            state.entry[state.tier[block]][state.key[block]] == block,
            state.written[block],
            state.memory[block],
            state.reads[block],
            sorted((state.kind[p], owner_place[state.owner[p]], _left(state, p)) for p in of_blocks[block]),
        )
        for block in range(len(state.tier))
    }
    groups = [list(group) for _, group in groupby(sorted(marks, key=marks.__getitem__), marks.__getitem__)]
    choices = [permutations(group) if of_blocks[group[0]] else [tuple(group)] for group in groups]
    yield from (tuple(chain(*order)) for order in product(*choices))


def _encoded(
    state: StoreState, blocks: tuple[int, ...], of_blocks: list[list[int]], owner_place: dict[int, int]
) -> tuple[Any, ...]:
    """The state with blocks, pins and transfers replaced by their places in this order of the blocks."""
    block_place = {block: place for place, block in enumerate(blocks)} | {NONE: NONE}

    def moved(flight: int) -> tuple[int, ...]:
        """A transfer by its blocks: two pins that agree in this and their own numbers have no other difference."""
        if flight == NONE:
            return ()
        used = [state.reads_by[flight], state.writes_by[flight]]
        places = (NONE if pin == NONE else block_place[state.pinned[pin]] for pin in used)
        return state.phase[flight], *places, state.reads_from[flight], state.writes_from[flight]

    def mark(pin: int) -> tuple[Any, ...]:
        own = state.kind[pin], owner_place[state.owner[pin]], _left(state, pin), state.is_void[pin]
        return block_place[state.pinned[pin]], *own, moved(state.mover[pin])

    pins = sorted((pin for held in of_blocks for pin in held), key=mark)
    pin_place = {pin: place for place, pin in enumerate(pins)} | {NONE: NONE}
    flights = sorted(
        (phase, pin_place.get(reads, reads), pin_place.get(writes, writes), *firsts)
        for phase, reads, writes, *firsts in zip(
            *(state.phase, state.reads_by, state.writes_by, state.reads_from, state.writes_from), strict=True
        )
    )
    return (
        tuple([mark(pin) for pin in pins]),
        tuple(flights),
        tuple(
            [
                (
                    *(state.tier[b], state.status[b], state.key[b], state.written[b], tuple(state.memory[b])),
                    *(state.reads[b], pin_place.get(state.writer[b], state.writer[b])),
                )
                for b in blocks
            ]
        ),
        tuple([tuple([block_place[b] for b in row]) for row in state.entry]),
        *_plain(state),
    )


def explore_stores(
    scope: StoreScope,
    *,
    seconds: float = math.inf,
    max_transitions: int = UNLIMITED,
    space: StoreRuleSpace | None = None,
) -> SearchResult:
    """Search a scope for at most so many seconds and transitions. space: the states, if they are of another text."""
    space = space or StoreRuleSpace(scope)
    config = StoreConfig(num_gpu_blocks=sum(scope.tiers))
    is_collecting = gc.isenabled()
    gc.disable()  # nothing here is cyclic
    try:
        found = search(space, config, seconds=seconds, max_transitions=max_transitions, progress_every=1)
    finally:
        if is_collecting:
            gc.enable()
    found.coverage.update(space.fired)
    for claim in (*STORES.collected.invariants, *STORES.collected.theorems):
        found.claims.setdefault(claim.property, []).append(claim.name)
    return found
