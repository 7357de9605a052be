"""Questions that workers answer decide every obligation once, and share an answer where they are equal."""

from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Any

import z3

from kvproof.check.hosts.workers import Workers
from kvproof.check.proving.questions import decide_by
from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.solvers.solving import Settings
from kvproof.spec.verdict import Verdict

X = z3.Int("x")


class Here(Workers):
    """Workers in this process; two batches are drawn before the first is answered."""

    name = "here"

    def __init__(self) -> None:
        self.batches: list[Any] = []

    def results(self, do: Callable[[Any], Any], units: Iterable[Any]) -> Generator[Any, None, None]:
        source = iter(units)
        ahead = list(islice(source, 2))
        while ahead:
            self.batches.append(ahead[0])
            yield do(ahead.pop(0))
            ahead += islice(source, 1)

    def close(self) -> None:
        """Nothing was started."""


def obligation(claim: str, goal: Any) -> Obligation:
    return Obligation("arithmetic", "test", claim, "well-defined", (Hypothesis("positive", X > 0),), goal)


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
