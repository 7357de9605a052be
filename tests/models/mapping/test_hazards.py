"""Examples of what goes wrong where a condition of the theorems fails: found by the solver, run in plain Python.

An example is read from a model of the negated claim, so it shows that the condition is needed. It is then run on a
memory that is a dict, without solver and formula. Of two copies every hazard is found: the solver is asked for one list
after another, each up to the names of its blocks, until there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

import pytest
import z3

from kvproof.models.mapping.copies import (
    CLAIMS,
    FIRST,
    SECOND,
    Copy,
    agree,
    apart,
    commute,
    forward_free,
    race_free,
    tag_memory,
)
from kvproof.models.mapping.phases import (
    COPY,
    DECIDED,
    INVERSIONS,
    NUM_GPU_BLOCKS,
    OTHER_ORDERS,
    SWAP_IN,
    SWAP_OUT,
    TAGS,
    THEN,
    WORKER_ORDER,
    Origin,
    Step,
    intentions,
    is_kind,
)

Move = tuple[int, int]  # source, target
Memory = dict[int, int]


def tagged(moves: Iterable[Move]) -> Memory:
    """Every block that the moves name, with its own number in it."""
    return {block: block for move in moves for block in move}


def one_after_the_other(moves: Sequence[Move]) -> Memory:
    """The memory after the moves, one after the other."""
    memory = tagged(moves)
    for source, target in moves:
        memory[target] = memory[source]
    return memory


def all_read_first(moves: Sequence[Move]) -> Memory:
    """The memory if all sources are read before the first target is written; targets in the order of the list."""
    memory = tagged(moves)
    return memory | {target: memory[source] for source, target in moves}


def every_interleaving(moves: Sequence[Move]) -> list[Memory]:
    """Every memory that can result if each move is a thread that reads, and later writes."""
    found: list[Memory] = []

    def run(memory: Memory, registers: dict[int, int], done: frozenset[int]) -> None:
        if len(done) == len(moves) and memory not in found:
            found.append(memory)
        for number, (source, target) in enumerate(moves):
            if number in registers and number not in done:
                run(memory | {target: registers[number]}, registers, done | {number})
            elif number not in registers:
                run(memory, registers | {number: memory[source]}, done)

    run(tagged(moves), {}, frozenset())
    return found


def lists_in_order(lists: Iterable[Sequence[Move]], blocks: Iterable[Move]) -> Memory:
    """The memory after several lists, each of which reads first and then writes. blocks: moves that name all blocks."""
    memory = tagged(blocks)
    for moves in lists:
        memory = memory | {target: memory[source] for source, target in moves}
    return memory


def shapes(num_moves: int) -> list[tuple[Move, ...]]:
    """Every list of so many moves, up to the names of blocks."""
    numberings: list[tuple[int, ...]] = [()]
    for _ in range(2 * num_moves):
        numberings = [(*one, new) for one in numberings for new in range(max(one, default=-1) + 2)]
    return [tuple(zip(one[::2], one[1::2], strict=True)) for one in numberings]


def pairs_of(moves: Sequence[Move]) -> list[tuple[Move, Move]]:
    """Every two moves, in the order of the list."""
    return list(combinations(moves, 2))


# Examples from the solver ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hazard:
    """Moves that do not give the intended bytes. way: how they are run. name: the kind of hazard."""

    way: str
    name: str
    moves: tuple[Move, ...]


@dataclass(frozen=True)
class WrongOrder:
    """A step with at most one move of each kind, whose lists must not run in this order.

    lost: the intention that is broken. Blocks are numbered from 0 in each pool.
    """

    order: tuple[str, ...]
    lost: str
    moves: dict[str, Move]


def name_of(first: Move, second: Move) -> str:
    """The hazards between two moves, in the standard terms."""
    names = []
    if first[1] == second[1]:
        names.append("write after write")
    if first[1] == second[0]:
        names.append("read after write")
    if first[0] == second[1]:
        names.append("write after read")
    return ", ".join(names)


def two_copies() -> Iterator[Hazard]:
    """Every list of two copies that must not be run in one of the three ways."""
    ids = (FIRST.source, FIRST.target, SECOND.source, SECOND.target)
    for way, _, _, claim in CLAIMS:
        solver = z3.Solver()
        solver.add(ids[0] == 0, z3.Not(claim(tag_memory)))
        for place, block in enumerate(ids[1:], 1):  # blocks are numbered as they are first named
            solver.add(block >= 0, z3.Or([block <= earlier + 1 for earlier in ids[:place]]))
        while solver.check() == z3.sat:
            moves = copies_in(solver.model(), (FIRST, SECOND))
            yield Hazard(way, name_of(*moves), moves)
            solver.add(z3.Or([block != value for block, value in zip(ids, sum(moves, ()), strict=True)]))
        _require_exhausted(solver)


def exchanged_moves() -> Iterator[tuple[Hazard, int]]:
    """For each way in which sorting by kind goes wrong: two moves in their order, and the number of GPU blocks."""
    for (first, second), ways in INVERSIONS.items():
        for way, formula in ways.items():
            forwards, backwards = THEN.applied(DECIDED.applied(tag_memory)), DECIDED.applied(THEN.applied(tag_memory))
            solver = z3.Solver()
            solver.add(is_kind(first, DECIDED), is_kind(second, THEN), formula, NUM_GPU_BLOCKS <= 3)
            solver.add(DECIDED.source <= 4, DECIDED.target <= 4, THEN.source <= 4, THEN.target <= 4)
            solver.add(z3.Not(agree(forwards, backwards)))
            solver.add(*(z3.Not(other) for name, other in ways.items() if name != way))
            if solver.check() != z3.sat:
                raise RuntimeError(f"no example of: {way}")
            model = solver.model()
            size = model.eval(NUM_GPU_BLOCKS, model_completion=True).as_long()
            yield Hazard(f"{first}, then {second}", way, copies_in(model, (DECIDED, THEN))), size


def wrong_orders() -> Iterator[WrongOrder]:
    """For each order of the lists except the worker's, and each intention that it can break: a smallest step."""
    copies = {kind: Copy(z3.Int(f"{kind}_source"), z3.Int(f"{kind}_target")) for kind in (SWAP_IN, SWAP_OUT, COPY)}
    there = {kind: z3.Bool(f"{kind}_there") for kind in copies}

    def origin(kind: str) -> Origin:
        move = copies[kind]
        return lambda x: z3.If(z3.And(there[kind], x == move.target), move.source, z3.IntVal(-1))

    step = Step(origin(SWAP_IN), origin(SWAP_OUT), origin(COPY))
    for order in OTHER_ORDERS:
        for claim, goal, hypotheses in intentions(step, order, TAGS):
            solver = z3.Solver()
            solver.add(z3.Not(goal), *(one.formula for one in hypotheses))
            for move in copies.values():
                solver.add(move.source >= 0, move.source <= 2, move.target >= 0, move.target <= 2)
            solver.add(copies[COPY].source != copies[COPY].target)
            for num_moves in (1, 2, 3):
                if solver.check(z3.Sum([z3.If(one, 1, 0) for one in there.values()]) == num_moves) == z3.sat:
                    model = solver.model()
                    kinds = [kind for kind in copies if z3.is_true(model.eval(there[kind]))]
                    yield WrongOrder(order, claim, {kind: copies_in(model, [copies[kind]])[0] for kind in kinds})
                    break


def copies_in(model: z3.ModelRef, copies: Sequence[Copy]) -> tuple[Move, ...]:
    """The copies of a model, as numbers."""

    def number(term: z3.ArithRef) -> int:
        value: int = model.eval(term, model_completion=True).as_long()
        return value

    return tuple((number(copy.source), number(copy.target)) for copy in copies)


def _require_exhausted(solver: z3.Solver) -> None:
    if solver.check() != z3.unsat:
        raise RuntimeError(f"the solver gave up before every hazard was found: {solver.reason_unknown()}")


# Tests ----------------------------------------------------------------------------------------

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
