"""The text of a question does not depend on what else the process has made."""

import z3

from kvproof.models.certificates.proving import Questions, instances, with_instances
from kvproof.models.obligation import Hypothesis, Obligation

X, Y = z3.Ints("x y")
F = z3.Function("f", z3.IntSort(), z3.IntSort())


def obligation(claim: str, goal: z3.BoolRef, *hypotheses: Hypothesis) -> Obligation:
    return Obligation("suite", "subject", claim, "read-back", hypotheses, goal)


def grows() -> Hypothesis:
    return Hypothesis("grows", z3.ForAll([X], z3.And(F(X) + F(X) > X, F(F(X)) > X)))


def test_a_question_has_the_same_text_whatever_else_the_process_holds() -> None:
    before = Questions().text(obligation("twice", F(F(Y)) > Y, grows()))
    kept = [F(Y), F(F(Y)), F(F(Y)) > Y, z3.Int("other") + 1]  # what is referred to twice is printed as an abbreviation
    assert Questions().text(obligation("twice", F(F(Y)) > Y, grows())) == before
    assert len(kept) == 4


def test_a_question_asserts_what_the_obligation_does() -> None:
    one = obligation("twice", F(F(Y)) > Y, Hypothesis("positive", Y > 0), grows(), Hypothesis("again", Y > 0))
    text = Questions().text(one)
    solver = z3.Solver()
    solver.from_string(text)
    assert [str(formula) for formula in solver.assertions()] == [
        str(one.hypotheses[0].formula),
        str(one.hypotheses[1].formula),
        str(one.negated_goal()),
    ]
    assert text.count("declare-fun y ") == 1


def test_instances_are_named_and_the_question_with_them_is_another_one() -> None:
    kept = z3.ForAll([X], F(X) > 0)
    one = obligation("kept", z3.ForAll([X], F(X) >= 0), Hypothesis("kept", kept))
    assert instances(one) == ["kept, where it is denied"]
    assert Questions().text(with_instances(one)).count("(assert") == Questions().text(one).count("(assert") + 1
    assert instances(obligation("other", Y > 0)) == []


def test_what_is_true_as_it_stands_is_asserted_too() -> None:
    one = obligation("positive", Y > 0, Hypothesis("nothing", z3.BoolVal(True)))
    assert Questions().text(one).count("(assert true)") == 1
