"""Vacuity checks: rules fire, and hypotheses do not contradict each other."""

import ast
from collections import deque

import z3

from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.proofs.satisfied import NativeStates
from kvproof.models.solvers.solving import decide
from kvproof.models.translation.text import specification
from kvproof.models.vacuity import Hypotheses, firings
from kvproof.spec.language import COLLECTED

X = z3.Int("x")
POSITIVE, NEGATIVE = Hypothesis("positive", X > 0), Hypothesis("negative", X < 0)


def test_every_rule_fires_from_a_small_state_of_the_invariants() -> None:
    names = [rule.__name__ for rule in COLLECTED.rules]
    assert dict(firings(names)) == dict.fromkeys(names, True)


def test_a_rule_whose_guards_contradict_the_invariants_does_not_fire() -> None:
    text = specification()
    before = ast.unparse(text.functions["evict"][0])
    after = before.replace(
        "state.status[block] == EVICTABLE", "state.status[block] == EVICTABLE and holds(state, 0, block)"
    )
    assert after != before
    assert dict(firings(["evict", "admit"], text.rewritten(after))) == {"evict": False, "admit": True}


def test_without_effort_no_rule_is_reported_to_fire() -> None:
    assert dict(firings(["admit"], effort=1)) == {"admit": False}


def searched(*obligations: Obligation) -> Hypotheses:
    """What is found about the hypotheses of the obligations."""
    found = Hypotheses()
    for search in [search for one in obligations if (search := found.note(one)) is not None]:
        found.searched(decide(search))
    deque(found.look_in(NativeStates()), maxlen=0)
    found.decide()
    return found


def test_hypotheses_that_contradict_each_other_are_found() -> None:
    found = searched(
        Obligation("s", "right", "a", "read-back", (POSITIVE,), X != 0),
        Obligation("s", "right", "b", "read-back", (POSITIVE,), X > -1),
        Obligation("s", "wrong", "c", "read-back", (POSITIVE, NEGATIVE), X == 7),
    )
    assert (len(found.sets), found.num_satisfied) == (2, 1)
    assert [one.id for one in found.contradictory] == ["s/wrong/c"]


def test_a_contradiction_that_is_the_claim_itself_is_no_fault() -> None:
    goal = z3.BoolVal(False)
    found = searched(Obligation("s", "right", "they exclude each other", "read-back", (POSITIVE, NEGATIVE), goal))
    assert found.contradictory == []


def test_hypotheses_without_a_model_that_is_found_are_named() -> None:
    """Fermat: the solver finds neither a model nor a contradiction."""
    one, other, third = z3.Ints("one other third")
    cubes = z3.And(one > 0, other > 0, one * one * one + other * other * other == third * third * third)
    found = searched(Obligation("s", "subject", "claim", "read-back", (Hypothesis("cubes", cubes),), X != 0))
    assert ([one.id for one in found.undecided], found.num_satisfied) == (["s/subject/claim"], 0)


def test_a_model_in_which_numbers_are_small_is_found() -> None:
    function = z3.Function("f", z3.IntSort(), z3.IntSort())
    grows = z3.ForAll([X], z3.Implies(z3.And(0 <= X, X < z3.Int("end")), function(X) < function(X + 1)))
    hypotheses = (Hypothesis("grows", grows), POSITIVE)
    found = searched(Obligation("s", "subject", "claim", "read-back", hypotheses, X != 7))
    assert found.num_satisfied == 1
