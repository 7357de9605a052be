"""Questions that workers answer decide every obligation once, share an answer, and are unknown if a worker is lost."""

import os
import signal
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Any

import pytest
import z3

from kvproof.check.hosts.descendants import children
from kvproof.check.hosts.workers import UnitLost, Workers
from kvproof.check.proving.questions import decide_by, deciding
from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.solvers.solving import Answer, ProofOutcome, Settings, ask
from kvproof.spec.verdict import Verdict

X = z3.Int("x")


class Here(Workers):
    """Workers in this process; two batches are drawn before the first is answered."""

    name = "here"

    def __init__(self) -> None:
        self.batches: list[Any] = []

    def results(self, do: Callable[[Any], Any], units: Iterable[Any], *_: Any, **__: Any) -> Generator[Any, None, None]:
        source = iter(units)
        ahead = list(islice(source, 2))
        while ahead:
            self.batches.append(ahead[0])
            yield from do(ahead.pop(0))
            ahead += islice(source, 1)

    def close(self) -> None:
        """Nothing was started."""


def obligation(claim: str, goal: Any, **hypotheses: Any) -> Obligation:
    named = tuple(Hypothesis(name, formula) for name, formula in (hypotheses or {"positive": X > 0}).items())
    return Obligation("arithmetic", "test", claim, "well-defined", named, goal)


def test_every_obligation_is_decided_once_and_equal_questions_are_asked_once() -> None:
    different = [obligation(f"number {number}", X + number > number) for number in range(80)]
    same = [obligation(f"same {number}", X > 1) for number in range(10)]
    trivial = obligation("true", z3.BoolVal(True))
    workers = Here()
    decided = list(decide_by(workers, [*different, *same, trivial], Settings()))
    verdicts = {one.obligation.claim: one.answer.verdict for one in decided}
    assert len(decided) == len(verdicts) == 91
    assert {verdicts[one.claim] for one in [*different, trivial]} == {Verdict.PROVED}
    assert {verdicts[one.claim] for one in same} == {Verdict.REFUTED}
    assert [len(questions) for _, _, questions in workers.batches] == [64, 17]


def test_a_question_whose_answer_is_there_is_not_asked_again() -> None:
    different = [obligation(f"number {number}", X + number > number) for number in range(200)]
    later = [obligation(f"later {number}", X + number > number) for number in range(200)]
    workers = Here()
    decided = list(decide_by(workers, [*different, *later], Settings()))
    assert len({one.obligation.claim for one in decided}) == len(decided) == 400
    assert {one.answer.verdict for one in decided} == {Verdict.PROVED}
    assert sum(len(questions) for _, _, questions in workers.batches) == 200


def failing(assumed: str, goal: str, settings: Settings) -> Any:
    raise RuntimeError("no solver")


def test_a_question_that_cannot_be_asked_is_unknown() -> None:
    (decided,) = decide_by(Here(), [obligation("number", X > -1)], Settings(), asker=failing)
    assert (decided.answer.verdict, decided.answer.reason) == (Verdict.UNKNOWN, "RuntimeError: no solver")


class Losing(Here):
    """Workers in this process, of which one is lost by each batch with more than one question."""

    def results(self, do: Callable[[Any], Any], units: Iterable[Any], *_: Any, **__: Any) -> Generator[Any, None, None]:
        for unit in units:
            self.batches.append(unit)
            yield from do(unit) if len(unit[2]) == 1 else [UnitLost("was lost", is_next=False)]


def test_if_nobody_knows_at_which_question_a_worker_was_lost_each_is_asked_alone() -> None:
    workers = Losing()
    decided = list(
        decide_by(workers, [obligation(f"number {number}", X > -number) for number in range(1, 6)], Settings())
    )
    assert [one.answer.verdict for one in decided] == [Verdict.PROVED] * 5
    assert [len(questions) for _, _, questions in workers.batches] == [5, 1, 1, 1, 1, 1]


# By processes ---------------------------------------------------------------------------------------------------------


def decided_by(
    num: int, obligations: Iterable[Obligation], settings: Settings, **more: Any
) -> Generator[ProofOutcome, None, None]:
    """The outcomes by so many processes."""
    with deciding(str(num)) as decide:
        yield from decide(obligations, settings, **more)


