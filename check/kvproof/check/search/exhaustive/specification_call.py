"""One operation to try: its program with all choices made, and whether the pool has the blocks that it takes.

The blocks that an operation takes follow from the state before it, by the arithmetic of admission: one block for each
entry that it adds, one to replace a shared tail, less what is hit or shared. Free blocks are taken first, the lowest
first, which loses nothing; beyond them every choice of evictable blocks is tried, but not of those that are hit or
shared. Every cached block of the wanted content is tried: names must not matter, and cached blocks of equal content
may differ.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product

from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.exhaustive.breadth_first import Operation
from kvproof.spec.native import Machine
from kvproof.spec.text import operations
from kvproof.spec.text.operations import Program, holds_content, row_of
from kvproof.spec.text.state import EVICTABLE, FREE, GPU, NONE, State, first_read

Twins = dict[int, int]  # a cached block for a table entry, or for a block that moves


@dataclass(frozen=True)
class SpecCall:
    """An operation as data, its program on a state, and whether it must finish."""

    operation: Operation
    program: Callable[[State], Program]
    can_finish: bool = True


def prompts(
    scope: Scope, state: State, seq: int, prompt: list[int], num_hit: int, first: int = 0
) -> Iterator[SpecCall]:
    """Admit a prompt: hit its first entries, share what is cached of the others or not, and compute the rest.

    first: entries that are not hit but skipped, which they can be where the next token does not read back to them.
    """
    size, gpu = scope.block_size, range(scope.num_gpu_blocks)
    num_entries = scope.blocks_for(len(prompt) + (scope.lookahead if prompt else 0))
    rows = [row_of(prompt, index, size) for index in range(len(prompt) // size)]
    found = {i: _found(state, gpu, row) for i, row in enumerate(rows) if i >= first} if scope.caching else {}
    hits = {index: [b for b in found[index] if state.computed[b]] for index in range(first, num_hit)}
    can_skip = first * size <= max(0, first_read(num_hit * size, scope.window))
    for sought in [hits, found | hits] if any(found[i] for i in found if i >= num_hit) else [hits]:
        for twins in _choices(sought):
            num_taken = num_entries - first - len(twins)
            for victims, can_finish in _victims(state, gpu, num_taken, twins.values()):
                operation = ("admit", seq, prompt, first, num_hit, twins, victims)
                program = _prompted(scope, seq, prompt, first, num_hit, num_entries, twins, victims)
                yield SpecCall(operation, program, can_finish and can_skip)


def _prompted(
    scope: Scope,
    seq: int,
    prompt: list[int],
    first: int,
    num_hit: int,
    num_entries: int,
    twins: Twins,
    victims: Collection[int],
) -> Callable[[State], Program]:
    size, gpu, window, caching = scope.block_size, range(scope.num_gpu_blocks), scope.window, scope.caching

    def program(work: State) -> Program:
        def named(index: int) -> int:
            return twins[index] if index in twins else _to_take(work, gpu, victims)

        if first:
            yield from operations.admit_past_window_hit(
                work, size, seq, window, prompt, first, num_hit, num_entries, named, caching
            )
        else:
            yield from operations.admit_sequence(work, size, seq, window, prompt, num_hit, num_entries, named, caching)
        yield from _computed(work, scope, seq, len(prompt) - num_hit * size)

    return program


def appends(machine: Machine, scope: Scope, state: State, seq: int, tokens: list[int]) -> Iterator[SpecCall]:
    """Append the last of `tokens`, reserve lookahead, and compute it; name a cached twin if that completes an entry."""
    size, home = scope.block_size, state.home[seq]
    pool, index = _pool(scope, home), state.num_full[seq]
    found = _found(state, pool, row_of(tokens, index, size)) if scope.caching and len(tokens) % size == 0 else []
    missing = machine.function("entries_missing")(state, seq, 1 + scope.lookahead)
    is_copied = bool(machine.function("tail_is_shared")(state, seq))
    is_new = index == state.num_blocks[seq]
    has_arrived = bool(machine.function("has_arrived")(state, seq))  # else its tokens can be known, and not computed
    for twin in [NONE, *found]:
        num_taken = missing + is_copied
        if twin != NONE:
            # The tail that the twin replaces is free by the time lookahead is reserved, unless it was shared.
            num_taken -= 1
        for victims, can_finish in _victims(state, pool, num_taken, [twin]):
            operation = ("append", seq, tokens[-1], twin, victims)
            program = _appended(scope, seq, tokens, index, is_new, twin, victims)
            yield SpecCall(operation, program, can_finish and has_arrived)


def _appended(
    scope: Scope, seq: int, tokens: list[int], index: int, is_new: bool, twin: int, victims: Collection[int]
) -> Callable[[State], Program]:
    size = scope.block_size

    def program(work: State) -> Program:
        pool = _pool(scope, work.home[seq])
        num_entries = max(work.num_blocks[seq], scope.blocks_for(len(tokens) + scope.lookahead))

        def named(at: int) -> int:
            if at == index and twin != NONE:
                return twin
            if at < work.num_blocks[seq] and (at > index or work.refcount[work.table[seq][at]] == 1):
                return work.table[seq][at]
            return _to_take(work, pool, victims)

        yield from operations.know_tokens(work, size, seq, tokens, num_entries, named, scope.caching)
        yield from operations.reserve_entries(work, seq, num_entries, named)
        yield from _computed(work, scope, seq, 1)

    return program


def swaps(scope: Scope, state: State, seqs: Sequence[int], is_sent: bool = False) -> Iterator[SpecCall]:
    """Move a group to its other pool, each block once; take up what is cached there, or not.

    What is still on the way cannot be moved on. is_sent: each block that moves is a flight until it arrives.
    """
    name = "send" if is_sent else "swap"
    pool = _pool(scope, 1 - state.home[seqs[0]])
    found: dict[int, list[int]] = {}
    for seq in seqs:
        for index in range(state.first[seq], state.num_blocks[seq]):
            is_full = scope.caching and index < state.num_full[seq]
            found[state.table[seq][index]] = _found(state, pool, state.tokens[seq][index]) if is_full else []
    for sought in [{}, found] if any(found.values()) else [{}]:
        for twins in _choices(sought):
            num_taken = len(found) - len(set(twins))
            is_ready = all(state.filler[block] == NONE for block in found)
            is_ready = is_ready and not (is_sent and num_taken > state.uses.count(NONE))
            for victims, can_finish in _victims(state, pool, num_taken, twins.values()):
                program = _swapped(scope, seqs, pool, twins, victims, is_sent)
                yield SpecCall((name, seqs, twins, victims), program, can_finish and is_ready)


def _swapped(
    scope: Scope, seqs: Sequence[int], pool: range, twins: Twins, victims: Collection[int], is_sent: bool
) -> Callable[[State], Program]:
    def program(work: State) -> Program:
        targets = dict(twins)

        def named(seq: int, index: int) -> int:
            block = work.table[seq][index]
            if block not in targets:
                targets[block] = _to_take(work, pool, victims)
            return targets[block]

        yield from operations.swap_group(work, scope.block_size, seqs, named, is_sent)

    return program


def flights(state: State, different: Sequence[int]) -> Iterator[SpecCall]:
    """A step on one of the sequences starts; a flight ends, or all transfers that are under way."""
    num_idle = state.uses.count(NONE)
    for seq in different:
        blocks = state.table[seq][state.first[seq] : state.num_blocks[seq]]
        if blocks:
            can_start = len(blocks) <= num_idle and all(state.filler[block] == NONE for block in blocks)
            yield SpecCall(("launch", seq), partial(operations.launch_step, seqs=[seq]), can_start)
    arriving = [flight for flight, block in enumerate(state.fills) if block != NONE]
    for flight, block in enumerate(state.uses):
        if block != NONE and flight not in arriving:
            yield SpecCall(("land", flight), partial(_landed, [flight]))
    for each in [*([flight] for flight in arriving), *([arriving] if len(arriving) > 1 else [])]:
        yield SpecCall(("arrive", *each), partial(_arrived, each))


def _landed(flights: Sequence[int], work: State) -> Program:
    return operations.land_step(flights)


def _arrived(flights: Sequence[int], work: State) -> Program:
    return operations.arrive(flights)


def _pool(scope: Scope, pool: int) -> range:
    gpu = scope.num_gpu_blocks
    return range(gpu) if pool == GPU else range(gpu, gpu + scope.num_host_blocks)


def _computed(state: State, scope: Scope, seq: int, num_tokens: int) -> Program:
    yield from operations.compute_tokens(state, scope.block_size, seq, num_tokens)
    if scope.caching:
        yield from operations.mark_computed(state, scope.block_size, seq, 0)


def _found(state: State, pool: range, row: list[int]) -> list[int]:
    """The blocks of the pool that are cached under the row."""
    return [block for block in pool if holds_content(state, block, row)]


def _choices(found: dict[int, list[int]]) -> Iterator[Twins]:
    """Every choice of one cached block for each place that has any."""
    places = [place for place, blocks in found.items() if blocks]
    for blocks in product(*[found[place] for place in places]):
        yield dict(zip(places, blocks, strict=True))


def _victims(state: State, pool: range, num_taken: int, kept: Iterable[int]) -> Iterator[tuple[tuple[int, ...], bool]]:
    """Which evictable blocks are taken when the free ones do not suffice, and whether all together do."""
    free = sum(state.status[block] == FREE for block in pool)
    kept = set(kept)
    evictable = [block for block in pool if state.status[block] == EVICTABLE and block not in kept]
    num_evicted = max(0, num_taken - free)
    if num_evicted > len(evictable):
        yield tuple(evictable), False
    else:
        yield from ((victims, True) for victims in combinations(evictable, num_evicted))


def _to_take(state: State, pool: range, victims: Collection[int]) -> int:
    """The lowest free block, else a victim; NONE if there is none."""
    for block in pool:
        if state.status[block] == FREE:
            return block
    return next((block for block in victims if state.status[block] == EVICTABLE), NONE)
