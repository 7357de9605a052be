"""Lists and deques of any length behave as Python's do; the function that runs on them is the very one."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import z3

from kvproof.impl.device_blocks import DeviceBlocks
from kvproof.impl.growth import Growth
from kvproof.models.concolic.exploration import Exploration
from kvproof.models.concolic.refusal import Refused
from kvproof.models.concolic.symbolic import SymbolicInt, number
from kvproof.models.refinement.dictionaries import Dictionary, UnknownSet
from kvproof.models.refinement.unbounded import (
    Cells,
    Interval,
    Ring,
    class_with_length,
    symbolic_length,
    symbolic_list,
    symbolic_range,
    symbolic_zip,
)


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


@pytest.mark.parametrize(
    "ask",
    [
        lambda ids: ids == [1, 2],
        lambda ids: ids != [1, 2],
        lambda ids: 3 in ids,
        lambda ids: list(ids),
        lambda ids: {ids: 1},
        lambda ids: list(reversed(ids)),
    ],
)
def test_what_python_would_answer_without_asking_is_refused(ask: Callable[[Any], Any]) -> None:
    for container in (Cells, Ring):
        with pytest.raises(Refused, match="compared, searched or gone over"):
            ask(container(z3.Int("length"), items_of([3, 4, 5])))


def test_a_list_of_a_known_length_is_gone_over_as_it_is_then() -> None:
    def change(ids: Any) -> list[Any]:
        found = []
        for item in ids:
            found.append(item + 0)
            if len(found) == 1:
                ids.append(9)
        return found

    cells = partial(Cells, z3.IntVal(3), items_of([3, 4, 5]))
    (found,) = on_every_path(lambda: [z3.simplify(number(one)).as_long() for one in change(cells())])
    assert found == change([3, 4, 5])


def test_a_range_and_a_zip_of_plain_values_are_those_of_python() -> None:
    assert symbolic_range(2, 5) == range(2, 5)
    assert list(symbolic_zip([1, 2], "ab", strict=True)) == [(1, "a"), (2, "b")]
    assert symbolic_list((1, 2)) == [1, 2]


def test_a_list_of_a_deque_is_another_one_with_its_items() -> None:
    ring = Ring(z3.IntVal(3), items_of([3, 4, 5]))
    copy = symbolic_list(ring)
    on_every_path(lambda: copy.append(6))
    assert (listed(copy), listed(ring)) == ([3, 4, 5, 6], [3, 4, 5])


# Dicts ---------------------------------------------------------------------------------------------------------------

KEY, OTHER = z3.Ints("key other")


def changes(tables: Any, key: Any, other: Any) -> list[Any]:
    """What is found while a dict is changed."""
    found: list[Any] = [key in tables, other in tables, tables.get(key), tables.pop(key, None)]
    found += [key in tables, tables.get(key, "none"), other in tables]
    tables[other] = "new"
    found += [tables[other], other in tables, key in tables]
    tables[key] = "newer"
    found += [tables.get(other), tables[key]]
    del tables[other]
    return [*found, other in tables]


@pytest.mark.parametrize("known", [{}, {1: "old"}, {5: "else"}, {1: "old", 5: "else"}])
def test_a_dict_of_any_size_does_what_a_dict_does(known: dict[int, str]) -> None:
    """With two keys of which nothing is known, that may be one."""
    for key, other in ((1, 2), (1, 1), (2, 1)):
        if key in known and key != 1:
            continue
        expected = changes(dict(known), key, other)
        has = lambda at: z3.Or(*(at == one for one in known), z3.BoolVal(False))  # noqa: E731
        made = Dictionary(has, (z3.IntVal(1), known.get(1)))
        run = lambda made=made, key=key, other=other: changes(  # noqa: E731
            made, SymbolicInt(z3.IntVal(key)), SymbolicInt(z3.IntVal(other))
        )
        assert on_every_path(run) == [expected]


def test_two_unknown_keys_are_tried_as_one_and_as_two() -> None:
    def run() -> Any:
        made = Dictionary(lambda _: z3.BoolVal(False))
        made[SymbolicInt(KEY)] = "one"
        return made.get(SymbolicInt(OTHER))

    assert sorted(on_every_path(run), key=str) == [None, "one"]


def test_the_value_of_a_key_of_which_nothing_is_known_is_refused() -> None:
    made = Dictionary(lambda _: z3.BoolVal(True), (KEY, "known"))
    assert on_every_path(lambda: made[SymbolicInt(KEY)]) == ["known"]
    for ask in (lambda: made[SymbolicInt(OTHER)], lambda: made.get(SymbolicInt(KEY + 1)), lambda: list(made)):
        with pytest.raises(Refused, match=r"of which nothing is known|gone over"):
            on_every_path(ask)


def test_a_missing_key_raises_and_what_was_written_is_seen() -> None:
    made, before = Dictionary(lambda _: z3.BoolVal(False)), ()

    def run() -> None:
        with pytest.raises(KeyError):
            made[SymbolicInt(KEY)]
        with pytest.raises(KeyError):
            del made[SymbolicInt(KEY)]

    on_every_path(run)
    assert made.has_content(before)
    made[KEY_GIVEN] = "one"
    assert not made.has_content(before)
    assert z3.is_true(z3.simplify(made.has(z3.IntVal(4))))


KEY_GIVEN = SymbolicInt(z3.IntVal(4))


def test_a_set_of_which_nothing_is_known_can_be_emptied_and_not_asked() -> None:
    some = UnknownSet()
    before = some.content()
    for ask in (lambda: bool(some), lambda: 3 in some, lambda: list(some), lambda: some.add(3)):
        with pytest.raises(Refused, match="a set is used of which nothing is known"):
            ask()
    assert some.has_content(before)
    some.clear()
    assert not some.has_content(before)


def test_a_container_that_was_written_has_another_content() -> None:
    cells = Cells(z3.IntVal(3), items_of([3, 4, 5]))
    before = cells.content()
    assert z3.is_true(cells.has_content(before).term)
    on_every_path(lambda: cells.__setitem__(1, 4))
    some_place = z3.Int("some_place")
    same = cells.has_content(before).term
    assert all(z3.is_true(z3.simplify(z3.substitute(same, (some_place, z3.IntVal(n))))) for n in range(3))
    on_every_path(lambda: cells.__setitem__(1, 7))
    assert z3.is_false(z3.simplify(z3.substitute(cells.has_content(before).term, (some_place, z3.IntVal(1)))))
    cells.become(before)
    assert listed(cells) == [3, 4, 5]
