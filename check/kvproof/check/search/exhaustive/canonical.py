"""When two states are the same: one key for all states that differ only in names.

No rule prefers one block of a pool to another, one sequence to another, or one token value to another. States that a
renaming of these turns into each other have the same runs, up to the renaming, so one of them stands for all. The key
of a state is what is left when every name is replaced by its place of first occurrence, in an order of the sequences
that does not depend on names. It holds everything that a rule can read (tables, what is known, done, written, cached)
and, so that a broken specification cannot hide behind a state reached before, also what follows from it (refcounts,
statuses, counters; inverse tables, counts of flights and numbers of sequences that do not exist where they deviate). It
leaves out what no rule and no claim reads: slots beyond those that are known or written, tables and homes of sequences
that do not exist, and the order of lists.

Most states are ordinary: nothing is cached or under way, and whatever follows from the tables is as it should be. They
are compared with earlier ones by a quick key, which says nothing of all that. So a state gets a quick key only after
each cell that the key leaves out was found to be ordinary; every other state is sorted.

The key sorts by what does not depend on names and permutes only what is left equal. The tests compare it with two
other keys, written apart from it: one permutes everything, the other permutes nothing and holds only where tables come
from forks alone, which make a forest. All three give the same number of states.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import chain, product
from operator import itemgetter
from typing import Any

from kvproof.spec.native import Machine
from kvproof.spec.text.state import FREE, HOST, NONE, State

ROOT = 0  # the identity before the first position
PLAIN = (0, 0, False, False, 0)  # status, refcount, cached, computed, num_written of a block nothing is known of


# What one live sequence contributes: its numbers, then its blocks and known tokens, still as names, then its oddities:
# what no correct state shows.
_Table = tuple[tuple[int, ...], list[int], list[int], tuple[Any, ...]]
# A block that no table names, and that is not merely free: what is known of it, its content, and, if a flight is under
# way, its name.
_Kept = tuple[tuple[Any, ...], list[int], int]
_Flights = list[tuple[int, int, int]]  # what is under way: the block used, the block filled, how many slots are brought
_Statuses = list[tuple[Any, ...]]


class StateKeys:
    """The keys of many states of one machine. A state is sorted once for each order in which its sequences stand.

    before: for each identity the one of the position before it, where identities are interned. What comes before a
    content matters where it outlives the sequences that know it (caching, windows); and the last identity of a
    sequence then stands for all of them, so that most states can be compared with earlier ones by a quick key.
    """

    def __init__(self, machine: Machine, before: Sequence[int] | None = None) -> None:
        self.machine, self.before = machine, before
        self._by_quick_key: dict[Hashable, Hashable] = {}
        self._known: dict[Hashable, Hashable] = {}

    def of(self, state: State) -> Hashable:
        """The key: equal for two states exactly if a renaming turns one into the other.

        A wrong rule may leave a number that is out of the range of what it counts or names. No name can be replaced
        then, and only the same state has the same key.
        """
        try:
            return self._of(state)
        except IndexError:
            return NONE, tuple(_as_tuples(value) for _, value in sorted(vars(state).items()))

    def _of(self, state: State) -> Hashable:
        quick = None if self.before is None else _quick_key(self.machine, state)
        if quick is None:
            return self._sorted(state, self._known)
        key = self._by_quick_key.get(quick)
        if key is None:
            key = self._by_quick_key[quick] = self._sorted(state, None)
        return key

    def __len__(self) -> int:
        """The number of keys that are kept for speed."""
        return len(self._by_quick_key) + len(self._known)

    def _sorted(self, state: State, known: dict[Hashable, Hashable] | None) -> Hashable:
        """The key by sorting; `known` holds keys by the encoding of the state with its sequences as they are."""
        tables, kept, statuses = _read(self.machine, state)
        flights = _under_way(state)
        before = self.before if kept or any(state.first) else None  # else what comes before is in the tables
        rest = (*map(tuple, state.count), *_odd_flights(self.machine, state))
        if known is None:
            return _least(tables, kept, statuses, flights, before), *rest
        as_is = _encoded(tables, kept, statuses, flights, before), *rest
        key = known.get(as_is)
        if key is None:
            key = known[as_is] = _least(tables, kept, statuses, flights, before), *rest
        return key


def _as_tuples(value: Any) -> Hashable:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def _least(
    tables: list[_Table], kept: list[_Kept], statuses: _Statuses, flights: _Flights, before: Sequence[int] | None
) -> tuple[Any, ...]:
    """The least encoding over the orders that respect what does not depend on names."""
    paths = [tokens if before is None else _path(tokens, before) for _, _, tokens, _ in tables]
    paths_kept = [content if before is None else _path(content, before) for _, content, _ in kept]
    times = Counter(chain(*paths, *paths_kept))
    orders_of_tables = _orders(
        [
            ((table[0], [statuses[b] for b in table[1]], [times[i] for i in path]), table)
            for table, path in zip(tables, paths, strict=True)
        ],
        bool(flights),
    )
    orders_of_kept = _orders(
        [((block[0], [], [times[i] for i in path]), block) for block, path in zip(kept, paths_kept, strict=True)],
        bool(flights),
    )
    return min(_encoded(t, k, statuses, flights, before) for t in orders_of_tables for k in orders_of_kept)


_Mark = tuple[Any, list[tuple[Any, ...]], list[int]]  # numbers, statuses of the blocks, how often each token occurs


def _orders(marked: list[tuple[_Mark, Any]], are_linked: bool) -> list[list[Any]]:
    """The orders that respect the marks. Equals that share nothing with anything give the same key in any order.

    are_linked: they may also differ in what flights there are between their blocks.
    """
    groups: list[tuple[_Mark, list[Any]]] = []
    for mark, each in sorted(marked, key=itemgetter(0)):
        if groups and groups[-1][0] == mark:
            groups[-1][1].append(each)
        else:
            groups.append((mark, [each]))
    choices = [_permuted(g) if len(g) > 1 and (are_linked or _shares(mark)) else [g] for mark, g in groups]
    return [list(chain(*order)) for order in product(*choices)]


def _permuted(members: list[Any]) -> list[list[Any]]:
    """The different orders of the members; some may be equal in everything."""
    if not members:
        return [[]]
    different = [each for place, each in enumerate(members) if each not in members[:place]]
    orders: list[list[Any]] = []
    for each in different:
        others = members[:]
        others.remove(each)
        orders += [[each, *order] for order in _permuted(others)]
    return orders


def _shares(mark: _Mark) -> bool:
    _, statuses, times = mark
    return any(status[1:2] != (1,) for status in statuses) or any(each != 1 for each in times)


def _path(identities: list[int], before: Sequence[int]) -> list[int]:
    """The identities, and those on the way to them."""
    if not identities:
        return identities
    at, found = identities[0], list(identities)
    while 0 < at < len(before) and (at := before[at]):
        found.append(at)
    return found


def _quick_key(machine: Machine, state: State) -> Hashable | None:
    """A key that only equal states have: blocks renamed, identities as they are; None if the state is not ordinary."""
    null, memory, num_written, status = machine.null, state.memory, state.num_written, state.status
    refcount = state.refcount
    if True in state.cached or True in state.computed or _has_pending(state):
        return None
    found: list[tuple[tuple[Any, ...], int, list[int]]] = []
    for numbers, table, rows, position in zip(_numbers(state), state.table, state.tokens, state.position, strict=True):
        is_live, _, _, _, _, first, num_blocks, full, filled, _, _ = numbers
        held = table[first:num_blocks]
        if position.count(NONE) + len(held) != null:
            return None
        if not is_live:
            if not _is_blank(numbers):
                return None
        else:
            if first and table[:first] != [null] * first:
                return None
            index = first
            for block in held:
                if not 0 <= block < null or position[block] != index:
                    return None
                if (stop := num_written[block]) and memory[block][:stop] != rows[index][:stop]:
                    return None
                index += 1
            if full + (filled > 0) > len(rows) or filled > machine.sizes.block_size:
                return None
            last = rows[full][filled - 1] if filled else rows[full - 1][-1] if full else ROOT
            found.append((numbers, last, held))
    found.sort(key=_without_blocks)  # their order means nothing; in this one more states look alike
    blocks: dict[int, int] = {}
    key: list[Any] = [
        (numbers, last, tuple([blocks.setdefault(b, len(blocks)) for b in held])) for numbers, last, held in found
    ]
    for block in range(null):
        if block not in blocks and (status[block] != FREE or refcount[block] or num_written[block]):
            return None  # something is kept that no table names
    num_gpu_blocks = machine.sizes.num_gpu_blocks
    key += [(status[b], refcount[b], num_written[b], b < num_gpu_blocks) for b in blocks]
    key += map(tuple, state.count)
    return tuple(key)


def _without_blocks(each: tuple[tuple[Any, ...], int, list[int]]) -> tuple[tuple[Any, ...], int]:
    return each[:2]


def _numbers(state: State) -> Iterable[tuple[Any, ...]]:
    """The numbers of each sequence."""
    return zip(
        state.live,
        state.ending,
        state.home,
        state.moving,
        state.window,
        state.first,
        state.num_blocks,
        state.num_full,
        state.num_filled,
        state.done_full,
        state.done_filled,
        strict=True,
    )


def _is_blank(numbers: tuple[Any, ...]) -> bool:
    """Whether the numbers of a sequence that does not exist tell nothing: its home and window may be any."""
    _, is_ending, home, moving, _, *counts = numbers
    return not is_ending and moving == NONE and 0 <= home <= HOST and not any(counts)


def _odd_numbers(numbers: tuple[Any, ...]) -> tuple[Any, ...]:
    """The numbers of a sequence that does not exist, without those that tell nothing."""
    is_live, is_ending, home, moving, window, first, *counts = numbers
    return is_live, is_ending, home if not 0 <= home <= HOST else 0, moving, window if first > 0 else 0, first, *counts


def _has_pending(state: State) -> bool:
    """Whether a flight is under way, or a block says that one is."""
    if not state.uses:
        return any(state.pins) or state.filler.count(NONE) != len(state.filler)
    return any(state.pins) or any(cells.count(NONE) != len(cells) for cells in (state.uses, state.fills, state.filler))


def _odd_flights(machine: Machine, state: State) -> tuple[Any, ...]:
    """Everything about flights, with its names, unless blocks and flights tell the same."""
    uses, fills, filler = state.uses, state.fills, state.filler
    is_ordinary = not _has_pending(state) or (
        all(
            (use == fill == NONE)
            or (0 <= use < machine.null and (fill == NONE or (0 <= fill < machine.null and filler[fill] == flight)))
            for flight, (use, fill) in enumerate(zip(uses, fills, strict=True))
        )
        and all(
            state.pins[block] == uses.count(block) and (by == NONE or (0 <= by < len(fills) and fills[by] == block))
            for block, by in enumerate(filler)
        )
    )
    brings = [number if fill != NONE else 0 for number, fill in zip(state.brings, fills, strict=True)]
    return () if is_ordinary else tuple(map(tuple, (uses, fills, brings, filler, state.pins)))


def _under_way(state: State) -> _Flights:
    return [each for each in zip(state.uses, state.fills, state.brings, strict=True) if each[:2] != (NONE, NONE)]


def _read(machine: Machine, state: State) -> tuple[list[_Table], list[_Kept], _Statuses]:
    null, size = machine.null, machine.sizes.block_size
    cached, memory, content, num_written = state.cached, state.memory, state.content, state.num_written
    statuses: _Statuses = [*zip(state.status, state.refcount, cached, state.computed, num_written, strict=True), ()]
    if state.uses or _has_pending(state):
        pending = zip(state.pins, state.filler, strict=True)
        statuses = [(*known, pins, filler != NONE) for known, (pins, filler) in zip(statuses, pending, strict=False)]
        statuses.append(())
    has_flights = state.uses.count(NONE) != len(state.uses)
    tables: list[_Table] = []
    held: set[int] = set()
    for seq, numbers in enumerate(_numbers(state)):
        is_live, _, _, _, _, first, num_blocks, full, filled, _, _ = numbers
        blocks, rows, position = state.table[seq][first:num_blocks], state.tokens[seq], state.position[seq]
        oddities: list[tuple[Any, ...]] = []
        if position.count(NONE) + len(blocks) != null:
            oddities.append(tuple(position))
        if not is_live:
            if oddities or blocks or not _is_blank(numbers):
                tables.append((_odd_numbers(numbers), blocks, [], tuple(oddities)))
            continue
        if first and state.table[seq][:first] != [null] * first:
            oddities.append((NONE, *state.table[seq][:first]))
        if first == full and full and not filled:
            # The window has left everything; the last identity still decides what comes next.
            tokens = [identity for row in rows[full - 1 : full] for identity in row]
        else:
            tokens = [identity for row in rows[first:full] for identity in row]
        for row in rows[full : full + 1]:
            tokens += row[:filled]
        index = first
        for block in blocks:
            if not 0 <= block < null or position[block] != index or index >= len(rows):
                oddities.append((index, block))
            else:
                stop = num_written[block]
                if stop == size:
                    if memory[block] != rows[index]:
                        oddities.append((index, *memory[block]))
                elif stop and memory[block][:stop] != rows[index][:stop]:
                    oddities.append((index, *memory[block][:stop]))
                if cached[block] and content[block] != rows[index]:
                    oddities.append((index, NONE, *content[block]))
            index += 1
        held.update(blocks)
        tables.append((numbers, blocks, tokens, tuple(oddities)))
    kept: list[_Kept] = []
    for block in range(null):
        status = statuses[block]
        if block not in held and (status[:5] != PLAIN or any(status[5:])):
            stop = num_written[block]
            row = content[block] if cached[block] else memory[block][:stop]
            is_odd = cached[block] and memory[block][:stop] != content[block][:stop]
            known = (*status, block < machine.sizes.num_gpu_blocks, tuple(memory[block]) if is_odd else ())
            kept.append((known, row, block if has_flights else NONE))
    return tables, kept, statuses


def _encoded(
    tables: Iterable[_Table],
    kept: Iterable[_Kept],
    statuses: _Statuses,
    flights: _Flights,
    before: Sequence[int] | None,
) -> tuple[Any, ...]:
    """Everything, with blocks and identities replaced by their place of first occurrence in this order."""
    blocks: dict[int, int] = {}
    names: dict[int, int] = {ROOT: 0, NONE: NONE}
    parents: list[int] = []

    def named(identity: int) -> int:
        if identity not in names:
            parent = named(before[identity]) if before is not None and identity < len(before) else NONE
            names[identity] = len(names)
            parents.append(parent)
        return names[identity]

    form: list[Any] = []
    for numbers, table, tokens, oddities in tables:
        if before is None:
            new_names = [names.setdefault(i, len(names)) for i in tokens]
        else:
            new_names = [named(i) for i in tokens]
        form += numbers, tuple([blocks.setdefault(b, len(blocks)) for b in table]), tuple(new_names), oddities
    form.append(tuple([statuses[b] if -1 < b < len(statuses) else () for b in blocks]))
    for known, content, block in kept:
        form.append((known, tuple([named(i) for i in content])))
        if flights:
            blocks.setdefault(block, len(blocks))
    if flights:
        form.append(
            tuple(sorted([(blocks.get(u, NONE), blocks.get(f, NONE), n if f != NONE else 0) for u, f, n in flights]))
        )
    form.append(tuple(parents))
    return tuple(form)
