"""What a walk does to the process that it runs in, and when it ends."""

import gc
from collections.abc import Callable, Collection
from typing import Any

import pytest

from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import Config, ManagerSubject, Unsupported
from kvproof.check.protocol.pool import PoolConfig
from kvproof.check.search import random_walk
from kvproof.check.search.random_walk import NUM_NEW_OBJECTS, NUM_REPEATED_RUNS, REPEATED_STEP, WalkOptions, walk
from kvproof.check.search.strategies import MANAGERS, POOLS
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.check.subjects.builtin.pool import OwnPool


@pytest.mark.parametrize(("before", "within"), [(700, NUM_NEW_OBJECTS), (0, 0), (50_000, 50_000)])
def test_a_walk_collects_garbage_seldom_and_leaves_the_thresholds_as_they_were(before: int, within: int) -> None:
    seen = set[int]()

    class Watched(BuiltIn):
        def make(self, config: Config) -> Any:
            seen.add(gc.get_threshold()[0])
            return super().make(config)

    usual = gc.get_threshold()
    gc.set_threshold(before, *usual[1:])
    try:
        walk(MANAGERS, Watched(), 1, max_operations=1, seconds=60)
        after = gc.get_threshold()
    finally:
        gc.set_threshold(*usual)

    assert seen == {within}
    assert after == (before, *usual[1:])


def test_capabilities_that_are_none_after_a_run_are_the_fault_of_the_adapter() -> None:
    class Changing(BuiltIn):
        def fork(self, *arguments: Any) -> None:
            self.__dict__["capabilities"] = None
            super().fork(*arguments)

    with pytest.raises(
        AdapterError, match=r"Changing\.capabilities must be a .*StoreCan.* or Capabilities; it is None"
    ):
        walk(MANAGERS, Changing(), 1, max_operations=1500, seconds=60)


class Short(OwnPool):
    """From the start on, a block is lost."""

    def open(self, config: PoolConfig) -> None:
        super().open(config)
        self.blocks.take(1)


def test_a_walk_ends_although_every_run_is_refuted_by_a_known_finding_before_its_first_operation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(random_walk, "NUM_VAIN_MAX", 20)
    first = walk(POOLS, Short(), 1, max_operations=1000, seconds=60)
    assert first.counterexample is not None
    assert (first.counterexample.operations, first.num_runs, first.is_unsupported) == ([], 0, False)

    known = (*first.counterexample.kind, ())
    again = walk(POOLS, Short(), 1, max_operations=1000, seconds=5, options=WalkOptions(known=(known,)))
    assert (again.num_operations, again.is_unsupported) == (0, True)
    assert again.refusal.startswith(f"; the most frequent reason: {known[0]} is refuted before the first operation: ")
    assert (again.vain.total(), again.refusals.total()) == (21, 0)


class Refusing(BuiltIn):
    """It opens some of the first times that it is asked, and refuses otherwise. opens: the numbers of these times."""

    def __init__(self, opens: Collection[int]) -> None:
        super().__init__()
        self.opens, self.num_asked = opens, 0

    def open(self, config: Config) -> None:
        self.num_asked += 1
        if self.num_asked not in self.opens:
            raise Unsupported("not now")
        super().open(config)


def test_a_walk_ends_although_the_subject_refuses_everything_after_some_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_walk, "NUM_VAIN_MAX", 20)
    done = walk(MANAGERS, Refusing((1, 30, 31)), 1, max_operations=5000, seconds=60)
    assert (done.num_runs, done.is_unsupported, done.refusals) == (1, False, {"not now": 21})
    done = walk(MANAGERS, Refusing((1, 3, 21)), 1, max_operations=5000, seconds=60)
    assert (done.num_runs, done.refusals) == (3, {"not now": 1 + 17 + 21})


def test_a_subject_that_refuses_a_configuration_that_it_accepted_is_at_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_walk, "FIRST_REPEATED", 1)
    with pytest.raises(AdapterError, match="is refused when the subject is opened in it once more: not now"):
        walk(MANAGERS, Refusing((1,)), 1, max_operations=5000, seconds=60)


class Leaking(BuiltIn):
    """It takes its blocks in another order after it was opened in another configuration."""

    last: Config | None = None

    def make(self, config: Config) -> Any:
        manager = super().make(config)
        if config != self.last:
            manager._gpu.free_ids.reverse()
        self.last = config
        return manager


def test_a_walk_compares_the_calls_of_a_repeated_run_with_those_of_the_run_itself() -> None:
    done = walk(MANAGERS, Leaking(), 1, max_operations=80, seconds=60)

    assert done.finding is not None
    assert (done.finding.property, done.num_runs) == ("nondeterministic", 1)


class Counting(OwnPool):
    """It counts how often it is opened."""

    num_opened = 0

    def open(self, config: PoolConfig) -> None:
        self.num_opened += 1
        super().open(config)


@pytest.mark.parametrize(
    ("max_operations", "num_runs", "num_repeated"), [(50, 1, 1), (150, 3, 1), (580, 11, 1), (640, 12, 2)]
)
def test_the_fourth_run_and_each_eighth_after_it_are_repeated_or_the_last_of_fewer(
    max_operations: int, num_runs: int, num_repeated: int
) -> None:
    subject, fixed = Counting(), {"num_gpu_blocks": 4}
    done = walk(POOLS, subject, 1, max_operations=max_operations, seconds=60, fixed=fixed)
    assert (done.num_runs, subject.num_opened - done.num_runs) == (num_runs, num_repeated)


def test_no_run_after_the_first_ones_is_repeated() -> None:
    subject, fixed = Counting(), {"num_gpu_blocks": 4}
    done = walk(POOLS, subject, 1, max_operations=14_000, seconds=60, fixed=fixed)
    assert done.num_runs > NUM_REPEATED_RUNS + REPEATED_STEP
    assert subject.num_opened - done.num_runs == NUM_REPEATED_RUNS // REPEATED_STEP


def test_an_empty_table_of_a_sequence_without_blocks_is_as_good_as_none(
    altered: Callable[..., Callable[[], ManagerSubject]],
) -> None:
    def tables(self: Any) -> dict[int, list[int]]:
        return {seq: self.manager.tables.get(seq, []) for seq in [*self.tokens, *self.manager.tables]}

    shown = walk(MANAGERS, altered(tables=tables)(), 1, max_operations=1_000, seconds=60)
    left_out = walk(MANAGERS, altered()(), 1, max_operations=1_000, seconds=60)
    assert shown.finding is None
    assert (shown.kinds, shown.coverage) == (left_out.kinds, left_out.coverage)
