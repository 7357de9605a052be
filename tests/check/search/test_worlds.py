"""Worlds of real size: how often they are drawn, what they find, and that their judge misses nothing."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kvproof.check.oracle.firing import is_large
from kvproof.check.oracle.replay import Counterexample, finding_of, located
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.features import smaller_sizes
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.store import StoreConfig
from kvproof.check.search import configurations
from kvproof.check.search.random_walk import Parts, WalkOptions, walk
from kvproof.check.search.shrinking_worlds import sizes_needed, with_block_size, with_first_numbers
from kvproof.check.search.store_operations import NUM_TRANSFERS, StoreOperations
from kvproof.check.search.strategies import strategy_of
from kvproof.check.search.worlds import (
    LONG_LIVES,
    LONGEST_LIFE,
    NUM_SMALL_RUNS,
    differing_in_one_bit,
    draw_length,
    has_large_sizes,
)
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.check.subjects.builtin.store import OwnStore
from kvproof.check.subjects.registry import find
from kvproof.impl import BlockManager
from kvproof.spec.native import Machine
from kvproof.spec.sizes import Sizes
from kvproof.spec.trace import Operation

LIARS = Path(__file__).with_name("liars.py")
NO_LIMIT = 1e6  # seconds

# What is drawn ------------------------------------------------------------------------------------------------------


def test_one_world_in_eight_is_large() -> None:
    random = Random(1)
    drawn = [configurations.draw(random, Capabilities()) for _ in range(2_000)]
    lengths = [draw_length(random, config, 80) for config in drawn]

    num_large = sum(has_large_sizes(c) or length in LONG_LIVES for c, length in zip(drawn, lengths, strict=True))
    assert num_large >= 2_000 / 8
    assert max(config.block_size for config in drawn) == 256
    assert max(config.num_gpu_blocks for config in drawn) > 1_500
    assert max(lengths) == max(LONG_LIVES)


def configurations_of_walk(fixed: dict[str, Any] | None = None) -> list[Config]:
    """The configurations of a walk of a pool, and that its first runs are not long."""
    runs: list[tuple[Config, list[Operation]]] = []

    def begin(config: Config) -> list[Operation]:
        runs.append((config, []))
        return runs[-1][1]

    subject = find("kvproof-pool")()
    strategy, options = strategy_of(subject), WalkOptions(begin=begin)
    done = walk(strategy, subject, 1, max_operations=9_000, seconds=NO_LIMIT, fixed=fixed, options=options)
    assert done.finding is None
    lengths = [len(operations) for config, operations in runs[:NUM_SMALL_RUNS] if not has_large_sizes(config)]
    assert max(lengths, default=0) <= strategy.run_length
    return [config for config, _ in runs]


def test_the_first_runs_of_a_seed_are_small_and_later_ones_are_not() -> None:
    are_large = [has_large_sizes(config) for config in configurations_of_walk()]
    assert not any(are_large[:NUM_SMALL_RUNS])
    assert any(are_large[NUM_SMALL_RUNS:])


def test_a_size_that_is_fixed_is_that_of_the_first_runs_too() -> None:
    assert {config.num_gpu_blocks for config in configurations_of_walk({"num_gpu_blocks": 300})} == {300}


def test_groups_of_up_to_four_and_windows_of_up_to_twelve_blocks_are_drawn() -> None:
    random = Random(2)
    drawn = [configurations.draw(random, Capabilities(waiting_groups=True, window=True)) for _ in range(2_000)]
    assert {config.group_size for config in drawn} == {1, 2, 3, 4}
    lengths = [-(-config.window // config.block_size) for config in drawn if config.window is not None]
    assert max(lengths) == 12
    assert sum(length > 4 for length in lengths) < len(lengths) / 5


def test_some_runs_of_a_store_keep_many_transfers_under_way() -> None:
    subject: Any = OwnStore()
    config = StoreConfig(num_gpu_blocks=8)
    most = []
    for seed in range(60):
        operations = StoreOperations(subject, Random(seed), config)
        operations.run([], 60)
        most.append(len(operations.judge.transfers))
    assert max(most) > max(NUM_TRANSFERS)
    assert sum(number > max(NUM_TRANSFERS) for number in most) < 10


def test_a_store_run_with_many_transfers_keeps_out_what_the_run_is_without() -> None:
    subject: Any = OwnStore()
    for seed in range(40):
        drawn = StoreOperations(subject, Random(seed), StoreConfig(num_gpu_blocks=8), frozenset({"begin_load"}))
        assert not drawn.weights["begin_load"]


def test_values_differ_in_one_bit() -> None:
    first, *others = differing_in_one_bit(Random(5), 4)

    assert [(first ^ other).bit_count() for other in others] == [1] * len(others)
    assert others


# Subjects that are wrong from some size on --------------------------------------------------------------------------

QUICK = {  # each with the seed of a walk that meets the size soon
    "entry_17": 4,
    "two_bits": 7,
    "adapter_modulo_256": 2,
    "frees_500": 3,
    "block_17": 1,
    "scheduler_block_17": 1,
    "holders_5": 6,
    "CutsWindows": 3,
    "joined_digits": 8,
    "salts_without_case": 4,
    "salts_sorted": 4,
}
SLOW = (
    "slots_8",
    "slots_16",
    "slots_64",
    "adapter_modulo_4",
    "images_side_by_side",
    "block_300",
    "pool_block_300",
    "pool_frees_500",
    "scheduler_block_300",
    "scheduler_frees_500",
    "IgnoresSmallWatermarks",
    "multiplied_by_1000003",
)


def is_refuted(name: str, max_operations: int, seed: int = 1) -> bool:
    """Whether a walk of so many operations refutes a liar."""
    one = find(f"{LIARS}:{name}")()
    return walk(strategy_of(one), one, seed, max_operations=max_operations, seconds=NO_LIMIT).finding is not None


@pytest.mark.parametrize("name", QUICK)
def test_a_subject_that_is_wrong_from_some_size_on_is_refuted(name: str) -> None:
    assert is_refuted(name, 40_000, QUICK[name])


@pytest.mark.parametrize(
    ("name", "fixed"),
    [
        ("joined_keys", {"caching": True, "keys": 3}),
        ("joined_names", {"caching": True, "keys": 3}),
        ("multiplied_by_131", {"caching": True, "block_size": 2}),
        ("added", {"caching": True, "block_size": 2}),
    ],
)
def test_a_subject_that_takes_what_is_alike_for_equal_is_refuted(name: str, fixed: dict[str, Any]) -> None:
    one = find(f"{LIARS}:{name}")()
    done = walk(strategy_of(one), one, 1, max_operations=30_000, seconds=NO_LIMIT, fixed=fixed)
    assert done.finding is not None


@pytest.mark.long
@pytest.mark.parametrize("name", SLOW)
def test_a_subject_that_is_wrong_for_few_sizes_is_refuted(name: str) -> None:
    assert is_refuted(name, 800_000)


def test_a_run_of_a_walk_that_lives_long_has_all_operations() -> None:
    runs: list[list[Operation]] = []

    def begin(config: Config) -> list[Operation]:
        runs.append([])
        return runs[-1]

    options = WalkOptions(NUM_SMALL_RUNS, begin=begin, lives_long=True)
    done = walk(strategy_of(BuiltIn()), BuiltIn(), 1, max_operations=5_000, seconds=NO_LIMIT, options=options)
    assert done.num_operations == 5_000
    assert max(map(len, runs)) > max(LONG_LIVES)


@pytest.mark.long
def test_a_fault_that_needs_thousands_of_frees_of_one_manager_is_found_in_the_longest_life() -> None:
    one = find(f"{LIARS}:frees_3000")()
    options = WalkOptions(NUM_SMALL_RUNS, lives_long=True)
    done = walk(strategy_of(one), one, 1, max_operations=LONGEST_LIFE, seconds=NO_LIMIT, options=options)
    assert done.finding is not None


# What a sparse judge does not miss ----------------------------------------------------------------------------------

POOL = Config(block_size=16, num_gpu_blocks=600)
NUM_NEW = 120  # operations of each kind


class Forgetful(BlockManager):
    """After 40 frees the refcount of a free block becomes 1; no count and no table shows it."""

    num_frees = 0

    def free(self, seq: Any) -> None:
        super().free(seq)
        self.num_frees += 1
        if self.num_frees == 40:
            self.refcounts[self._gpu.free_ids[-1]] += 1


def busy() -> list[Operation]:
    """Groups that come and go, in a pool of which most is never used."""
    return [
        operation
        for group in range(1, NUM_NEW + 1)
        for operation in (("new", group, (group,), (0,) * 20), ("admit", group, 20), ("run", 0), ("free", group))
    ]


def test_a_corruption_of_an_untouched_block_is_found_and_its_operation_is_named() -> None:
    operations = busy()
    assert is_large(POOL)

    found = finding_of(BuiltIn(Forgetful), POOL, operations)

    assert found is not None
    assert found.property == "refcount-exact"
    exact = located(BuiltIn(Forgetful), Counterexample(POOL, operations, found))
    assert exact.finding.property == "refcount-exact"
    assert exact.operations[-1] == ("free", 40)


def test_what_is_observed_in_part_is_not_compared_with_what_is_observed_whole() -> None:
    begun: list[Operation] = [("new", 99, (99,), (0,) * 20), ("admit", 99, 20), ("run", 0), ("sample", 99, (0,))]
    operations = [*begun, ("append", 99), *busy()]
    found = Finding("refcount-exact", "of a judge that compared everything after the first operations and at the end")
    exact = located(BuiltIn(Forgetful), Counterexample(POOL, operations, found), len(begun))
    assert exact.finding.property == "refcount-exact"
    assert exact.operations[-1] == ("free", 40)


class Healing(Forgetful):
    """The refcount is right again after the next free."""

    def free(self, seq: Any) -> None:
        super().free(seq)
        if self.num_frees == 40:
            self.wrong = self._gpu.free_ids[-1]
        elif self.num_frees == 41:
            self.refcounts[self.wrong] -= 1


def test_a_corruption_that_was_gone_at_the_last_complete_comparison_is_found_from_the_first_operation_on() -> None:
    operations = busy()[:200]
    found = Finding("read-back", "of a judge that compared everything after 180 operations")
    exact = located(BuiltIn(Healing), Counterexample(POOL, operations, found), 180)
    assert (exact.finding.property, exact.operations[-1]) == ("refcount-exact", ("free", 40))


class FindsWhatIsGone(BuiltIn):
    """Reports a hit of a block for a prompt of other tokens."""

    def hits(self, group: int) -> int:
        return 16 if group == 99 else super().hits(group)


def test_the_last_look_up_of_a_run_is_judged_although_a_sparse_judge_leaves_most_of_them_out() -> None:
    new: Operation = ("new", 99, (99,), (1,) * 20)
    found = finding_of(FindsWhatIsGone(), replace(POOL, caching=True), [*busy(), new, ("lookup", 99)])
    assert found is not None
    assert found.property == "hit-computed"


def test_a_walk_compares_everything_at_intervals_and_at_the_end() -> None:
    compared: list[int] = []

    class Judge:
        coverage, notes = Counter[str](), Counter[str]()
        is_sparse, answer = False, ""

        def apply(self, operation: Operation) -> bool:
            raise NotImplementedError

        def compare_all(self, context: str) -> None:
            compared.append(len(operations))

    judge, operations = Judge(), list[Operation]()
    parts = Parts(judge, POOL, operations, lambda: None)
    for _ in range(4):
        operations.extend([("run", 0)] * 40)
        parts.end()
    operations.append(("run", 0))
    parts.end_run()

    assert judge.is_sparse
    assert compared == [80, 160, 161]


# Smaller worlds -----------------------------------------------------------------------------------------------------


def test_sizes_to_try_are_all_of_a_small_number_and_few_of_a_large_one() -> None:
    assert list(smaller_sizes(1, 9)) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert list(smaller_sizes(1, 2048))[-4:] == [1536, 1920, 2016, 2047]
    assert len(smaller_sizes(0, 4096)) < 20


def test_a_run_is_written_again_for_smaller_blocks() -> None:
    config = Config(block_size=8, num_gpu_blocks=9, window=17)
    operations: list[Operation] = [
        ("new", 1, (1,), (*range(8), 10, 11, 12), (None, 0, None), (("P", 6, 3),)),
        ("admit", 1, 9),
    ]

    first, last = with_block_size(config, operations, 2)

    assert (first[0].block_size, first[0].window) == (2, 5)
    assert first[1] == [("new", 1, (1,), (0, 1, 10, 11), (None, 0, None), (("P", 2, 1),)), ("admit", 1, 3)]
    assert last[1][0][3] == (6, 7, 11, 12)


def test_values_become_the_first_numbers_and_equal_ones_stay_equal() -> None:
    operations: list[Operation] = [("new", 1, (1,), (700, 5, 700)), ("sample", 1, (90_000,)), ("run", 0)]

    assert with_first_numbers(operations) == [("new", 1, (1,), (1, 0, 1)), ("sample", 1, (2,)), ("run", 0)]


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (Config(block_size=4, num_gpu_blocks=16), ""),
        (Config(block_size=8), "needs a block of 8 slots: no smaller world that was tried shows it"),
        (Config(8, 17), "needs a block of 8 slots and 17 blocks: no smaller world that was tried shows it"),
    ],
)
def test_a_report_says_which_sizes_a_finding_needs(config: Config, text: str) -> None:
    assert sizes_needed(config) == text


def test_a_fork_counts_each_block_of_the_table_once_with_and_without_checks() -> None:
    def forked(with_checks: bool) -> list[int]:
        machine = Machine(Sizes(5, 0, 1, 2, 4), with_ghosts=with_checks, with_checks=with_checks)
        state = machine.first_state()
        machine.rules["admit"](state, 0, 0)
        for block in (3, 1):
            machine.rules["reserve"](state, 0, block)
        machine.rules["fork"](state, 0, 1)
        return state.refcount

    assert forked(with_checks=False) == forked(with_checks=True) == [0, 2, 0, 2, 0]
