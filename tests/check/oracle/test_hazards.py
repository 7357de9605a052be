"""The pairs of a step that give other bytes in another order: of copies, of swaps, and beside a load from elsewhere."""

from typing import Any

import pytest

from kvproof.check.oracle.ghost_worker import Worker
from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.oracle.scheduler.judge import SchedulerJudge
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import (
    NULL_BLOCK,
    Admission,
    Assumption,
    Config,
    Observation,
    Pair,
)
from kvproof.check.protocol.manager_adapter import ManagerAdapter
from kvproof.check.protocol.scheduler import Chunk, Load, ScheduledStep, SchedulerConfig


def worker(name: str, pairs: list[Pair], contents: list[int]) -> Worker:
    made = Worker(len(contents), 1)
    made.slots = [[content] for content in contents]
    setattr(made, name, pairs)
    return made


def contents_of(name: str, pairs: list[Pair], contents: list[int]) -> list[list[int]]:
    """The contents after the step, in the worker's own order and then in each other one."""
    one = worker(name, pairs, contents)
    others = [other for _, other in one.in_other_orders(0)]
    one.execute(0)
    return [[slot for (slot,) in each.slots] for each in (one, *others)]


@pytest.mark.parametrize("name", ["swap_in", "swap_out", "copies"])
def test_two_pairs_that_write_one_block_are_tried_in_both_orders(name: str) -> None:
    assert contents_of(name, [(0, 2), (1, 2)], [5, 6, 7]) == [[5, 6, 6], [5, 6, 5]]


def test_a_copy_that_a_call_lists_many_times_is_one() -> None:
    one = worker("copies", [(0, 1)], [5, 6, 7])
    one.copy([(0, 2), [0, 2], (0, 2), (1, 2)])
    assert one.copies == [(0, 1), (0, 2), (1, 2)]


@pytest.mark.parametrize("name", ["swap_in", "swap_out", "copies"])
def test_pairs_that_commute_are_tried_in_no_other_order(name: str) -> None:
    assert contents_of(name, [(0, 2), (1, 3), (0, 2)], [5, 6, 7, 8]) == [[5, 6, 5, 6]]


def test_an_order_between_the_given_one_and_its_reverse_is_tried() -> None:
    first, reverse, *others = contents_of("copies", [(0, 1), (1, 2), (3, 1)], [5, 6, 7, 5])
    assert first == reverse == [5, 5, 5, 5]
    assert [5, 5, 6, 5] in others  # block 1 is read before either pair writes it


def test_of_many_pairs_that_disturb_each_other_each_comes_first_and_last() -> None:
    found = contents_of("copies", [(source, 5) for source in range(5)], [0, 1, 2, 3, 4, 9])
    assert len(found) == 1 + 1 + 2 * 5
    assert {after[5] for after in found} == {0, 1, 2, 3, 4}


# Swaps --------------------------------------------------------------------------------------------------------------


class Eager(ManagerAdapter):
    """Blocks of one slot and a window of one token; a block that is free is taken at once, the lowest first."""

    name = "eager"
    capabilities = Capabilities(swap=True, window=True)

    def make(self, config: Config) -> object:
        self.free_gpu = [*range(config.num_gpu_blocks)]
        self.free_host = [*range(config.num_gpu_blocks, config.num_gpu_blocks + config.num_host_blocks)]
        self.table: dict[int, list[int]] = {}
        return self.table

    def can_admit(self, group: int) -> Admission:
        return Admission.OK

    can_swap_out = can_swap_in = can_admit

    def can_append(self, group: int) -> bool:
        return True

    def allocate(self, seq: int, tokens: list[int]) -> None:
        self.table[seq] = [self.free_gpu.pop(0) for _ in tokens]

    def append(self, seq: int, num_tokens: int) -> None:
        *before, left = self.table[seq]
        self.table[seq] = [*[NULL_BLOCK] * len(before), NULL_BLOCK, self.free_gpu.pop(0)]
        self.free_gpu = sorted([*self.free_gpu, left])

    def release(self, seq: int) -> None:
        self.free_gpu = sorted([*self.free_gpu, *(b for b in self.table.pop(seq) if b != NULL_BLOCK)])

    def _move(self, group: int, sources: list[int], targets: list[int]) -> list[Pair]:
        (seq,) = self.groups[group]
        table = self.table[seq]
        self.table[seq] = [targets.pop(0) for _ in table]
        sources += table
        sources.sort()
        gpu = self.config.num_gpu_blocks
        return [(one % gpu, other % gpu) for one, other in zip(table, self.table[seq], strict=True)]

    def swap_out(self, group: int) -> list[Pair]:
        return self._move(group, self.free_gpu, self.free_host)

    def swap_in(self, group: int) -> list[Pair]:
        return self._move(group, self.free_host, self.free_gpu)

    def tables(self) -> dict[int, list[int]]:
        return self.table

    def num_free(self) -> int:
        return len(self.free_gpu)

    def num_free_host(self) -> int:
        return len(self.free_host)


