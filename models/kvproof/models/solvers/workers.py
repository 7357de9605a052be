"""Decide many obligations with several solver processes.

Questions are sent as text, a batch at a time, to a process that has answered all of its own. Z3 is asked those of a
batch that have the same hypotheses together (`Together`). Batches are made while the processes answer earlier ones, and
which questions a batch has depends only on their order. No question is asked a second time: its answer decides every
obligation with the same question. Answers are yielded as soon as they arrive, in any order. If a process ends, or does
not answer for much longer than the timeout, the question it was working on is unknown, and the rest of its batch is
given to a new process. Closing the generator kills the processes. A Ctrl-C at the terminal is for all processes; they
leave it to the one that started them.
"""

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Protocol

from kvproof.models.proofs.obligation import Obligation
from kvproof.models.solvers.interrupts import deaf_to_interrupts
from kvproof.models.solvers.solving import TRIVIAL, Answer, ProofOutcome, Settings, Together, ask
from kvproof.spec.verdict import Verdict

BATCH = 16  # questions sent at once: few, so that at the end no process has much more work left than the others
BATCH_MAX = 64  # if so many questions have the same hypotheses
STRATEGIES_MAX = 3  # tried by a solver for one question
GRACE_SECONDS = 10.0  # a solver checks the time only now and then

Asker = Callable[[str, str, Settings], Answer]  # hypotheses, negated goal; a function that a process can import
Question = tuple[str, str]  # hypotheses, negated goal; a batch sends equal hypotheses once
Printer = Callable[[Obligation], Question]


class Decide(Protocol):
    """Decides every obligation, as `decide_all`; who does it is known to the object."""

    def __call__(
        self,
        obligations: Iterable[Obligation],
        settings: Settings,
        *,
        asker: Asker = ask,
        printer: Printer = Obligation.question,
    ) -> Iterator[ProofOutcome]: ...


def decide_all(
    obligations: Iterable[Obligation],
    settings: Settings,
    num_processes: int = 2,
    asker: Asker = ask,
    printer: Printer = Obligation.question,
) -> Iterator[ProofOutcome]:
    """Decide every obligation: trivial ones in this process, the others in solver processes.

    asker: the function that asks a solver. It tries at most `STRATEGIES_MAX` strategies, each up to the timeout.
    printer: the text of a question, as the asker wants it.
    """
    pool = _Pool(settings, num_processes, asker, printer)
    try:
        yield from pool.run(iter(obligations))
    finally:
        pool.stop()


def _serve(connection: Connection, settings: Settings, asker: Asker) -> None:
    """The main function of a solver process: answer until the connection closes."""
    with suppress(EOFError, OSError):
        while True:
            questions: list[Question] = connection.recv()
            for answer in answers_of(asker, questions, settings):
                connection.send(answer)


def is_full(batch: Sequence[Question], following: Question) -> bool:
    """Whether a batch has enough questions, so that the following one belongs to the next batch."""
    return len(batch) >= (BATCH_MAX if following[0] == batch[-1][0] else BATCH)


def answers_of(asker: Asker, batch: Iterable[Question], settings: Settings) -> Iterator[Answer]:
    """The answers to the questions of a batch. Z3 is asked together those in a row that have the same hypotheses."""
    one_by_one = Together() if asker is ask else asker
    for assumed, goal in batch:
        yield _answer_of(one_by_one, assumed, goal, settings)


def _answer_of(asker: Asker, assumed: str, goal: str, settings: Settings) -> Answer:
    """The answer to one question; unknown if asking it raises."""
    try:
        return asker(assumed, goal, settings)
    except Exception as error:  # e.g. the solver cannot parse it: this question is unknown, the others are answered
        return Answer(Verdict.UNKNOWN, reason=f"{type(error).__name__}: {error}")


@dataclass(eq=False)
class _Worker:
    """A process, the questions that it has not answered yet, in order, and when it was last heard from."""

    process: BaseProcess
    connection: Connection
    open: deque[Question] = field(default_factory=deque)
    heard: float = 0.0


