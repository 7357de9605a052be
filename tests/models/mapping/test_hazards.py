"""The solver's examples of what goes wrong without the conditions, each run in plain Python."""

from itertools import permutations

import pytest
import z3

from kvproof.models.mapping.copies import Copy, apart, commute, forward_free, race_free
from kvproof.models.mapping.hazards import Hazard, WrongOrder, exchanged_moves, two_copies, wrong_orders
from kvproof.models.mapping.phases import OTHER_ORDERS, WORKER_ORDER
from kvproof.models.mapping.replay import (
    Move,
    all_read_first,
    every_interleaving,
    lists_in_order,
    one_after_the_other,
    pairs_of,
    shapes,
)

WAYS = ("in either order", "reading everything first", "in any interleaving")
CONDITIONS = dict(zip(WAYS, (commute, forward_free, race_free), strict=True))


def goes_wrong(way: str, moves: tuple[Move, ...]) -> bool:
    """Whether running the moves in this way does not give what one after the other gives."""
    expected = one_after_the_other(moves)
    if way == "in either order":
        return any(one_after_the_other(order) != expected for order in permutations(moves))
    if way == "reading everything first":
        return all_read_first(moves) != expected
    return every_interleaving(moves) != [expected]


def holds(condition: object, first: Move, second: Move) -> bool:
    """A condition of the theorems, on two moves with numbers."""
    assert callable(condition)
    copies = [Copy(z3.IntVal(source), z3.IntVal(target)) for source, target in (first, second)]
    return z3.is_true(z3.simplify(condition(*copies)))


@pytest.mark.parametrize("way", WAYS)
def test_the_solver_finds_every_hazard_of_two_copies_and_no_other(way: str) -> None:
    found = {hazard.moves for hazard in two_copies() if hazard.way == way}
    assert found == {moves for moves in shapes(2) if goes_wrong(way, moves)} != set()


def test_the_hazards_of_two_copies_are_these() -> None:
    read_after_write, swap = ((0, 1), (1, 2)), ((0, 1), (1, 0))
    write_after_read, write_after_write = ((0, 1), (2, 0)), ((0, 1), (2, 1))
    self_copy_first, self_copy_second = ((0, 0), (1, 0)), ((0, 1), (1, 1))
    found: dict[str, set[tuple[Move, ...]]] = {way: set() for way in WAYS}
    for hazard in two_copies():
        found[hazard.way].add(hazard.moves)
    assert found == {
        "in either order": {read_after_write, write_after_read, write_after_write, swap},
        "reading everything first": {read_after_write, swap, self_copy_second},
        "in any interleaving": {
            *(read_after_write, write_after_read, write_after_write, swap),
            *(self_copy_first, self_copy_second),
        },
    }


@pytest.mark.parametrize("hazard", list(two_copies()), ids=lambda hazard: f"{hazard.way}: {hazard.moves}")
def test_each_hazard_gives_other_bytes_when_it_is_run(hazard: Hazard) -> None:
    assert goes_wrong(hazard.way, hazard.moves)
    assert hazard.name != ""


@pytest.mark.parametrize("harmless", [((0, 0), (0, 1)), ((0, 1), (0, 1)), ((0, 0), (0, 0)), ((0, 1), (0, 2))])
def test_a_self_copy_that_is_only_read_and_a_pair_named_twice_are_harmless(harmless: tuple[Move, ...]) -> None:
    assert [way for way in WAYS if goes_wrong(way, harmless)] == []


@pytest.mark.parametrize("way", WAYS)
def test_the_condition_on_two_copies_says_exactly_which_lists_are_safe(way: str) -> None:
    assert len(shapes(2)) == 15  # the ways to name four places with one to four blocks: a Bell number
    for moves in shapes(2):
        assert holds(CONDITIONS[way], *moves) != goes_wrong(way, moves), moves


def test_three_copies_of_which_no_two_race_are_safe_in_every_way_and_the_others_never_in_all() -> None:
    answers = {True: 0, False: 0}
    table = {pair: holds(race_free, *pair) for pair in {pair for moves in shapes(3) for pair in pairs_of(moves)}}
    for moves in shapes(3):
        is_safe = all(table[pair] for pair in pairs_of(moves))
        answers[is_safe] += 1
        assert is_safe == (not goes_wrong("in any interleaving", moves)), moves
        if is_safe:
            assert not goes_wrong("in either order", moves)
            assert not goes_wrong("reading everything first", moves)
    assert sum(answers.values()) == 203  # six places: the Bell number again
    assert answers[True] > 10


def test_what_the_cache_engine_refuses_covers_every_hazard() -> None:
    for hazard in two_copies():
        assert not holds(apart, *hazard.moves)


@pytest.mark.parametrize("example", list(exchanged_moves()), ids=lambda example: example[0].name)
def test_moves_that_the_worker_exchanges_and_must_not_give_other_bytes(example: tuple[Hazard, int]) -> None:
    hazard, _ = example
    assert one_after_the_other(hazard.moves) != one_after_the_other(hazard.moves[::-1])


def test_sorting_by_kind_goes_wrong_in_five_ways() -> None:
    assert len({hazard.name for hazard, _ in exchanged_moves()}) == 5


def after(example: WrongOrder, order: tuple[str, ...]) -> dict[int, int]:
    """The memory after the lists of the example have run in an order; host blocks are numbered from 100 on."""
    base = {"swap-in": (100, 0), "swap-out": (0, 100), "copy": (0, 0)}
    moves = {
        kind: [(source + base[kind][0], target + base[kind][1])] for kind, (source, target) in example.moves.items()
    }
    every = [move for some in moves.values() for move in some]
    return lists_in_order([moves.get(kind, []) for kind in order], every)


@pytest.mark.parametrize("example", list(wrong_orders()), ids=lambda one: f"{', '.join(one.order)}: {one.lost}")
def test_a_wrong_order_of_the_lists_gives_other_bytes_than_the_workers(example: WrongOrder) -> None:
    assert after(example, example.order) != after(example, WORKER_ORDER)


def test_each_order_but_the_workers_loses_something() -> None:
    lost: dict[tuple[str, ...], set[str]] = {order: set() for order in OTHER_ORDERS}
    for example in wrong_orders():
        lost[example.order].add(example.lost)
    assert all(lost.values())
