"""Moves run in plain Python, with no solver and no formula: what the theorems and examples are held against.

Blocks are integers, each holds its own number at first, and a memory is a dict from block to what it holds now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

Move = tuple[int, int]  # source, target
Memory = dict[int, int]


def tagged(moves: Iterable[Move]) -> Memory:
    """Every block that the moves name, with its own number in it."""
    return {block: block for move in moves for block in move}


def one_after_the_other(moves: Sequence[Move]) -> Memory:
    """The memory after each move in turn."""
    memory = tagged(moves)
    for source, target in moves:
        memory[target] = memory[source]
    return memory


def all_read_first(moves: Sequence[Move]) -> Memory:
    """The memory if all sources are read before the first target is written, targets in the order of the list."""
    memory = tagged(moves)
    return memory | {target: memory[source] for source, target in moves}


def every_interleaving(moves: Sequence[Move]) -> list[Memory]:
    """The memories that threads can leave, one for each move, which read and later write. Each once."""
    found: list[Memory] = []

    def run(memory: Memory, registers: dict[int, int], done: frozenset[int]) -> None:
        if len(done) == len(moves) and memory not in found:
            found.append(memory)
        for number, (source, target) in enumerate(moves):
            if number in registers and number not in done:
                run(memory | {target: registers[number]}, registers, done | {number})
            elif number not in registers:
                run(memory, registers | {number: memory[source]}, done)

    run(tagged(moves), {}, frozenset())
    return found


def lists_in_order(lists: Iterable[Sequence[Move]], blocks: Iterable[Move]) -> Memory:
    """The memory after whole lists, each of which reads first and then writes; `blocks` names all that there are."""
    memory = tagged(blocks)
    for moves in lists:
        memory = memory | {target: memory[source] for source, target in moves}
    return memory


def shapes(num_moves: int) -> list[tuple[Move, ...]]:
    """Every list of so many moves, once for all that differ only in the names of blocks."""
    numberings: list[tuple[int, ...]] = [()]
    for _ in range(2 * num_moves):
        numberings = [(*one, new) for one in numberings for new in range(max(one, default=-1) + 2)]
    return [tuple(zip(one[::2], one[1::2], strict=True)) for one in numberings]


def pairs_of(moves: Sequence[Move]) -> list[tuple[Move, Move]]:
    """Every two moves, in the order of the list."""
    return list(combinations(moves, 2))
