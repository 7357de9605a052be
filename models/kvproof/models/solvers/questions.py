"""The questions of obligations: which are asked together, and what a batch of them is answered.

Z3 is asked those of a batch that have the same hypotheses together (`IncrementalSolver`). Which questions a batch has
depends only on their order. Who asks them, in which processes, is known to the caller.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from kvproof.models.obligation import Obligation
from kvproof.models.solvers.solving import Answer, IncrementalSolver, ProofOutcome, Settings, ask
from kvproof.spec.verdict import Verdict

BATCH = 16  # questions sent at once: few, so that at the end no process has much more work left than the others
BATCH_MAX = 64  # if so many questions have the same hypotheses
STRATEGIES_MAX = 3  # tried by a solver for one question
GRACE_SECONDS = 10.0  # a solver checks the time only now and then

Asker = Callable[[str, str, Settings], Answer]  # hypotheses, negated goal; a function that a process can import
Question = tuple[str, str]  # hypotheses, negated goal; a batch sends equal hypotheses once
Printer = Callable[[Obligation], Question]


class Decide(Protocol):
    """Decides every obligation; who asks the solvers is known to the object. Answers come in any order.

    asker: the function that asks a solver. It tries at most `STRATEGIES_MAX` strategies, each up to the timeout.
    printer: the text of a question, as the asker wants it. meanwhile: work in steps, which this process does to its
    end after the last question is made, while the others answer.
    """

    def __call__(
        self,
        obligations: Iterable[Obligation],
        settings: Settings,
        *,
        asker: Asker = ask,
        printer: Printer = Obligation.question,
        meanwhile: Iterable[object] = (),
    ) -> Iterator[ProofOutcome]: ...


def is_full(batch: Sequence[Question], following: Question) -> bool:
    """Whether a batch has enough questions, so that the following one belongs to the next batch."""
    return len(batch) >= (BATCH_MAX if following[0] == batch[-1][0] else BATCH)


def patience_seconds(settings: Settings) -> float:
    """How long the answer to one question may take."""
    return STRATEGIES_MAX * settings.timeout_seconds + GRACE_SECONDS


def answers_of(asker: Asker, batch: Iterable[Question], settings: Settings) -> Iterator[Answer]:
    """The answers to the questions of a batch. Z3 is asked together those in a row that have the same hypotheses."""
    one_by_one = IncrementalSolver() if asker is ask else asker
    for assumed, goal in batch:
        yield _answer_of(one_by_one, assumed, goal, settings)


def _answer_of(asker: Asker, assumed: str, goal: str, settings: Settings) -> Answer:
    """The answer to one question; unknown if asking it raises."""
    try:
        return asker(assumed, goal, settings)
    except Exception as error:  # e.g. the solver cannot parse it: this question is unknown, the others are answered
        return Answer(Verdict.UNKNOWN, reason=f"{type(error).__name__}: {error}")