class _Pool:
    def __init__(self, settings: Settings, num_processes: int, asker: Asker, printer: Printer) -> None:
        self.settings, self.asker, self.printer = settings, asker, printer
        self.num_processes = num_processes
        self.patience_seconds = STRATEGIES_MAX * settings.timeout_seconds + GRACE_SECONDS
        self.workers: list[_Worker] = []
        self.again: deque[list[Question]] = deque()  # unanswered questions of processes that ended
        self.waiting: dict[Question, list[Obligation]] = {}
        self.answers: dict[Question, Answer] = {}
        self.decided: deque[ProofOutcome] = deque()  # without a new question

    def run(self, obligations: Iterator[Obligation]) -> Iterator[ProofOutcome]:
        """Yields the answers in the order in which they arrive."""
        batches = self._batches(obligations)
        ready, is_over = deque[list[Question]](), False
        while not is_over or self.waiting:
            if (batch := next(batches, None)) is None:
                is_over = True
            else:
                ready.append(batch)
            while self.decided:
                yield self.decided.popleft()
            while (ready or self.again) and (worker := self._idle()) is not None:
                self._send(worker, self.again.popleft() if self.again else ready.popleft())
            yield from self._answers(None if is_over else 0.0)

    def _batches(self, obligations: Iterator[Obligation]) -> Iterator[list[Question]]:
        """The questions of the obligations, each once. Those of a batch wait for their answers when it is yielded."""
        batch: list[Question] = []
        for obligation in obligations:
            if obligation.is_trivial():
                self.decided.append(ProofOutcome(obligation, TRIVIAL, is_trivial=True))
                continue
            question = self.printer(obligation)
            if question in self.answers:
                self.decided.append(ProofOutcome(obligation, self.answers[question]))
                continue
            if question in self.waiting:
                self.waiting[question].append(obligation)
                continue
            if batch and is_full(batch, question):
                yield batch
                batch = []
            self.waiting[question] = [obligation]
            batch.append(question)
        if batch:
            yield batch

    def _send(self, worker: _Worker, batch: list[Question]) -> None:
        worker.open.extend(batch)
        worker.heard = time.monotonic()
        with suppress(OSError):  # the process has ended; `_answers` notices that
            worker.connection.send(batch)

    def _idle(self) -> _Worker | None:
        for worker in self.workers:
            if not worker.open:
                return worker
        if len(self.workers) < self.num_processes:
            self.workers.append(self._start())
            return self.workers[-1]
        return None

    def _start(self) -> _Worker:
        # Not a fork: the process must not share memory with this one, which has used the solver already.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self.settings, self.asker), daemon=True)
        with deaf_to_interrupts():
            process.start()
        theirs.close()
        return _Worker(process, ours, heard=time.monotonic())

    def _answers(self, seconds: float | None = None) -> Iterator[ProofOutcome]:
        """Yields the answers that have arrived, and detects lost processes. None: waits for up to 1 s."""
        busy = {worker.connection: worker for worker in self.workers if worker.open}
        if not busy:
            return
        for connection in wait(list(busy), 1.0 if seconds is None else seconds):
            worker = busy[connection]  # type: ignore[index]
            try:
                answer = worker.connection.recv()
            except (EOFError, OSError):
                yield from self._lost(worker, f"the solver process ended with exit code {worker.process.exitcode}")
                continue
            worker.heard = time.monotonic()
            question = worker.open.popleft()
            self.answers[question] = answer
            yield from self._decided(question, answer)
        for worker in list(busy.values()):
            if worker.open and time.monotonic() - worker.heard > self.patience_seconds:
                yield from self._lost(worker, f"no answer for {self.patience_seconds:.0f} s")

    def _decided(self, question: Question, answer: Answer) -> Iterator[ProofOutcome]:
        for obligation in self.waiting.pop(question):
            yield ProofOutcome(obligation, answer)

    def _lost(self, worker: _Worker, reason: str) -> Iterator[ProofOutcome]:
        worker.process.kill()
        worker.process.join()
        worker.connection.close()
        self.workers.remove(worker)
        question = worker.open.popleft()
        if worker.open:
            self.again.append(list(worker.open))
        yield from self._decided(question, Answer(Verdict.UNKNOWN, reason=reason))

    def stop(self) -> None:
        """Kill every process."""
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.process.join()
            worker.connection.close()
        self.workers.clear()
