"""When two states are the same: one form for all states that differ only in names.

No rule prefers one block of a pool to another, one sequence to another, or one token value to another. States that a
renaming of these turns into each other have the same runs, up to the renaming, so one of them stands for all. The form
of a state is what is left when every name is replaced by its place of first occurrence, in an order of the sequences
that does not depend on names. It holds everything that a rule can read (tables, what is known, done, written, cached)
and, so that a broken specification cannot hide behind a state seen before, also what follows from it (refcounts,
statuses, counters, inverse tables where they deviate). It leaves out what no rule reads: slots beyond those that are
known or written, tables of sequences that do not exist, and the order of lists.

Three implementations. `canonical_form` sorts by what does not depend on names and permutes only what is left equal;
`brute_force_form` permutes everything; `forest_form` permutes nothing, since tables that come from forks alone are a
forest, and holds for these only. They are written apart from each other, and must agree on the number of states.
"""

from collections.abc import Hashable, Iterable, Sequence
from itertools import chain, pairwise, permutations, product
from typing import Any, NamedTuple

from kvproof.spec.native import Machine
from kvproof.spec.state import NONE, State

PLAIN = (0, 0, False, False, 0)  # status, refcount, cached, computed, num_written of a block nothing is known of


class _Table(NamedTuple):
    """What one live sequence contributes; blocks and tokens are still names."""

    numbers: tuple[int, ...]
    blocks: list[int]
    tokens: list[int]
    oddities: tuple[Any, ...]  # what no correct state shows


class _Kept(NamedTuple):
    """A block that no table names, and that is not merely free."""

    numbers: tuple[Any, ...]
    content: list[int]


def canonical_form(machine: Machine, state: State, before: Sequence[int] | None = None) -> Hashable:
    """The form: equal for two states exactly if a renaming turns one into the other.

    before: for each identity the one of the position before it. Needed where content outlives the sequences that
    know what came before it (caching, windows); else the prefix of each identity is in the tables.
    """
    tables, kept, blocks = _read(machine, state)
    occurrences: dict[int, int] = {}
    paths = [t.tokens if before is None else _path(t.tokens, before) for t in tables]
    paths_kept = [k.content if before is None else _path(k.content, before) for k in kept]
    for path in chain(paths, paths_kept):
        for identity in path:
            occurrences[identity] = occurrences.get(identity, 0) + 1
    marked = [
        ((t.numbers, [blocks[b] for b in t.blocks], [occurrences[i] for i in path]), t)
        for t, path in zip(tables, paths, strict=True)
    ]
    others = [((k.numbers, [occurrences[i] for i in path]), k) for k, path in zip(kept, paths_kept, strict=True)]
    marked.sort(key=_mark)
    others.sort(key=_mark)
    orders_of_tables = _orders(marked, lambda mark: any(b[1] != 1 for b in mark[1]) or any(o != 1 for o in mark[2]))
    orders_of_others = _orders(others, lambda mark: any(o != 1 for o in mark[1]))
    if len(orders_of_tables) == len(orders_of_others) == 1:
        form = _encoded(orders_of_tables[0], orders_of_others[0], blocks, before)
    else:
        form = min(_encoded(t, k, blocks, before) for t in orders_of_tables for k in orders_of_others)
    return form, _counters(state)


def brute_force_form(machine: Machine, state: State, before: Sequence[int] | None = None) -> Hashable:
    """The least encoding over every order of the sequences and of the blocks that no table names."""
    tables, kept, blocks = _read(machine, state)
    orders = product(permutations(tables), permutations(kept))
    return min(_encoded(t, k, blocks, before) for t, k in orders), _counters(state)


def _mark(pair: tuple[Any, Any]) -> Any:
    return pair[0]


def _orders(marked: list[tuple[Any, Any]], is_entangled: Any) -> list[list[Any]]:
    """The orders that respect the marks; equals that share nothing with anything give the same form in any order."""
    if all(one[0] != other[0] for one, other in pairwise(marked)):
        return [[each for _, each in marked]]
    groups: list[tuple[Any, list[Any]]] = []
    for mark, each in marked:
        if groups and groups[-1][0] == mark:
            groups[-1][1].append(each)
        else:
            groups.append((mark, [each]))
    choices = [list(permutations(g)) if len(g) > 1 and is_entangled(mark) else [tuple(g)] for mark, g in groups]
    return [list(chain(*order)) for order in product(*choices)]


def _path(identities: list[int], before: Sequence[int]) -> list[int]:
    """The identities, and those on the way to them."""
    if not identities:
        return identities
    at, found = identities[0], list(identities)
    while 0 < at < len(before) and (at := before[at]):
        found.append(at)
    return found


