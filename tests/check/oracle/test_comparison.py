"""What has no order may stand in any: free ids, pairs of a swap, copies. What is missing or wrong there is found."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kvproof.check.oracle.comparison import unordered
from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.oracle.repetition import difference
from kvproof.check.oracle.replay import replay
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config, ManagerSubject, Observation, Reserved
from kvproof.check.protocol.scheduler import ScheduledStep
from kvproof.check.protocol.store import Staged, StoreObservation
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.spec.trace import Operation

Altered = Callable[..., Callable[[], ManagerSubject]]

PLAIN = (None, 0, None)
CONFIG = Config(block_size=1, num_gpu_blocks=3)
FULL: list[Operation] = [("new", 1, (1,), (0,)), ("admit", 1, 1), ("run", 0), ("new", 2, (2,), (0, 0, 0))]
SWAPPED = Config(block_size=1, num_gpu_blocks=4, num_host_blocks=4)
SWAP: list[Operation] = [("new", 1, (1,), (5, 6, 7), PLAIN, ()), ("admit", 1, 9), ("run", 1), ("swap_out", 1)]


def rotated(self: Any, tokens: list[int]) -> bool:
    """Ask, and turn the free list."""
    self.manager.free_blocks.append(self.manager.free_blocks.pop(0))
    return bool(self.manager.can_allocate(len(tokens)))


def lost(self: Any, tokens: list[int]) -> bool:
    """Ask, and lose a free block."""
    self.manager.free_blocks.pop()
    return bool(self.manager.can_allocate(len(tokens)))


def ids(self: Any) -> list[int]:
    return list(self.manager.free_blocks)


def test_a_question_may_change_the_order_of_the_free_ids(altered: Altered) -> None:
    done = replay(altered(can_allocate=rotated, free_ids=ids), CONFIG, [*FULL, ("admit", 2, 3)])
    assert (done.finding, done.num_enabled) == (None, 5)


def test_a_question_that_loses_a_free_id_is_found(altered: Altered) -> None:
    done = replay(altered(can_allocate=lost, free_ids=ids), CONFIG, FULL[:2])
    assert done.finding is not None
    assert done.finding.property == "failed-call-changes-nothing"


def test_blocks_that_a_manager_keeps_may_be_shown_in_any_order(altered: Altered) -> None:
    def observe(self: Any) -> Observation:
        kept = (0, 2) if self.manager.tables else (2,)  # block 0 is kept from the first admission on
        self.manager.free_blocks = [block for block in self.manager.free_blocks if block not in kept]
        tables = {seq: [list(table)] for seq, table in self.manager.tables.items()}
        return Observation(tables, (len(self.manager.free_blocks), 0), kept, None, ids(self))

    done = replay(altered(observe=observe), CONFIG, FULL[:3])
    assert (done.finding, done.num_enabled) == (None, 3)


class Turns(BuiltIn):
    """Its tables stand in a hash map, whose order is another one in each process: here, turned once more each time."""

    num_opened = 0

    def open(self, config: Config) -> None:
        super().open(config)
        type(self).num_opened += 1

    def _turned(self, items: Sequence[Any]) -> list[Any]:
        at = self.num_opened % (len(items) or 1)
        return [*items[at:], *items[:at]]

    def swap_out(self, group: int) -> list[tuple[int, int]]:
        return self._turned(super().swap_out(group))

    def swap_in(self, group: int) -> list[tuple[int, int]]:
        return self._turned(super().swap_in(group))

    def observe(self) -> Observation:
        shown = super().observe()
        return shown._replace(free_ids=self._turned(shown.free_ids or []))


class Strays(Turns):
    """The host blocks that it takes are others each time."""

    def make(self, config: Config) -> Any:
        manager = super().make(config)
        manager._host.free_ids.rotate(self.num_opened)
        return manager


def test_swap_pairs_and_free_ids_may_come_in_another_order_when_the_run_is_repeated() -> None:
    runs = [replay(Turns, SWAPPED, [*SWAP, ("run", 1), ("swap_in", 1), ("run", 1)]) for _ in range(3)]
    assert [run.finding for run in runs] == [None] * 3
    assert [difference(runs[0], run) for run in runs[1:]] == [None] * 2


def test_other_pairs_when_the_run_is_repeated_are_a_difference() -> None:
    one, other = replay(Strays, SWAPPED, SWAP), replay(Strays, SWAPPED, SWAP)
    assert "swap_out(1); it answered" in (difference(one, other) or "")


@pytest.mark.parametrize(
    ("call", "one", "other"),
    [
        ("observe", Observation({}, (3, 0), (1, 2), None, [4, 5]), Observation({}, (3, 0), (2, 1), None, [5, 4])),
        (
            "observe",
            StoreObservation({1: 0, 2: 3}, 1, {1: 0, 2: 1}, [4, 5]),
            StoreObservation({2: 3, 1: 0}, 1, {2: 1, 1: 0}, [5, 4]),
        ),
        ("begin_store", Staged([1, 2], [3, 4], [8, 9]), Staged([1, 2], [3, 4], [9, 8])),
        ("reserve", Reserved([(1, 2), (3, 4)]), Reserved([(3, 4), (1, 2)])),
        (
            "schedule",
            ScheduledStep((), [(1, 2), (0, 5)], [(3, 4), (2, 2)]),
            ScheduledStep((), [(0, 5), (1, 2)], [(2, 2), (3, 4)]),
        ),
        ("swap_in", [(1, 2), (0, 5)], [(0, 5), (1, 2)]),
    ],
)
def test_an_order_that_says_nothing_makes_no_other_answer(call: str, one: Any, other: Any) -> None:
    assert repr(one) != repr(other)
    assert repr(unordered(one, call)) == repr(unordered(other, call))


@pytest.mark.parametrize(
    ("call", "one", "other"),
    [
        ("observe", Observation({1: [[4, 5]]}, (3, 0)), Observation({1: [[5, 4]]}, (3, 0))),
        ("observe", Observation({}, (3, 0), (), None, [4, 4]), Observation({}, (3, 0), (), None, [4])),
        ("begin_store", Staged([1, 2], [3, 4]), Staged([1, 2], [4, 3])),
        ("allocate", [1, 2], [2, 1]),
    ],
)
def test_an_order_that_says_something_does(call: str, one: Any, other: Any) -> None:
    assert repr(unordered(one, call)) != repr(unordered(other, call))


class Reserve(BuiltIn):
    """Keeps two blocks back, which it declares as its slack."""

    capabilities = replace(BuiltIn.capabilities, refusal_slack=2)
    num_kept = 2

    def can_admit(self, group: int) -> Any:
        (seq,) = self.groups[group]
        needed = -(-len(self.tokens[seq]) // self.config.block_size) + self.num_kept
        return self.admission(needed <= self.observe().free[0])


@pytest.mark.parametrize("num_running", [0, 1])
def test_a_reserve_that_is_declared_as_slack_may_be_kept_for_ever_or_for_now(num_running: int) -> None:
    judge = ManagerJudge(Reserve(), Config(block_size=1, num_gpu_blocks=4))
    for operation in [("new", 1, (1,), (5, 6), PLAIN, ()), ("admit", 1, 2), ("run", 1)][: 3 * num_running]:
        assert judge.apply(operation)
    assert judge.apply(("new", 2, (2,), (5,) * (3 - 2 * num_running), PLAIN, ()))
    assert judge.apply(("admit", 2, 3))
    assert judge.answer == ("LATER" if num_running else "NEVER")


@pytest.mark.parametrize(("num_running", "property"), [(0, "admission-final"), (1, "admission-exact")])
def test_a_reserve_beyond_what_is_declared_is_found(num_running: int, property: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(Reserve, "num_kept", 3)
    judge = ManagerJudge(Reserve(), Config(block_size=1, num_gpu_blocks=6 if num_running else 4))
    for operation in [("new", 1, (1,), (5, 6), PLAIN, ()), ("admit", 1, 2), ("run", 1)][: 3 * num_running]:
        assert judge.apply(operation)
    assert judge.apply(("new", 2, (2,), (5, 6), PLAIN, ()))
    with pytest.raises(Finding) as raised:
        judge.apply(("admit", 2, 3))
    assert raised.value.property == property
