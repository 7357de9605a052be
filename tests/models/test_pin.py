"""The pin notices what no proof notices: an obligation that vanishes, a claim made trivial, a stronger assumption."""

import z3

from kvproof.models.pin import Pin
from kvproof.models.proofs.obligation import Hypothesis, Obligation

X = z3.Int("x")
SIZES = Hypothesis("sizes: x >= 1", X >= 1)


def obligation(claim: str, goal: z3.BoolRef, *hypotheses: Hypothesis, suite: str = "specification") -> Obligation:
    return Obligation(suite, "subject", claim, "read-back", hypotheses or (SIZES,), goal)


def pin_of(*obligations: Obligation) -> Pin:
    pin = Pin()
    for one in obligations:
        pin.add(one)
    return pin


BEFORE = pin_of(obligation("a", X > 0), obligation("b", X != 0)).lines


def test_equal_obligations_have_no_differences() -> None:
    assert list(pin_of(obligation("b", X != 0), obligation("a", X > 0)).differences(BEFORE)) == []


def test_an_obligation_that_vanishes_and_a_new_one_are_differences() -> None:
    found = pin_of(obligation("a", X > 0), obligation("c", X > 0)).differences(BEFORE)
    assert list(found) == ["new obligation: specification/subject/c", "vanished obligation: specification/subject/b"]


def test_a_claim_made_true_is_a_difference() -> None:
    found = pin_of(obligation("a", z3.BoolVal(True)), obligation("b", X != 0)).differences(BEFORE)
    assert list(found) == ["new trivial: specification/subject/a", "vanished obligation: specification/subject/a"]


def test_a_changed_assumption_is_a_difference_word_for_word() -> None:
    stronger = Hypothesis(SIZES.name, X >= 2)
    found = pin_of(obligation("a", X > 0, stronger), obligation("b", X != 0, stronger)).differences(BEFORE)
    assert list(found) == [
        "new assumption: specification: sizes: x >= 1: (>= x 2)",
        "vanished assumption: specification: sizes: x >= 1: (>= x 1)",
    ]


def test_the_text_of_the_specification_is_no_assumption() -> None:
    guard = Hypothesis("guard", X > 5)
    pin = pin_of(obligation("a", X > 0, SIZES, guard), obligation("b", X != 0))
    assert list(pin.differences(BEFORE)) == []
    theorem = pin_of(obligation("a", X > 0, guard, suite="arithmetic"))
    assert "assumption: arithmetic: guard: (> x 5)" in theorem.lines


def test_two_names_of_one_assumption_are_both_pinned_in_any_order() -> None:
    one, other = (obligation(name, X > 0, Hypothesis(name, X >= 1), suite="mapping") for name in ("one", "other"))
    lines = pin_of(one, other).lines
    assert {f"assumption: mapping: {name}: (>= x 1)" for name in ("one", "other")} <= lines
    assert pin_of(other, one).lines == lines


def test_in_a_partial_run_only_selected_obligations_can_vanish() -> None:
    part = pin_of(obligation("a", X > 0))
    assert list(part.differences(BEFORE, lambda name: name.endswith("/a"))) == []
    assert list(part.differences(BEFORE, lambda name: True)) == ["vanished obligation: specification/subject/b"]
