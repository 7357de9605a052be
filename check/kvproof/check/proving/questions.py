"""The questions of proofs: asked by the workers that `--workers` names, or answered by what earlier runs kept.

A batch of questions is a unit of work, and its answers arrive one by one. No question is asked a second time: its
answer decides every obligation with the same question. If a worker ends, or does not answer for much longer than the
timeout, the question that it was working on is unknown, and the rest of what it had is asked again.
"""

import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kvproof.check import hosts
from kvproof.check.hosts.choice import opened
from kvproof.check.hosts.workers import Handling, UnitLost, Workers
from kvproof.check.proving.options import SOLVER
from kvproof.check.runs.terminal import output, say
from kvproof.models.obligation import Obligation
from kvproof.models.solvers.answer_cache import AnswerCache, default_file
from kvproof.models.solvers.solving import (
    TRIVIAL,
    Answer,
    Asker,
    Decide,
    Printer,
    ProofOutcome,
    Question,
    Settings,
    answers_of,
    ask,
    is_full,
    patience_seconds,
)
from kvproof.spec.verdict import Verdict

Batch = tuple[Asker, Settings, tuple[Question, ...]]


@contextmanager
def deciding(workers: str) -> Iterator[Decide]:
    """What decides obligations until the end of the block, by the workers that `--workers` names.

    Raises MissingExtra if Ray is not installed, and NoWorkers if there is no Ray at the address.
    """
    with opened(workers) as pool:
        assert pool is not None
        yield partial(decide_by, pool)


def decide_by(
    workers: Workers,
    obligations: Iterable[Obligation],
    settings: Settings,
    *,
    asker: Asker = ask,
    printer: Printer = Obligation.question,
    meanwhile: Iterable[object] = (),
) -> Iterator[ProofOutcome]:
    handling = Handling(seconds=patience_seconds(settings), num_tries=1, is_loss_a_result=True)
    asked = _Batches(printer)
    batches = asked.batches(obligations)
    while True:
        units = ((asker, settings, batch) for batch in batches)
        with closing(workers.results(answers_to, units, handling, meanwhile)) as answers:
            for answer in answers:
                asked.note(answer)
                yield from asked.taken()
        yield from asked.taken()
        if not asked.again:
            return
        batches, meanwhile = asked.batches_again(), ()


def answers_to(batch: Batch) -> Iterator[Answer]:
    """The answers to a batch of questions, in a worker."""
    asker, settings, questions = batch
    yield from answers_of(asker, questions, settings)


def answer_cache(settings: Settings) -> AnswerCache | None:
    """The answers of earlier runs; None if their file cannot be used, which is reported."""
    handed_on_by = Path(__file__).parent, Path(hosts.__file__).parent
    try:
        return AnswerCache(default_file(), SOLVER, settings, handed_on_by)
    except (OSError, sqlite3.Error, UnicodeDecodeError, RuntimeError) as error:  # RuntimeError: there is no home folder
        say(output(), f"no answers of earlier runs are used: {error}", "yellow")
        return None


@dataclass
class _Batches:
    """What was asked, and not answered yet.

    under_way: the batches, in order; the first without the questions that are answered. again: batches to be asked
    again. waiting: the obligations of each question that has no answer. decided: and not yet yielded.
    """

    printer: Printer
    under_way: deque[deque[Question]] = field(default_factory=deque)
    again: list[list[Question]] = field(default_factory=list)
    waiting: dict[Question, list[Obligation]] = field(default_factory=dict)
    known: dict[Question, Answer] = field(default_factory=dict)
    decided: deque[ProofOutcome] = field(default_factory=deque)

    def batches(self, obligations: Iterable[Obligation]) -> Iterator[tuple[Question, ...]]:
        """The questions of obligations, each once. Decides those that are trivial, or whose answer is known."""
        batch = list[Question]()
        for obligation in obligations:
            if obligation.is_trivial():
                self.decided.append(ProofOutcome(obligation, TRIVIAL, is_trivial=True))
                continue
            question = self.printer(obligation)
            if question in self.known:
                self.decided.append(ProofOutcome(obligation, self.known[question]))
            elif question in self.waiting:
                self.waiting[question].append(obligation)
            else:
                if batch and is_full(batch, question):
                    yield self._begun(batch)
                    batch = []
                self.waiting[question] = [obligation]
                batch.append(question)
        if batch:
            yield self._begun(batch)

    def batches_again(self) -> Iterator[tuple[Question, ...]]:
        """The questions that lost workers have left."""
        batches, self.again = self.again, []
        for batch in batches:
            yield self._begun(batch)

    def _begun(self, batch: list[Question]) -> tuple[Question, ...]:
        self.under_way.append(deque(batch))
        return tuple(batch)

    def note(self, answer: Answer | UnitLost) -> None:
        """The answer to the next question; or the worker was lost that was to answer the rest of the batch."""
        batch = self.under_way[0]
        if not isinstance(answer, UnitLost):
            self._decide(batch.popleft(), answer)
        else:
            if answer.is_next or len(batch) == 1:
                how = f"the solver process {answer.how}"
                self._decide(batch.popleft(), Answer(Verdict.UNKNOWN, reason=how))
            if batch:
                self.again += [list(batch)] if answer.is_next else [[question] for question in batch]
            batch.clear()
        if not batch:
            self.under_way.popleft()

    def _decide(self, question: Question, answer: Answer) -> None:
        self.known[question] = answer
        self.decided.extend(ProofOutcome(obligation, answer) for obligation in self.waiting.pop(question))

    def taken(self) -> Iterator[ProofOutcome]:
        """What is decided by now."""
        while self.decided:
            yield self.decided.popleft()
