"""Asking the solver: verdicts, effort and cores; and processes that are watched, replaced and ended."""

import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
import z3

from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.solvers import solving
from kvproof.models.solvers.solving import SEARCH_EFFORT, Answer, IncrementalSolver, ProofOutcome, Settings, decide
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


def test_questions_that_are_asked_together_have_the_same_answers_as_alone() -> None:
    grown = [obligation(f"grown {number}", F(F(Y)) > Y + number, grows=GROWS) for number in range(4)]
    questions = [WRONG, EASY, *grown, obligation("shrinks", F(Y) < Y, grows=GROWS), EASY, WRONG]
    solver, settings = IncrementalSolver(), Settings(timeout_seconds=2)
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
        for number in range(120):
            if number == 100:  # the first batch has been sent
                for process in multiprocessing.active_children():
                    process.kill()
            yield obligation(f"number {number}", Y + number > number, positive=Y > 0)

    decided = list(decide_all(asked(), Settings(timeout_seconds=60), num_processes=1))
    lost = [one for one in decided if one.answer.verdict is not Verdict.PROVED]
    assert len(decided) == 121
    assert [one.obligation.claim for one in lost] == ["open"]
    assert lost[0].answer.verdict is Verdict.UNKNOWN
    assert lost[0].answer.reason == "the solver process ended with exit code -9"


def close_connection() -> None:
    for number in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):
            socket.socket(fileno=os.dup(number)).shutdown(socket.SHUT_RDWR)


def close_and_end(assumed: str, goal: str, settings: Settings) -> Answer:
    """An asker that closes the connection of its process, which ends a moment later."""
    close_connection()
    time.sleep(0.3)
    os._exit(9)


def close_and_stay(assumed: str, goal: str, settings: Settings) -> Answer:
    """An asker that closes the connection of its process, which goes on."""
    close_connection()
    time.sleep(600)
    raise AssertionError


def test_the_exit_code_is_that_of_the_process_also_if_its_connection_ends_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kvproof.models.solvers.workers.END_SECONDS", 60.0)
    (decided,) = decide_all([EASY], Settings(), num_processes=1, asker=close_and_end)
    assert decided.answer.reason == "the solver process ended with exit code 9"


def test_a_process_that_only_closes_its_connection_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvproof.models.solvers.workers.END_SECONDS", 0.1)
    (decided,) = decide_all([EASY], Settings(), num_processes=1, asker=close_and_stay)
    assert decided.answer.reason == "the solver process closed its connection"
    assert multiprocessing.active_children() == []


def test_other_work_is_done_to_its_end_after_the_last_question_is_made_and_also_without_a_question() -> None:
    done: list[str] = []

    def asked() -> Iterator[Obligation]:
        yield EASY
        done.append("made")

    def meanwhile() -> Iterator[None]:
        for step in ("one", "other"):
            done.append(step)
            yield

    (decided,) = decide_all(asked(), Settings(), num_processes=1, meanwhile=meanwhile())
    assert decided.answer.verdict is Verdict.PROVED
    assert list(decide_all([], Settings(), meanwhile=meanwhile())) == []
    assert done == ["made", "one", "other", "one", "other"]


def test_whoever_stops_listening_ends_the_processes() -> None:
    answers = decide_all([EASY, OPEN], Settings(timeout_seconds=60), num_processes=1)
    assert next(iter(answers)).obligation is EASY
    answers.close()  # type: ignore[attr-defined]  # it is a generator
    assert multiprocessing.active_children() == []