LANDING = [
    *[("new", 1, (1,), (3,)), ("admit", 1, 1), ("run", 1), ("sample", 1, (5,)), ("swap_out", 1), ("run", 1)],
    *[("new", 2, (2,), (7,)), ("admit", 2, 1), ("run", 1), ("swap_out", 2), ("run", 1)],
    *[("swap_in", 1), ("swap_in", 2)],
]


def test_two_swaps_in_of_one_step_that_land_on_one_block_are_a_finding() -> None:
    judge = ManagerJudge(Eager(), Config(block_size=1, num_gpu_blocks=4, num_host_blocks=4, window=1))
    for operation in LANDING:
        assert judge.apply(operation), operation
    assert judge.worker.swap_in == [(4, 0), (5, 0)]
    with pytest.raises(Finding) as caught:
        judge.apply(("run", 1))
    assert caught.value.property == "mapping-hazard-free"
    assert caught.value.call == "swap_in in the order [(5, 0), (4, 0)]"
    assert caught.value.blocks == (0,)


def test_two_swaps_in_of_one_step_onto_two_blocks_are_none() -> None:
    judge = ManagerJudge(Eager(), Config(block_size=1, num_gpu_blocks=4, num_host_blocks=4, window=1))
    for operation in [*LANDING[:3], *LANDING[4:], ("run", 1)]:  # no token is sampled: nothing leaves the window
        assert judge.apply(operation), operation


# Loads --------------------------------------------------------------------------------------------------------------


class Loads:
    """Runs request 1; when request 2 has arrived, it swaps 1 out and loads the KV of 2 into `block`."""

    name = "loads"
    capabilities = Capabilities(swap=True, transfers=True)
    assumptions: tuple[Assumption, ...] = ()

    def __init__(self, block: int) -> None:
        self.block = block

    def open(self, config: SchedulerConfig) -> None:
        self.config, self.num_requests = config, 0
        self.tables: dict[int, list[list[int]]] = {}

    def add_request(self, *arguments: Any) -> None:
        self.num_requests += 1

    def elsewhere(self, *arguments: Any) -> None: ...
    def arrived(self, *arguments: Any) -> None: ...
    def complete(self, *arguments: Any) -> None: ...
    def abort(self, request: int) -> None: ...
    def launch(self) -> None: ...

    def schedule(self) -> ScheduledStep:
        if self.num_requests == 1:
            self.tables = {1: [[0]]}
            return ScheduledStep([Chunk(1, 0, 1)])
        self.tables = {1: [[self.config.num_gpu_blocks]], 2: [[self.block]]}
        return ScheduledStep(swap_out=[(0, 0)], loads=[Load(2, 0, 1)])

    def observe(self) -> Observation:
        gpu, host = self.config.num_gpu_blocks, self.config.num_host_blocks
        used = [table[0] for (table,) in self.tables.values()]
        num_gpu = sum(block < gpu for block in used)
        return Observation(dict(self.tables), (gpu - num_gpu, host - len(used) + num_gpu))


def step_with_a_load_into(block: int) -> None:
    config = SchedulerConfig(block_size=2, num_gpu_blocks=4, num_host_blocks=4, transfers=True)
    judge = SchedulerJudge(Loads(block), config)
    plain = ((None, 0, None), (), None)
    first = [("add", 1, (1,), (3,), 4, *plain, (0, False)), ("schedule",), ("launch",), ("complete", (5,))]
    for operation in [*first, ("add", 2, (2,), (7, 7), 4, *plain, (1, False)), ("schedule",)]:
        assert judge.apply(operation), operation


def test_a_load_into_a_block_that_the_same_step_swaps_out_is_a_finding() -> None:
    with pytest.raises(Finding) as caught:
        step_with_a_load_into(0)
    assert caught.value.property == "mapping-hazard-free"
    assert caught.value.text == "schedule(): the load of sequence 2 writes block 0 while the step copies 0 -> 4"


def test_a_load_into_a_block_that_the_step_does_not_move_is_none() -> None:
    step_with_a_load_into(1)
