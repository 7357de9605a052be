"""The passes of the shrinker: which candidates they propose, at each level."""

from collections.abc import Callable
from typing import Any

import pytest

from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.pool import PoolConfig
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.search import shrinking
from kvproof.check.search.shrinking import Shrinker
from kvproof.spec.trace import Operation

STEP: list[Operation] = [("schedule",), ("launch",), ("complete", (7,))]
Refutes = Callable[[Config, list[Operation]], bool]
Shrink = Callable[[Any, Config, list[Operation], Refutes], Counterexample]


@pytest.fixture
def shrink(monkeypatch: pytest.MonkeyPatch) -> Shrink:
    """Run one pass on a subject that refutes the runs that are named."""

    def run(one: Any, config: Config, operations: list[Operation], refutes: Refutes) -> Counterexample:
        finding = Finding("read-back", "wrong")
        monkeypatch.setattr(shrinking, "finding_of", lambda _, config, run: finding if refutes(config, run) else None)
        shrinker = Shrinker(None, Counterexample(config, operations, finding), 1e12)
        one(shrinker)
        return shrinker.best

    return run


def names(operations: list[Operation]) -> list[str]:
    return [operation[0] for operation in operations]


def test_a_drain_stands_for_all_that_follows_the_stop(shrink: Shrink) -> None:
    run: list[Operation] = [("add", 1, (1,), (0,), 3), *STEP, ("stop",), *STEP, *STEP]
    found = shrink(shrinking.drain_at_once, SchedulerConfig(), run, lambda _, run: run[-1] == ("drain", (7,)))
    assert found.operations == [*run[:4], ("drain", (7,))]


def test_delta_debugging_keeps_the_needed_operations_in_their_order(shrink: Shrink) -> None:
    run: list[Operation] = [("free", number) for number in range(20)]
    needed = [("free", 3), ("free", 11), ("free", 17)]
    found = shrink(shrinking.fewer_operations, Config(), run, lambda _, run: set(needed) <= set(run))
    assert found.operations == needed


def test_each_setting_takes_its_plainest_value_that_still_refutes(shrink: Shrink) -> None:
    config = Config(block_size=4, num_gpu_blocks=9, caching=True, lookahead=5)
    found = shrink(shrinking.plainer_settings, config, [("run", 0)], lambda c, _: c.caching and c.num_gpu_blocks > 2)
    assert found.config == Config(block_size=1, num_gpu_blocks=3, caching=True)


def test_one_holder_of_a_pool_stands_for_two(shrink: Shrink) -> None:
    """The fault needs two holders that give up in one call; one of them got its blocks from a third."""
    run: list[Operation] = [("store", 1, (0,)), ("reuse", 2, (0,)), ("share", 1, 3), ("give", 1), ("give", 2, (3,))]

    def refutes(config: Config, run: list[Operation]) -> bool:
        return run[-1][0] == "give" and len(run[-1]) == 3 and len(set(names(run)) & {"store", "reuse"}) == 2

    found = shrink(shrinking.one_holder_for_two, PoolConfig(caching=True), run, refutes)
    assert found.operations == [("store", 1, (0,)), ("reuse", 2, (0,)), ("give", 2, (1,))]


def test_a_slice_goes_and_its_samples_become_a_longer_prompt(shrink: Shrink) -> None:
    """The fault needs three tokens, which the walk sampled one by one."""
    run: list[Operation] = [("new", 1, (1,), (0,)), ("admit", 1, 1), ("run", 0)]
    run += [("sample", 1, (5,)), ("append", 1), ("run", 0), ("sample", 1, (6,)), ("append", 1), ("run", 0)]

    def refutes(config: Config, run: list[Operation]) -> bool:
        tokens = len(run[0][3]) + names(run).count("sample") if names(run)[:2] == ["new", "admit"] else 0
        return tokens == 3

    found = shrink(shrinking.without_slices, Config(), run, refutes)
    assert found.operations == [("new", 1, (1,), (0, 5, 6)), ("admit", 1, 1)]


def test_a_step_of_a_scheduler_goes_and_its_token_joins_one_prompt_or_all() -> None:
    run: list[Operation] = [("add", 1, (1,), (0,), 3), ("add", 2, (2,), (1,), 1), *STEP, ("abort", 1)]
    longer: Operation = ("add", 1, (1,), (0, 7), 2)
    other: Operation = ("add", 2, (2,), (1, 7), 1)
    assert list(shrinking.without_slice(run, 2, 3)) == [
        [*run[:2], run[-1]],
        [longer, run[1], run[-1]],
        [run[0], other, run[-1]],
        [longer, other, run[-1]],
    ]


def test_a_group_is_sampled_for_as_few_members_as_refute(shrink: Shrink) -> None:
    found = shrink(shrinking.fewer_samples, Config(), [("sample", 1, (3, 2, 1))], lambda _, run: len(run[0][2]) > 1)
    assert found.operations == [("sample", 1, (3, 2))]


def test_a_pool_that_must_be_full_shrinks_with_the_prompt_that_fills_it(shrink: Shrink) -> None:
    def is_full(config: Config, run: list[Operation]) -> bool:
        return len(run[0][3]) == config.num_gpu_blocks * config.block_size

    run: list[Operation] = [("new", 1, (1,), (0,) * 32), ("admit", 1, 32)]
    found = shrink(shrinking.smaller_pools, Config(block_size=4, num_gpu_blocks=8), run, is_full)
    assert (found.config.num_gpu_blocks, found.operations[0][3]) == (1, (0,) * 4)


def test_a_pool_of_ids_shrinks_with_the_holders_that_fill_it(shrink: Shrink) -> None:
    def is_full(config: Config, run: list[Operation]) -> bool:
        return bool(run[0][2] + len(run[1][2]) == config.num_gpu_blocks)

    run: list[Operation] = [("take", 1, 6), ("store", 2, (0, 1))]
    found = shrink(shrinking.smaller_pools, PoolConfig(num_gpu_blocks=8), run, is_full)
    assert (found.config.num_gpu_blocks, found.operations) == (2, [("take", 1, 1), ("store", 2, (0,))])