def _read(machine: Machine, state: State) -> tuple[list[_Table], list[_Kept], list[tuple[Any, ...]]]:
    num_gpu_blocks, null = machine.sizes.num_gpu_blocks, machine.null
    cached, memory, content, num_written = state.cached, state.memory, state.content, state.num_written
    statuses: list[tuple[Any, ...]] = list(
        zip(state.status, state.refcount, cached, state.computed, num_written, strict=True)
    )
    tables: list[_Table] = []
    held: set[int] = set()
    for seq, is_live in enumerate(state.live):
        first = state.first[seq]
        blocks = state.table[seq][first : state.num_blocks[seq]]
        position = state.position[seq]
        oddities: list[Any] = []
        if position.count(NONE) != null - len(blocks):
            oddities.append(tuple(position))
        if not is_live:
            if oddities or blocks:
                tables.append(_Table((0,), blocks, [], tuple(oddities)))
            continue
        full, filled = state.num_full[seq], state.num_filled[seq]
        rows = state.tokens[seq]
        # When the window has left everything, the last identity still decides what comes next.
        start = first if full > first or filled else max(full - 1, 0)
        tokens = list(chain.from_iterable(rows[start:full]))
        if filled:
            tokens += rows[full][:filled]
        for index, block in enumerate(blocks, first):
            if not 0 <= block < null or position[block] != index:
                oddities.append((index, block))
                continue
            stop = num_written[block]
            if stop and memory[block][:stop] != rows[index][:stop]:
                oddities.append((index, *memory[block][:stop]))
            if cached[block] and content[block] != rows[index]:
                oddities.append((index, *content[block]))
        held.update(blocks)
        numbers = (
            1,
            state.ending[seq],
            state.home[seq],
            state.moving[seq],
            state.window[seq],
            first,
            full,
            filled,
            state.done_full[seq],
            state.done_filled[seq],
        )
        tables.append(_Table(numbers, blocks, tokens, tuple(oddities)))
    kept = []
    for block, status in enumerate(statuses):
        if status != PLAIN and block not in held:
            stop = num_written[block]
            row = content[block] if cached[block] else memory[block][:stop]
            is_odd = cached[block] and memory[block][:stop] != content[block][:stop]
            numbers = (*status, block < num_gpu_blocks, tuple(memory[block]) if is_odd else ())
            kept.append(_Kept(numbers, row))
    statuses.append(())  # NULL in a table
    return tables, kept, statuses


def _encoded(
    tables: Iterable[_Table],
    kept: Iterable[_Kept],
    statuses: list[tuple[Any, ...]],
    before: Sequence[int] | None,
) -> tuple[Any, ...]:
    blocks: dict[int, int] = {}
    names: dict[int, int] = {0: 0, NONE: NONE}
    parents: list[int] = []

    def named(identity: int) -> int:
        if identity not in names:
            parent = named(before[identity]) if before is not None and identity < len(before) else NONE
            names[identity] = len(names)
            parents.append(parent)
        return names[identity]

    form: list[Any] = []
    for numbers, table, tokens, oddities in tables:
        form.append(numbers)
        form.append(tuple([blocks.setdefault(b, len(blocks)) for b in table]))
        if before is None:
            form.append(tuple([names.setdefault(i, len(names)) for i in tokens]))
        else:
            form.append(tuple([named(i) for i in tokens]))
        form.append(oddities)
    form.append(tuple([statuses[b] if -1 < b < len(statuses) else () for b in blocks]))
    for numbers, content in kept:
        form.append((numbers, tuple([named(i) for i in content])))
    form.append(tuple(parents))
    return tuple(form)


def _counters(state: State) -> tuple[int, ...]:
    return tuple(chain.from_iterable(state.count))


def forest_form(machine: Machine, state: State, with_tokens: bool = True) -> Hashable:
    """Nested sorted tuples, for tables that come from admitting, appending, forking and freeing alone.

    There, sharing an entry means sharing what is before it: sequences part first in a token or in the block that
    holds it, and stay apart. So the paths token, token, block, token, … are a forest, and a forest has a canonical
    form without any renaming: each node the sorted forms of its children.
    """
    root: dict[Any, Any] = {}
    for seq, is_live in enumerate(state.live):
        if not is_live:
            continue
        node = root
        num_known = state.num_full[seq] * machine.sizes.block_size + state.num_filled[seq]
        for index in range(state.num_blocks[seq]):
            num_here = min(machine.sizes.block_size, num_known - index * machine.sizes.block_size)
            for identity in state.tokens[seq][index][:num_here] if with_tokens else ():
                node = node.setdefault(identity, {})
            node = node.setdefault(("block", state.table[seq][index]), {})
        node.setdefault("ends", []).append(num_known)
    return _nested(root)


def _nested(node: dict[Any, Any]) -> tuple[Any, ...]:
    ends = tuple(sorted(node.get("ends", ())))
    children = sorted((isinstance(name, tuple), _nested(child)) for name, child in node.items() if name != "ends")
    return ends, tuple(children)
