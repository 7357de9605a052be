"""The pin notices what no proof notices: an obligation that vanishes or asks less, and a stronger assumption."""

from collections.abc import Callable
from pathlib import Path

import pytest
import z3

from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.pin import INVARIANTS, Pin, PinError, pinned_lines
from kvproof.models.proofs.induction import guards
from kvproof.models.translation.maps import SymbolicState
from kvproof.models.translation.rules import Outcome, Required

X = z3.Int("x")
SIZES = Hypothesis("sizes: x >= 1", X >= 1)


def obligation(claim: str, goal: z3.BoolRef, *hypotheses: Hypothesis, suite: str = "specification") -> Obligation:
    return Obligation(suite, "subject", claim, "read-back", hypotheses or (SIZES,), goal)


def pin_of(*obligations: Obligation) -> Pin:
    pin = Pin()
    for one in obligations:
        pin.add(one)
    return pin


def of_rule(number: int) -> Callable[..., Obligation]:
    return lambda claim, goal, *given: Obligation("specification", f"rule {number}", claim, "read-back", given, goal)


OF_RULES = [of_rule(number) for number in range(6)]
BEFORE = pin_of(obligation("a", X > 0), obligation("b", X != 0)).lines


def test_two_obligations_of_one_name_are_reported() -> None:
    """The pin has the second one only, and the first could get weaker."""
    pin = pin_of(obligation("a", X > -1), obligation("a", X > 0), obligation("b", X != 0))
    assert list(pin.differences(BEFORE)) == [
        "two obligations are named specification/subject/a; word one of them differently"
    ]


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
        "the hypotheses of 2 obligations (specification/subject/a, specification/subject/b) changed: "
        "another formula for sizes: x >= 1",
        "new assumption: specification: sizes: x >= 1: (>= x 2)",
        "vanished assumption: specification: sizes: x >= 1: (>= x 1)",
    ]


def test_a_goal_that_asks_less_under_the_same_name_is_a_difference() -> None:
    found = pin_of(obligation("a", X >= 0), obligation("b", X != 0)).differences(BEFORE)
    assert list(found) == ["the goal of specification/subject/a changed"]


def test_another_property_of_a_claim_is_a_difference() -> None:
    other = Obligation("specification", "subject", "a", "conservation", (SIZES,), X > 0)
    found = pin_of(other, obligation("b", X != 0)).differences(BEFORE)
    assert list(found) == ["the goal of specification/subject/a changed"]


def test_a_hypothesis_too_many_or_too_few_is_named() -> None:
    guard = Hypothesis("guard: x > 5", X > 5)
    pin = pin_of(obligation("a", X > 0, SIZES, guard), obligation("b", X != 0))
    assert list(pin.differences(BEFORE)) == ["the hypotheses of specification/subject/a changed: + guard: x > 5"]
    back = pin_of(obligation("a", X > 0), obligation("b", X != 0)).differences(pin.lines)
    assert list(back) == ["the hypotheses of specification/subject/a changed: - guard: x > 5"]


def test_a_new_invariant_is_one_sentence_about_all_rules() -> None:
    (name, other) = sorted(INVARIANTS)[:2]
    invariant, new = Hypothesis(name, X > 1), Hypothesis(other, X > 2)
    before = pin_of(*(one("a", X > 0, SIZES, invariant) for one in OF_RULES))
    assert f"hypothesis: specification, invariants: {name} [" in "\n".join(before.lines)
    found = pin_of(*(one("a", X > 0, SIZES, invariant, new) for one in OF_RULES)).differences(before.lines)
    sentence = (
        "the hypotheses of 6 obligations (specification/rule 0, specification/rule 1, specification/rule 2, "
        f"specification/rule 3 and 2 more) changed: + {other}"
    )
    assert list(found) == [sentence]


