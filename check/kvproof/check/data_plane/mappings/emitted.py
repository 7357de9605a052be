"""The mappings that a block manager emits for its worker in random runs, with ids that count from 0 in each pool.

Those of kvproof's own manager, and those of any other whose walk has kept its lists (`SearchResult.moved`). The walker
has compared what the worker did with the specification; here the lists move bytes.
"""

from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from random import Random

from kvproof.check.data_plane.steps.moves import Moves, Pair, Step
from kvproof.check.protocol.manager import Config
from kvproof.check.search.manager_operations import RUN_LENGTH, ManagerOperations
from kvproof.check.search.result import MovedLists, SearchResult
from kvproof.check.subjects.builtin.manager import BuiltIn

NAMES = ("walked",)
CONFIG, NUM_RUNS = Config(block_size=2, num_gpu_blocks=16, num_host_blocks=16), 24  # of kvproof's own


def steps_of(num_gpu_blocks: int, num_cpu_blocks: int) -> list[Step]:
    """The steps of kvproof's own manager that fit pools of these sizes."""
    return steps_within(_of_our_own(), num_gpu_blocks, num_cpu_blocks)


@lru_cache(maxsize=1)
def _of_our_own() -> tuple[MovedLists, ...]:
    done = SearchResult()
    for number in range(NUM_RUNS):
        run = ManagerOperations(BuiltIn(), Random(number), CONFIG)
        run.run([], RUN_LENGTH)
        for lists in run.moved:
            done.keep_moved(lists)
    return tuple(chain(*done.moved.values()))


def steps_within(moved: Iterable[MovedLists], num_gpu_blocks: int, num_cpu_blocks: int) -> list[Step]:
    """The steps with these lists, as far as they fit pools of these sizes."""
    steps = (Moves(*(tuple(zip(blocks[::2], blocks[1::2], strict=True)) for blocks in lists)) for lists in moved)
    return [Step(moves) for moves in steps if _fits(moves, num_gpu_blocks, num_cpu_blocks)]


def _fits(moves: Moves, num_gpu_blocks: int, num_cpu_blocks: int) -> bool:
    def within(pairs: tuple[Pair, ...], num_sources: int, num_targets: int) -> bool:
        return all(0 <= source < num_sources and 0 <= target < num_targets for source, target in pairs)

    return (
        within(moves.swap_in, num_cpu_blocks, num_gpu_blocks)
        and within(moves.swap_out, num_gpu_blocks, num_cpu_blocks)
        and within(moves.copy, num_gpu_blocks, num_gpu_blocks)
    )
