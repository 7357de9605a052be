"""What goes wrong without the conditions: the solver's own examples, each with as few moves as there can be.

An example is read from a model of the negated claim, so it shows that the condition is needed, and is meant to be run
by `replay`, which knows no formula. Of two copies *every* hazard is found: the solver is asked for one list after
another, each known up to the names of its blocks, until there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import z3

from kvproof.models.mapping.copies import Copy, tag_memory
from kvproof.models.mapping.pairs import CLAIMS, FIRST, SECOND, agree
from kvproof.models.mapping.phases import COPY, OTHER_ORDERS, SWAP_IN, SWAP_OUT, TAGS, Origin, Step, intentions
from kvproof.models.mapping.programs import DECIDED, INVERSIONS, NUM_GPU_BLOCKS, THEN, is_kind
from kvproof.models.mapping.replay import Move


@dataclass(frozen=True)
class Hazard:
    """Moves that do not give the bytes that were meant. `way` says how they are run, `name` what is wrong with it."""

    way: str
    name: str
    moves: tuple[Move, ...]


@dataclass(frozen=True)
class WrongOrder:
    """A step with at most one move of each kind, whose lists must not run in this order, and what gets lost.

    Blocks are numbered from 0 in each pool.
    """

    order: tuple[str, ...]
    lost: str
    moves: dict[str, Move]


def name_of(first: Move, second: Move) -> str:
    """What stands between two copies that disturb each other, in the words of the trade."""
    names = []
    if first[1] == second[1]:
        names.append("write after write")
    if first[1] == second[0]:
        names.append("read after write")
    if first[0] == second[1]:
        names.append("write after read")
    return ", ".join(names)


def two_copies() -> Iterator[Hazard]:
    """Every list of two copies that cannot be run in one of the three ways."""
    ids = (FIRST.source, FIRST.target, SECOND.source, SECOND.target)
    for way, _, _, claim in CLAIMS:
        solver = z3.Solver()
        solver.add(ids[0] == 0, z3.Not(claim(tag_memory)))
        for place, block in enumerate(ids[1:], 1):  # blocks are numbered as they are first named
            solver.add(block >= 0, z3.Or([block <= earlier + 1 for earlier in ids[:place]]))
        while solver.check() == z3.sat:
            moves = read(solver.model(), (FIRST, SECOND))
            yield Hazard(way, name_of(*moves), moves)
            solver.add(z3.Or([block != value for block, value in zip(ids, sum(moves, ()), strict=True)]))
        _require_exhausted(solver)


def exchanged_moves() -> Iterator[tuple[Hazard, int]]:
    """For each way in which sorting by kind goes wrong, two moves as decided, and the number of GPU blocks."""
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
            yield Hazard(f"{first}, then {second}", way, read(model, (DECIDED, THEN))), size


def wrong_orders() -> Iterator[WrongOrder]:
    """For each order of the lists but the worker's, and each intention that it can break, a smallest step."""
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
                    yield WrongOrder(order, claim, {kind: read(model, [copies[kind]])[0] for kind in kinds})
                    break


def read(model: z3.ModelRef, copies: Sequence[Copy]) -> tuple[Move, ...]:
    """The copies of a model, as numbers."""

    def number(term: z3.ArithRef) -> int:
        value: int = model.eval(term, model_completion=True).as_long()
        return value

    return tuple((number(copy.source), number(copy.target)) for copy in copies)


def _require_exhausted(solver: z3.Solver) -> None:
    if solver.check() != z3.unsat:
        raise RuntimeError(f"the solver gave up before every hazard was found: {solver.reason_unknown()}")
