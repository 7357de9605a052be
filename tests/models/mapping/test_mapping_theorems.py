"""The algebra of copy mappings: every theorem is proved, and falls when one of its conditions is taken away."""

import pytest
import z3

from kvproof.models.mapping import obligations
from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.spec.text.properties import MEANINGS

OBLIGATIONS = list(obligations())


def answer(hypotheses: tuple[Hypothesis, ...], goal: z3.BoolRef, seed: int = 0, steps: int = 50_000_000) -> str:
    """What the solver says within so many steps of its own, which are the same on every machine."""
    solver = z3.Solver()
    solver.set("random_seed", seed)
    solver.set("rlimit", steps)
    solver.add(*(one.formula for one in hypotheses), goal)
    return str(solver.check())


@pytest.mark.parametrize("seed", range(5))
def test_every_theorem_is_proved_whatever_the_seed(seed: int) -> None:
    answers = {one.id: answer(one.hypotheses, one.negated_goal(), seed) for one in OBLIGATIONS}
    assert {name: given for name, given in answers.items() if given != "unsat"} == {}


def test_every_theorem_has_a_name_of_its_own_and_a_known_property() -> None:
    assert len({one.id for one in OBLIGATIONS}) == len(OBLIGATIONS) > 40
    assert {one.property for one in OBLIGATIONS} <= MEANINGS.keys()


def test_no_theorem_is_among_its_own_conditions() -> None:
    assert [one.id for one in OBLIGATIONS if one.is_trivial()] == []


CONDITIONS = [(one, hypothesis) for one in OBLIGATIONS for hypothesis in one.hypotheses]


@pytest.mark.parametrize(
    ("theorem", "taken"), CONDITIONS, ids=[f"{one.id} without: {taken.name}" for one, taken in CONDITIONS]
)
def test_no_theorem_stands_without_one_of_its_conditions(theorem: Obligation, taken: Hypothesis) -> None:
    left = tuple(one for one in theorem.hypotheses if one is not taken)
    assert answer(left, theorem.negated_goal(), steps=50_000) != "unsat"


@pytest.mark.parametrize("theorem", OBLIGATIONS, ids=lambda theorem: theorem.id)
def test_the_conditions_of_a_theorem_do_not_contradict_each_other(theorem: Obligation) -> None:
    assert answer(theorem.hypotheses, z3.BoolVal(True), steps=50_000) != "unsat"
