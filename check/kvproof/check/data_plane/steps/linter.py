"""Check a mapping before bytes move, and refuse one that has no defined result.

A worker executes the swaps in, then the swaps out, then the copies, but the pairs of one list in any order: a kernel
does them all at once. So within a list no block may be written twice, and within one pool no block may be both written
and read. The result would be undefined, and the mapping is refused.

Between lists the order is fixed, so the result is defined, but it may not be the intended one. For example, when a
block is overwritten by a swap in and swapped out in the same step, its earlier content is lost. Whether that was
intended cannot be seen from the ids, so the linter warns and does not refuse.

Each run tests the linter itself: on wrong mappings, each with the rule that must reject it, and on right mappings that
no rule may reject. Sources are given as project and number of the issue or pull request.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kvproof.check.data_plane.run.results import LintResult
from kvproof.check.data_plane.steps.moves import Moves, Pair, PoolId
from kvproof.spec.text import mapping

RULES = {
    "id-out-of-range": "every id lies in its pool",
    "absolute-id": "ids of a swap count from 0 in each pool",
    "target-twice": "no block is the target of two pairs of a list",
    "copied-onto-itself": "a copy has two different blocks",
    "target-read": "no block is both target and source of one list of copies",
    "swapped-in-too-early": "no swap in overwrites a block that the same step swaps out, as swaps in run first",
    "written-by-two-lists": "no block is the target of a swap in and of a copy in one step",
}
DEFINED = frozenset({"swapped-in-too-early", "written-by-two-lists"})

NUM_GPU_BLOCKS, NUM_CPU_BLOCKS = 8, 6


@dataclass(frozen=True)
class Complaint:
    """A rule that the mapping of one step breaks: the rule, the pair, and a sentence for the reader."""

    rule: str
    pair: Pair
    text: str

    @property
    def refuses(self) -> bool:
        """Whether the result of the mapping is undefined, so that nothing may move."""
        return self.rule not in DEFINED


def lint(moves: Moves, num_gpu_blocks: int, num_cpu_blocks: int) -> list[Complaint]:
    """All complaints about the moves of one step, in the order of the lists."""
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
                if mapping.is_block_of(block, sizes[pool]):
                    continue
                where = f"{name} pair {pair[0]} -> {pair[1]}: {pool} has no block {block}, only 0 to {sizes[pool] - 1}"
                relative = block - sizes[PoolId.GPU]
                if pool is PoolId.CPU and mapping.is_block_of(relative, sizes[pool]):
                    hint = f"; if ids count over both pools, it is block {relative}"
                    yield Complaint("absolute-id", pair, where + hint)
                else:
                    yield Complaint("id-out-of-range", pair, where)


# The words decide whether two pairs disturb each other; the dictionaries only spare looking at every two pairs.


def _twice(name: str, pool: PoolId, pairs: tuple[Pair, ...]) -> Iterator[Complaint]:
    writer: dict[int, Pair] = {}
    for pair in pairs:
        source, target = pair
        first = writer.get(target)
        if first is not None and mapping.write_one_block(first[1], target):
            text = f"{name} writes block {target} of {pool} twice, from block {first[0]} and from block {source}"
            yield Complaint("target-twice", pair, text)
        writer.setdefault(target, pair)


def _read_and_written(name: str, pairs: tuple[Pair, ...]) -> Iterator[Complaint]:
    writer = {target: (source, target) for source, target in pairs}
    for pair in pairs:
        source, target = pair
        if mapping.is_self_copy(source, target):
            yield Complaint("copied-onto-itself", pair, f"{name} copies block {source} onto itself")
        elif source in writer and mapping.reads_what_was_written(writer[source][1], source):
            first = writer[source]
            text = f"{name} writes block {source} by {first[0]} -> {first[1]} and reads it by {source} -> {target}"
            yield Complaint("target-read", pair, text)


def _between_lists(moves: Moves) -> Iterator[Complaint]:
    landing = {target: (source, target) for source, target in moves.swap_in}
    for source, target in moves.swap_out:
        if source in landing and mapping.reads_what_was_written(landing[source][1], source):
            text = (
                f"block {source} of the GPU pool is overwritten by a swap in from block {landing[source][0]} before it "
                f"is swapped out to block {target}"
            )
            yield Complaint("swapped-in-too-early", (source, target), text)
    for source, target in moves.copy:
        if target in landing and mapping.write_one_block(landing[target][1], target):
            text = (
                f"block {target} of the GPU pool is the target of a swap in from block {landing[target][0]} and of a "
                f"copy from block {source}"
            )
            yield Complaint("written-by-two-lists", (source, target), text)


@dataclass(frozen=True)
class LintCase:
    """A mapping. rule: the rule of the first complaint that the linter must make; empty if it must make none."""

    name: str
    sentence: str
    moves: Moves
    rule: str


CASES: tuple[LintCase, ...] = (
    LintCase(
        "past-the-pool",
        "A swap out to a host block that does not exist (vLLM 50443).",
        Moves(swap_out=((0, 0), (1, 511))),
        "id-out-of-range",
    ),
    LintCase("negative", "An id below 0, which indexing would wrap.", Moves(copy=((0, 1), (-1, 2))), "id-out-of-range"),
    LintCase(
        "absolute",
        "Host ids counted over both pools (vLLM 3834).",
        Moves(swap_in=((NUM_GPU_BLOCKS + 2, 0),)),
        "absolute-id",
    ),
    LintCase("doubled-target", "Two blocks to one place.", Moves(swap_out=((0, 3), (1, 3))), "target-twice"),
    LintCase("chained-copies", "A copy of a copy in one list.", Moves(copy=((0, 1), (1, 2))), "target-read"),
    LintCase("exchanged", "Two blocks copied onto each other.", Moves(copy=((0, 1), (1, 0))), "target-read"),
    LintCase("itself", "A block copied onto itself.", Moves(copy=((4, 4),)), "copied-onto-itself"),
    LintCase(
        "lost-before-saved",
        "A block is overwritten by a swap in before it is swapped out.",
        Moves(swap_in=((5, 5),), swap_out=((5, 2),)),
        "swapped-in-too-early",
    ),
    LintCase(
        "two-writers",
        "A block is the target of a swap in and of a copy.",
        Moves(swap_in=((0, 3),), copy=((1, 3),)),
        "written-by-two-lists",
    ),
    LintCase(
        "right",
        "A shared source, and reuse of a block that was read before.",
        Moves(((1, 5),), ((7, 1),), ((0, 2), (0, 3))),
        "",
    ),
    LintCase("empty", "Nothing is moved.", Moves(), ""),
)


def judge_lints() -> list[LintResult]:
    """Lint every case. The message of a result is empty if the linter missed a fault or rejected a right mapping."""
    found = []
    for case in CASES:
        complaints = lint(case.moves, NUM_GPU_BLOCKS, NUM_CPU_BLOCKS)
        if case.rule:
            message = complaints[0].text if complaints and complaints[0].rule == case.rule else ""
            sentence = f"{case.sentence} Rule: {RULES[case.rule]}."
        else:
            message, sentence = "" if complaints else "no complaint, as expected", case.sentence
        found.append(LintResult(case.name, sentence, message))
    return found
