"""Lists and deques of any length behave as Python's do; the function that runs on them is the very one."""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
import z3

from kvproof.impl.device_blocks import DeviceBlocks
from kvproof.impl.growth import Growth
from kvproof.models.concolic.exploration import Exploration
from kvproof.models.concolic.symbolic import SymbolicInt
from kvproof.models.refinement.folds import NoFold, require_fold
from kvproof.models.refinement.unbounded import Cells, Interval, Ring, class_with_length, symbolic_length


def on_every_path(run: Callable[[], Any]) -> list[Any]:
    found: list[Any] = []
    exploration = Exploration()
    for _ in exploration.paths(lambda: found.append(run())):
        pass
    return found


def listed(container: Any) -> list[int]:
    length = z3.simplify(symbolic_length(container).term).as_long()
    return [z3.simplify(container.read(z3.IntVal(place))).as_long() for place in range(length)]


def items_of(values: list[int]) -> Callable[[z3.ArithRef], z3.ArithRef]:
    def read(place: z3.ArithRef) -> z3.ArithRef:
        found: z3.ArithRef = z3.IntVal(-1)
        for at, value in enumerate(values):
            found = z3.If(place == at, z3.IntVal(value), found)
        return found

    return read


def test_cells_do_what_a_list_does() -> None:
    def change(ids: Any) -> Any:
        ids.append(9)
        ids[1] = ids[0] + 1
        other = ids.copy()
        other[0] = 7
        ids[3] += 2
        return ids, other, ids[2:]

    expected = [list(one) for one in change([3, 4, 5])]
    cells = partial(Cells, z3.IntVal(3), items_of([3, 4, 5]))
    assert on_every_path(lambda: [listed(one) for one in change(cells())]) == [expected]


def test_a_ring_does_what_a_deque_does_at_its_left_end() -> None:
    def change(free: Any) -> Any:
        first = free.popleft()
        free.appendleft(first + 10)
        free.appendleft(8)
        free.popleft()
        free.popleft()
        return free

    ring = partial(Ring, z3.IntVal(3), items_of([3, 4, 5]))
    assert on_every_path(lambda: listed(change(ring()))) == [list(change(deque([3, 4, 5])))]


@pytest.mark.parametrize("index", [-1, 3, 7])
def test_an_index_outside_the_list_raises(index: int) -> None:
    cells = Cells(z3.IntVal(3), items_of([3, 4, 5]))

    def run() -> str:
        with pytest.raises(IndexError):
            cells[index]
        with pytest.raises(IndexError):
            cells[index] = 1
        return "raised"

    assert on_every_path(run) == ["raised"]


def test_an_unknown_length_forks_between_some_and_none() -> None:
    length = z3.Int("length")

    def run() -> str:
        ring = Ring(length, items_of([]))
        return "some" if ring else "none"

    assert sorted(on_every_path(run)) == ["none", "some"]


def test_an_interval_has_what_a_range_has() -> None:
    for value in range(-1, 5):
        run = lambda value=value: SymbolicInt(z3.IntVal(value)) in Interval(z3.IntVal(1), z3.IntVal(4))  # noqa: E731
        assert on_every_path(run) == [value in range(1, 4)]


def test_what_runs_is_the_very_code_of_the_class() -> None:
    for original in (DeviceBlocks, Growth):
        for name in ("take_one", "share", "release", "append_within_block"):
            if name in vars(original):
                assert vars(class_with_length(original))[name].__code__ is vars(original)[name].__code__


def test_sharing_and_releasing_many_blocks_is_doing_so_one_by_one() -> None:
    require_fold(DeviceBlocks.share)
    require_fold(DeviceBlocks.release)


class NoFolds:
    """Loops that do more than their body for each item."""

    seen: int = 0

    def carries(self, items: Iterable[int]) -> None:
        """Reads what the iteration before assigned."""
        last = self.seen
        for item in items:
            self.seen = last
            last = item

    def ends_with_more(self, items: Iterable[int]) -> None:
        """Does something after the loop."""
        for item in items:
            self.seen = item
        self.seen = 0

    def leaves(self, items: Iterable[int]) -> None:
        """Does not look at every item."""
        for item in items:
            if item:
                break
            self.seen = item

    def calls_before(self, items: Iterable[int]) -> None:
        """Uses up what it is given before the loop."""
        first = sum(items)
        for item in items:
            self.seen = item + first

    def accumulates(self, items: Iterable[int]) -> None:
        """Adds up."""
        total = self.seen
        for item in items:
            total += item


@pytest.mark.parametrize("name", [name for name, part in vars(NoFolds).items() if callable(part)])
def test_a_loop_that_does_more_is_no_fold(name: str) -> None:
    with pytest.raises(NoFold):
        require_fold(getattr(NoFolds, name))