def test_the_lines_say_all_that_is_compared() -> None:
    odd = Hypothesis("odd; every one of [1a2b3c4d]: it", X > 7)
    pin = pin_of(obligation("a [1]: b", X > 0, SIZES, odd), obligation("b", X != 0, odd), obligation("b/c", X != 0))
    assert list(pin.differences(pin.lines)) == []
    assert list(pin_of().differences(pin.lines, lambda name: name.endswith("/c"))) == [
        "vanished obligation: specification/subject/b/c"
    ]


def test_the_hypotheses_of_rules_are_no_assumptions_word_for_word() -> None:
    guard = Hypothesis("guard", X > 5)
    pin = pin_of(obligation("a", X > 0, SIZES, guard), obligation("b", X != 0))
    assert not any(line.startswith("assumption: ") and "guard" in line for line in pin.lines)
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


def test_another_property_of_a_guard_is_a_difference() -> None:
    def with_guard(*properties: str) -> Pin:
        required = [Required("x > 5", one, ("rule",), "rules.py:1", X > 5) for one in properties]
        return pin_of(obligation("a", X > 0, SIZES, *guards(Outcome(SymbolicState({}), guards=required))))

    before = with_guard("read-back").lines
    assert list(with_guard("conservation").differences(before)) == [
        "the hypotheses of specification/subject/a changed: + guard: x > 5 (conservation); - guard: x > 5 (read-back)"
    ]
    assert list(with_guard("").differences(before)) == [
        "the hypotheses of specification/subject/a changed: + guard: x > 5; - guard: x > 5 (read-back)"
    ]


def test_a_path_condition_of_code_is_pinned() -> None:
    def path(condition: z3.BoolRef) -> Pin:
        return pin_of(obligation("where it returns", z3.Implies(condition, X > 0), suite="concolic"))

    found = path(X > 3).differences(path(X > 2).lines)
    assert list(found) == ["the goal of concolic/subject/where it returns changed"]


GIVEN = "given: specification/subject [1]: sizes: x >= 1"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("obligations: specification/subject/c", "no kind of line begins so: 'obligations: specification/subject/c'"),
        ("", "no kind of line begins so: ''"),
        ("obligation: specification/subject/c", "a line has another form than it must have: specification/subject/c"),
        (
            "obligation: specification/other/c [12345678, given 1]",
            "specification/other/c has the hypotheses 1, which are",
        ),
        ("trivial: specification/subject/a [12345678, given 1]", "specification/subject/a is listed twice"),
        ("given: specification/other [1]: x [12345678]", "has hypotheses that no obligation has"),
        ("given: specification/other [1]: every one of all", "names the group all, which has no hypothesis"),
        ("given: specification/other [1]: x", "or has another form than `NAME [DIGEST]; …`"),
        ("hypothesis: specification, invariants: x [12345678]", "has hypotheses that no obligation has"),
    ],
)
def test_a_line_that_means_nothing_is_refused(
    line: str, what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "pinned.txt"
    monkeypatch.setattr("kvproof.models.pin.FILE", file)
    file.write_text("\n".join(sorted(BEFORE)))
    assert set(pinned_lines()) == BEFORE
    file.write_text("\n".join([*sorted(BEFORE), line, ""]))
    with pytest.raises(PinError) as refusal:
        pinned_lines()
    assert what in str(refusal.value)
    assert str(refusal.value).startswith(str(file))
    assert str(refusal.value).endswith("take it from version control, or write it again with make proofs-accept")


def test_a_line_that_stands_there_twice_is_refused_with_its_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "pinned.txt"
    monkeypatch.setattr("kvproof.models.pin.FILE", file)
    lines = sorted(BEFORE)
    for one in lines:
        file.write_text("\n".join([*lines, one]))
        with pytest.raises(PinError, match=f"pinned.txt:{len(lines) + 1}: the line stands there twice"):
            pinned_lines()


@pytest.mark.parametrize("content", [None, b"\xff"])
def test_a_file_that_cannot_be_read_is_named(
    content: bytes | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "pinned.txt"
    monkeypatch.setattr("kvproof.models.pin.FILE", file)
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(PinError, match=r"pinned.txt cannot be read \(.+\), so nothing says what is to be proved"):
        pinned_lines()
