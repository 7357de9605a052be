"""Two properties that the walker does not check.

The swap-ins of a step land on different blocks: the walker executes them in their order, and a worker may use any
order. So no two of them may land on one block, even if the block was released in between.

The number of blocks that are not marked as computed is that of all tables together: if it were too small, a call that
marks blocks would return too early, and hits would be lost.
"""

from __future__ import annotations

from kvproof.check.protocol.manager import Config, Pair, Scheduled
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import MANAGERS
from kvproof.check.subjects.builtin.manager import BuiltIn

# With one lookahead slot, the window drops a block in one append and the table takes a block in another.
DROPS_WITHOUT_TAKING = {"window": 1, "block_size": 2, "lookahead": 1, "num_host_blocks": 9}


class DistinctLandings(BuiltIn):
    """The block manager with an assertion that the swap-ins of one step land on different blocks."""

    landed: set[int]
    num_beside = 0  # number of swap-ins that were not the first of their step

    def open(self, config: Config) -> None:
        self.landed = set()
        super().open(config)

    def swap_in(self, group: int) -> list[Pair]:
        pairs = super().swap_in(group)
        targets = {target for _, target in pairs}
        assert not targets & self.landed, f"two swap-ins land on {targets & self.landed}"
        self.num_beside += bool(self.landed)
        self.landed |= targets
        return pairs

    def step_done(self, step: list[Scheduled]) -> None:
        self.landed.clear()
        super().step_done(step)


def test_two_swap_ins_of_a_step_land_on_different_blocks() -> None:
    subject = DistinctLandings()
    done = walk(MANAGERS, subject, 2, max_operations=10_000, seconds=200, fixed=DROPS_WITHOUT_TAKING)
    assert done.finding is None
    assert subject.num_beside > 10


class CountedMarks(BuiltIn):
    """The block manager with an assertion that it knows how many blocks are not marked."""

    num_unmarked_max = 0

    def step_done(self, step: list[Scheduled]) -> None:
        super().step_done(step)
        num_unmarked = sum(table.num_unmarked for table in self.manager.tables.values())
        assert self.manager._num_unmarked == num_unmarked
        self.num_unmarked_max = max(self.num_unmarked_max, num_unmarked)


def test_the_number_of_blocks_that_are_not_marked_is_that_of_all_tables() -> None:
    subject = CountedMarks()
    done = walk(MANAGERS, subject, 1, max_operations=4_000, seconds=200, fixed={"caching": True, "group_size": 2})
    assert done.finding is None
    assert subject.num_unmarked_max > 3
