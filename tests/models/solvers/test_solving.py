"""Asking the solver: verdicts, effort and cores."""

from dataclasses import replace

import pytest
import z3

from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.solvers import solving
from kvproof.models.solvers.solving import SEARCH_EFFORT, IncrementalSolver, Settings, decide
from kvproof.spec.verdict import Verdict

X, Y, Z = z3.Ints("x y z")
F = z3.Function("f", z3.IntSort(), z3.IntSort())


def obligation(claim: str, goal: z3.BoolRef | bool, **hypotheses: z3.BoolRef) -> Obligation:
    named = tuple(Hypothesis(name, formula) for name, formula in hypotheses.items())
    return Obligation("arithmetic", "test", claim, "well-defined", named, goal)


GROWS = z3.ForAll([X], F(X) > X)
EASY = obligation("easy", F(F(Y)) > Y, grows=GROWS, unneeded=Z > 3)
WRONG = obligation("wrong", Y > 4, positive=Y > 3)
# Whether 114 is a sum of three cubes is an open question; for one of 4 modulo 9 Z3 finds no answer either.
OPEN = obligation("open", X * X * X + Y * Y * Y + Z * Z * Z != 114)


def test_what_follows_is_proved_and_what_does_not_is_refuted() -> None:
    assert decide(EASY).answer.verdict is Verdict.PROVED
    assert decide(WRONG).answer.verdict is Verdict.REFUTED
    assert decide(obligation("false", False)).answer.verdict is Verdict.REFUTED


def test_what_the_solver_cannot_decide_is_unknown_and_says_why() -> None:
    answer = decide(OPEN, Settings(timeout_seconds=0.05)).answer
    assert answer.verdict is Verdict.UNKNOWN
    assert answer.reason != ""


def test_a_quantified_hypothesis_does_not_make_a_wrong_goal_proved() -> None:
    answer = decide(obligation("shrinks", F(Y) < Y, grows=GROWS), Settings(timeout_seconds=2)).answer
    assert answer.verdict in (Verdict.REFUTED, Verdict.UNKNOWN)


def test_a_goal_that_is_word_for_word_a_hypothesis_is_kept_without_a_solver() -> None:
    decided = decide(obligation("kept", z3.ForAll([X], F(X) > X), grows=GROWS))
    assert decided.is_trivial
    assert decided.answer.effort == 0
    assert decide(obligation("true", True)).is_trivial
    assert not decide(obligation("false", False)).is_trivial
    assert not decide(EASY).is_trivial


def test_the_same_question_takes_the_same_effort_whatever_was_asked_before() -> None:
    efforts = [decide(EASY).answer.effort, *(decide(one).answer.effort for one in (WRONG, EASY))]
    assert efforts[0] == efforts[2] > 0


def test_questions_that_are_asked_together_have_the_same_answers_as_alone() -> None:
    grown = [obligation(f"grown {number}", F(F(Y)) > Y + number, grows=GROWS) for number in range(4)]
    questions = [WRONG, EASY, *grown, obligation("shrinks", F(Y) < Y, grows=GROWS), EASY, WRONG]
    solver, settings = IncrementalSolver(), Settings(effort_max=300_000)
    verdicts = [solver(*one.question(), settings).verdict for one in questions]
    assert verdicts == [decide(one, settings).answer.verdict for one in questions]
    assert verdicts.count(Verdict.PROVED) == 4


def test_what_only_the_default_solver_proves_is_proved_together_too() -> None:
    outside = z3.ForAll([X], z3.Or(X < Y, X > Z))  # no term leads to an instance
    between = obligation("between", Y > Z, outside=outside)
    assert IncrementalSolver()(*between.question(), Settings()).verdict is Verdict.PROVED


def test_a_goal_that_is_asked_is_no_hypothesis_of_the_next_question() -> None:
    """The goals deny each other, so of both together anything would follow."""
    solver = IncrementalSolver()
    goals = [obligation("more", Y > 4, positive=Y > 3), obligation("less", Y < 4, positive=Y > 3)]
    assert [solver(*one.question(), Settings()).verdict for one in goals * 2] == [Verdict.REFUTED] * 4


def test_a_hypothesis_of_one_question_is_none_of_the_next_that_has_others() -> None:
    solver = IncrementalSolver()
    enough, too_little = obligation("enough", Y > 4, enough=Y > 5), obligation("too little", Y > 4, positive=Y > 3)
    verdicts = [solver(*one.question(), Settings()).verdict for one in (enough, too_little, enough)]
    assert verdicts == [Verdict.PROVED, Verdict.REFUTED, Verdict.PROVED]


def test_the_goal_of_a_question_that_the_solver_did_not_end_is_no_hypothesis_of_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ended(solver: z3.Solver, hypotheses: object, negated_goal: list[z3.BoolRef], settings: object) -> str:
        solver.add(*negated_goal)
        raise z3.Z3Exception("out of memory")

    solver = IncrementalSolver()
    more, less = obligation("more", Y > 4, positive=Y > 3), obligation("less", Y < 5, positive=Y > 3)
    assert solver(*WRONG.question(), Settings()).verdict is Verdict.REFUTED
    with monkeypatch.context() as patched:
        patched.setattr(solving, "_check", ended)
        with pytest.raises(z3.Z3Exception):
            solver(*more.question(), Settings())
    assert solver(*less.question(), Settings()).verdict is Verdict.REFUTED


def test_alone_the_effort_of_a_question_does_not_depend_on_those_before() -> None:
    solver, alone = IncrementalSolver(), Settings(is_alone=True)
    efforts = [solver(*one.question(), alone).effort for one in (EASY, EASY)]
    assert efforts == [decide(EASY).answer.effort] * 2
    assert solver(*EASY.question(), Settings()).effort > solver(*EASY.question(), Settings()).effort


def test_a_search_for_a_contradiction_finds_one_or_a_model_or_neither() -> None:
    cubes = X * X * X + Y * Y * Y + Z * Z * Z == 114
    for hypotheses, expected in (
        ({"more": Y > 3, "less": Y < 3}, Verdict.PROVED),
        ({"more": Y > 3}, Verdict.REFUTED),
        ({"cubes": cubes}, Verdict.UNKNOWN),
    ):
        search = replace(obligation("search", False, **hypotheses), is_search=True)
        answers = decide(search).answer, IncrementalSolver()(*search.question(), Settings())
        assert [one.verdict for one in answers] == [expected] * 2
        assert all(one.effort < 2 * SEARCH_EFFORT for one in answers)


def test_a_core_names_the_hypotheses_that_are_needed() -> None:
    assert decide(EASY, Settings(wants_core=True)).core_names() == ["grows"]
    assert decide(EASY).core_names() == []


def test_the_text_of_an_obligation_asks_the_same_question() -> None:
    for one, expected in ((EASY, z3.unsat), (WRONG, z3.sat)):
        solver = z3.Solver()
        solver.from_string(one.smt2())
        assert solver.check() == expected
        assert one.smt2().count("(assert") == len(one.hypotheses) + 1
