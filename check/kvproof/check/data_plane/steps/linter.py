"""A mapping is looked at before a byte moves; what a worker cannot do rightly is refused.

A worker executes swaps in, swaps out, copies, each list in any order within itself: a kernel does all pairs at once.
So within a list no block may be written twice, nor, within one pool, written and read: what comes of that is undefined,
and it is refused. Between lists the order decides, so that every outcome is defined, but it may not be the one that was
meant: a block that is swapped in over and swapped out in one step is lost if what it held before was meant to be saved.
Numbers alone do not tell, so this is said, and not refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvproof.check.data_plane.steps.moves import Moves, Pair, PoolId

RULES = {
    "id-out-of-range": "every id lies in its pool",
    "absolute-id": "ids of a swap count from 0 in each pool",
    "target-twice": "no block is the target of two pairs of a list",
    "copied-onto-itself": "a copy has two different blocks",
    "target-read": "no block is both target and source of one list of copies",
    "swapped-in-too-early": "a block that is swapped out is not swapped in over in the same step, which comes first",
    "written-by-two-lists": "no block is the target of a swap in and of a copy in one step",
}
DEFINED = frozenset({"swapped-in-too-early", "written-by-two-lists"})


@dataclass(frozen=True)
class Complaint:
    """What is wrong with one step's mapping: the rule, the list, the pair, and a sentence."""

    rule: str
    list_name: str
    pair: Pair
    text: str

    @property
    def refuses(self) -> bool:
        """Whether what comes of the mapping is undefined, so that nothing may move."""
        return self.rule not in DEFINED


def lint(moves: Moves, num_gpu_blocks: int, num_cpu_blocks: int) -> list[Complaint]:
    """Everything that is wrong, in the order of the lists."""
    sizes = {PoolId.GPU: num_gpu_blocks, PoolId.CPU: num_cpu_blocks}
    found = list(_out_of_range(moves, sizes))
    for name, source, target, pairs in moves.lists():
        found += _twice(name, target, pairs)
        if source is target:
            found += _read_and_written(name, pairs)
    return found + list(_between_lists(moves))


def _out_of_range(moves: Moves, sizes: dict[PoolId, int]) -> Iterator[Complaint]:
    for name, source, target, pairs in moves.lists():
        for pair in pairs:
            for block, pool in zip(pair, (source, target), strict=True):
                if 0 <= block < sizes[pool]:
                    continue
                where = f"{name} pair {pair[0]} -> {pair[1]}: {pool} has no block {block}, only 0 to {sizes[pool] - 1}"
                relative = block - sizes[PoolId.GPU]
                if pool is PoolId.CPU and 0 <= relative < sizes[pool]:
                    hint = f"; counted over both pools it would be its block {relative}"
                    yield Complaint("absolute-id", name, pair, where + hint)
                else:
                    yield Complaint("id-out-of-range", name, pair, where)


def _twice(name: str, pool: PoolId, pairs: tuple[Pair, ...]) -> Iterator[Complaint]:
    sources: dict[int, int] = {}
    for source, target in pairs:
        if target in sources:
            text = f"{name} writes block {target} of {pool} twice, from block {sources[target]} and from block {source}"
            yield Complaint("target-twice", name, (source, target), text)
        sources.setdefault(target, source)


def _read_and_written(name: str, pairs: tuple[Pair, ...]) -> Iterator[Complaint]:
    writer = {target: (source, target) for source, target in pairs}
    for source, target in pairs:
        if source == target:
            yield Complaint("copied-onto-itself", name, (source, target), f"{name} copies block {source} onto itself")
        elif source in writer:
            first = writer[source]
            text = f"{name} writes block {source} by {first[0]} -> {first[1]} and reads it by {source} -> {target}"
            yield Complaint("target-read", name, (source, target), text)


def _between_lists(moves: Moves) -> Iterator[Complaint]:
    into = {target: source for source, target in moves.swap_in}
    for source, target in moves.swap_out:
        if source in into:
            text = (
                f"block {source} of the GPU pool is swapped in over from block {into[source]} before it is swapped out "
                f"to block {target}"
            )
            yield Complaint("swapped-in-too-early", "swap_out", (source, target), text)
    for source, target in moves.copy:
        if target in into:
            text = f"block {target} of the GPU pool is swapped in from block {into[target]} and copied to from {source}"
            yield Complaint("written-by-two-lists", "copy", (source, target), text)