F = z3.Function("f", z3.IntSort(), z3.IntSort())
Y, Z = z3.Ints("y z")
GROWS = z3.ForAll([X], F(X) > X)
EASY = obligation("easy", F(F(Y)) > Y, grows=GROWS)
WRONG = obligation("wrong", Y > 4, positive=Y > 3)
TRUE = obligation("true", z3.BoolVal(True))
OPEN = obligation("open", X * X * X + Y * Y * Y + Z * Z * Z != 114)  # whether it is, is an open question


def interrupted(answers: Iterator[ProofOutcome]) -> Iterator[ProofOutcome]:
    """The answers; a Ctrl-C reaches the processes after the first, in which case only this process may stop."""
    yield next(answers)
    for pid in children():
        os.kill(pid, signal.SIGINT)
    yield from answers


def test_processes_decide_every_obligation_once_and_leave_interrupts_to_their_parent() -> None:
    before = children()
    wanted = [obligation(f"number {number}", Y + number > number, positive=Y > 0) for number in range(40)]
    decided = list(interrupted(decided_by(2, [*wanted, WRONG, TRUE], Settings())))
    verdicts = {one.obligation.claim: one.answer.verdict for one in decided}
    assert len(decided) == 42
    assert verdicts.pop("wrong") is Verdict.REFUTED
    assert set(verdicts.values()) == {Verdict.PROVED}
    assert children() == before


def test_a_question_that_waits_for_its_answer_is_asked_once_for_all_obligations_that_share_it() -> None:
    same = [obligation(f"number {number}", F(F(Y)) > Y, grows=GROWS) for number in range(50)]
    decided = list(decided_by(1, [*same, WRONG], Settings()))
    assert len({one.obligation.claim for one in decided}) == len(decided) == 51
    assert [one.answer.verdict for one in decided].count(Verdict.PROVED) == 50
    assert len({id(one.answer) for one in decided}) == 2


def kill_at_open(assumed: str, goal: str, settings: Settings) -> Answer:
    """An asker whose process is killed when it is asked `OPEN`."""
    if "114" in goal:
        os.kill(os.getpid(), signal.SIGKILL)
    return ask(assumed, goal, settings)


def test_a_process_that_ends_costs_one_question_and_the_others_are_asked_again() -> None:
    easy = [obligation(f"number {number}", Y + number > number, positive=Y > 0) for number in range(40)]
    decided = list(decided_by(1, [*easy[:4], OPEN, *easy[4:]], Settings(), asker=kill_at_open))
    lost = [one for one in decided if one.answer.verdict is not Verdict.PROVED]
    assert len(decided) == 41
    assert [one.obligation.claim for one in lost] == ["open"]
    assert lost[0].answer.verdict is Verdict.UNKNOWN
    assert lost[0].answer.reason.startswith("the solver process was ended by signal 9 (SIGKILL); kvproof sent none")


def sleep(assumed: str, goal: str, settings: Settings) -> Answer:
    """An asker that does not answer."""
    time.sleep(600)
    raise AssertionError


def test_a_question_that_is_not_answered_in_time_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvproof.check.proving.questions.patience_seconds", lambda settings: 3.0)
    (decided,) = decided_by(1, [EASY], Settings(), asker=sleep)
    assert decided.answer.reason == "the solver process gave no answer for 3 s"


def test_other_work_is_done_to_its_end_after_the_last_question_is_made_and_also_without_a_question() -> None:
    done: list[str] = []

    def asked() -> Iterator[Obligation]:
        yield EASY
        done.append("made")

    def meanwhile() -> Iterator[None]:
        for step in ("one", "other"):
            done.append(step)
            yield

    (decided,) = decided_by(1, asked(), Settings(), meanwhile=meanwhile())
    assert decided.answer.verdict is Verdict.PROVED
    assert list(decided_by(1, [], Settings(), meanwhile=meanwhile())) == []
    assert done == ["made", "one", "other", "one", "other"]


def test_whoever_stops_listening_ends_the_processes() -> None:
    before = children()
    answers = decided_by(1, [EASY, OPEN], Settings(timeout_seconds=60))
    assert next(iter(answers)).obligation is EASY
    answers.close()
    assert children() == before
