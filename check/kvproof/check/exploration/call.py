"""One operation as it is tried: its program with all choices made, and whether the pool has what it takes.

What an operation takes is told from the state before it, by the arithmetic of admission: one block for each entry that
it adds, one to replace a shared tail, less what is hit or shared. Blocks that are hit or shared are not evicted for
it; those of them that were evictable are no longer there to be taken.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from kvproof.check.exploration.firing import Operation
from kvproof.check.scopes import Scope
from kvproof.spec.native import Machine
from kvproof.spec.operations import (
    Firing,
    Program,
    admit_sequence,
    compute_tokens,
    holds_content,
    know_tokens,
    mark_computed,
    reserve_entries,
    row_of,
    swap_group,
)
from kvproof.spec.state import EVICTABLE, FREE, GPU, NONE, State


@dataclass(frozen=True)
class Call:
    """An operation as data, its program on a state, and whether it must finish."""

    operation: Operation
    program: Callable[[State], Iterator[Firing]]
    can_finish: bool = True


def planned_prompt(
    machine: Machine, scope: Scope, state: State, seq: int, prompt: list[int], num_hit: int, is_sharing: bool
) -> Call:
    """Admit a prompt: hit its first entries, share what is cached of the others or not, and compute the rest."""
    size = scope.block_size
    gpu = range(scope.num_gpu_blocks)
    num_entries = -(-(len(prompt) + (scope.lookahead if prompt else 0)) // size)
    num_shared_max = len(prompt) // size if is_sharing else num_hit
    twins: dict[int, int] = {}
    for index in range(num_shared_max):
        twin = _found(state, gpu, row_of(prompt, index, size), must_be_computed=index < num_hit)
        if twin != NONE:
            twins[index] = twin
    can_finish = num_entries - len(twins) <= _available(machine, state, GPU, twins.values())

    def program(work: State) -> Program:
        def named(index: int) -> int:
            return twins[index] if index in twins else _to_take(work, gpu, twins.values())

        yield from admit_sequence(work, size, seq, scope.window, prompt, num_hit, num_entries, named, scope.caching)
        yield from _computed(work, scope, seq, len(prompt) - num_hit * size)

    return Call(("admit", seq, prompt, num_hit, is_sharing), program, can_finish)


def planned_append(machine: Machine, scope: Scope, state: State, seq: int, tokens: list[int], is_sharing: bool) -> Call:
    """Append the last of `tokens`, reserve lookahead, and compute it; name a cached twin if that completes an entry."""
    size = scope.block_size
    home = state.home[seq]
    pool = _pool(scope, home)
    index = state.num_full[seq]
    num_entries = max(state.num_blocks[seq], -(-(len(tokens) + scope.lookahead) // size))
    twin = NONE
    if is_sharing and len(tokens) % size == 0:
        twin = _found(state, pool, row_of(tokens, index, size))
    num_taken = machine.word("entries_missing")(state, seq, 1 + scope.lookahead)
    num_taken += machine.word("tail_is_shared")(state, seq)
    available = _available(machine, state, home, [twin])
    if twin != NONE:
        is_new = index == state.num_blocks[seq]
        num_taken -= is_new or state.refcount[state.table[seq][index]] > 1
        # The tail that the twin replaces is free by the time lookahead is reserved.
        available += not is_new and state.refcount[state.table[seq][index]] == 1

    def program(work: State) -> Program:
        def named(at: int) -> int:
            if at == index and twin != NONE:
                return twin
            if at < work.num_blocks[seq] and (at > index or work.refcount[work.table[seq][at]] == 1):
                return work.table[seq][at]
            return _to_take(work, pool, [twin])

        yield from know_tokens(work, size, seq, tokens, num_entries, named, scope.caching)
        yield from reserve_entries(work, seq, num_entries, named)
        yield from _computed(work, scope, seq, 1)

    return Call(("append", seq, tokens[-1], is_sharing), program, num_taken <= available)


def planned_swap(machine: Machine, scope: Scope, state: State, seqs: Sequence[int], is_rehitting: bool) -> Call:
    """Move a group to its other pool, each block once; take up what is cached there, or not."""
    other = 1 - state.home[seqs[0]]
    pool = _pool(scope, other)
    twins: dict[int, int] = {}
    moved: set[int] = set()
    for seq in seqs:
        for index in range(state.first[seq], state.num_blocks[seq]):
            block = state.table[seq][index]
            if is_rehitting and index < state.num_full[seq]:
                twin = _found(state, pool, state.tokens[seq][index])
                if twin != NONE:
                    twins[block] = twin
            moved.add(block)
    can_finish = len(moved) - len(twins) <= _available(machine, state, other, twins.values())

    def program(work: State) -> Program:
        targets = dict(twins)

        def named(seq: int, index: int) -> int:
            block = work.table[seq][index]
            if block not in targets:
                targets[block] = _to_take(work, pool, twins.values())
            return targets[block]

        yield from swap_group(work, scope.block_size, seqs, named)

    return Call(("swap", *seqs, "rehit" if is_rehitting else "move"), program, can_finish)


def _pool(scope: Scope, pool: int) -> range:
    gpu = scope.num_gpu_blocks
    return range(gpu) if pool == GPU else range(gpu, gpu + scope.num_host_blocks)


def _computed(state: State, scope: Scope, seq: int, num_tokens: int) -> Program:
    yield from compute_tokens(state, scope.block_size, seq, num_tokens)
    if scope.caching:
        yield from mark_computed(state, scope.block_size, seq, 0)


def _found(state: State, pool: range, row: list[int], must_be_computed: bool = False) -> int:
    """The lowest block of the pool that is cached under the row."""
    for block in pool:
        if holds_content(state, block, row) and (state.computed[block] or not must_be_computed):
            return block
    return NONE


def _available(machine: Machine, state: State, pool: int, kept: Collection[int]) -> int:
    """Blocks of the pool that can be taken, when those of `kept` that are evictable may not."""
    unused: int = machine.word("unused_in")(state, pool)
    return unused - sum(block != NONE and state.status[block] == EVICTABLE for block in set(kept))


def _to_take(state: State, pool: range, kept: Collection[int]) -> int:
    """The lowest free block, else the lowest evictable one that is not kept; NONE if there is none."""
    for block in pool:
        if state.status[block] == FREE:
            return block
    for block in pool:
        if state.status[block] == EVICTABLE and block not in kept:
            return block
    return NONE
