"""Asking the solver: verdicts, effort and cores; and processes that are watched, replaced and ended."""

import multiprocessing
import os
import signal
from collections.abc import Iterator

import z3

from kvproof.models.proofs.obligation import Hypothesis, Obligation
from kvproof.models.solvers.solving import ProofOutcome, Settings, decide
from kvproof.models.solvers.workers import decide_all
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


def test_a_core_names_the_hypotheses_that_are_needed() -> None:
    assert decide(EASY, Settings(wants_core=True)).core_names() == ["grows"]
    assert decide(EASY).core_names() == []


def test_the_text_of_an_obligation_asks_the_same_question() -> None:
    for one, expected in ((EASY, z3.unsat), (WRONG, z3.sat)):
        solver = z3.Solver()
        solver.from_string(one.smt2())
        assert solver.check() == expected
        assert one.smt2().count("(assert") == len(one.hypotheses) + 1


def interrupted(answers: Iterator[ProofOutcome]) -> Iterator[ProofOutcome]:
    """The answers; a Ctrl-C reaches the processes after the first, in which case only this process may stop."""
    yield next(answers)
    for process in multiprocessing.active_children():
        os.kill(process.pid or 0, signal.SIGINT)
    yield from answers


def test_processes_decide_every_obligation_once_and_leave_interrupts_to_their_parent() -> None:
    wanted = [obligation(f"number {number}", Y + number > number, positive=Y > 0) for number in range(40)]
    decided = list(interrupted(decide_all([*wanted, WRONG, obligation("true", True)], Settings(), num_processes=2)))
    verdicts = {one.obligation.claim: one.answer.verdict for one in decided}
    assert len(decided) == 42
    assert verdicts.pop("wrong") is Verdict.REFUTED
    assert set(verdicts.values()) == {Verdict.PROVED}
    assert multiprocessing.active_children() == []


def test_a_question_that_waits_for_its_answer_is_asked_once_for_all_obligations_that_share_it() -> None:
    same = [obligation(f"number {number}", F(F(Y)) > Y, grows=GROWS) for number in range(50)]
    decided = list(decide_all([*same, WRONG], Settings(), num_processes=1))
    assert len({one.obligation.claim for one in decided}) == len(decided) == 51
    assert [one.answer.verdict for one in decided].count(Verdict.PROVED) == 50
    assert len({id(one.answer) for one in decided}) == 2


def test_a_process_that_ends_costs_one_question_and_the_others_are_asked_again() -> None:
    def asked() -> Iterator[Obligation]:
        yield OPEN
        for number in range(30):
            if number == 20:  # the first sixteen have been sent
                for process in multiprocessing.active_children():
                    process.kill()
            yield obligation(f"number {number}", Y + number > number, positive=Y > 0)

    decided = list(decide_all(asked(), Settings(timeout_seconds=60), num_processes=1))
    lost = [one for one in decided if one.answer.verdict is not Verdict.PROVED]
    assert len(decided) == 31
    assert [one.obligation.claim for one in lost] == ["open"]
    assert lost[0].answer.verdict is Verdict.UNKNOWN
    assert lost[0].answer.reason == "the solver process ended with exit code -9"


def test_whoever_stops_listening_ends_the_processes() -> None:
    answers = decide_all([EASY, OPEN], Settings(timeout_seconds=60), num_processes=1)
    assert next(iter(answers)).obligation is EASY
    answers.close()  # type: ignore[attr-defined]  # it is a generator
    assert multiprocessing.active_children() == []
