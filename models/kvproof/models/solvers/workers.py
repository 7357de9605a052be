"""Decide many obligations with several solver processes.

Questions are sent as text, a batch at a time, to a process that has few left. Z3 is asked those of a batch that have
the same hypotheses together (`IncrementalSolver`). Batches are made while the processes answer earlier ones, and which
questions a batch has depends only on their order. A process has questions in advance, so it goes on while this one is
busy; once there is nothing left to make, this process does other work (`meanwhile`), step by step. No question is asked
a second time: its answer decides every obligation with the same question. Answers are yielded as soon as they arrive,
in any order. If a process ends, or does not answer for much longer than the timeout, the question it was working on is
unknown, and the rest of what it had is given to a new process. Closing the generator kills the processes. A Ctrl-C at
the terminal is for all processes; they leave it to the one that started them.
"""

import multiprocessing
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Protocol

from kvproof.models.obligation import Obligation
from kvproof.models.solvers.interrupts import deaf_to_interrupts
from kvproof.models.solvers.solving import TRIVIAL, Answer, IncrementalSolver, ProofOutcome, Settings, ask
from kvproof.spec.verdict import Verdict

BATCH = 16  # questions sent at once: few, so that at the end no process has much more work left than the others
BATCH_MAX = 64  # if so many questions have the same hypotheses
IN_ADVANCE = 64  # a process that has fewer questions left gets another batch, while questions are made
IN_ADVANCE_AT_THE_END = 4  # few, so that the processes end at the same time
POLL_SECONDS = 0.01  # between two looks for answers, while questions are made
STRATEGIES_MAX = 3  # tried by a solver for one question
GRACE_SECONDS = 10.0  # a solver checks the time only now and then
END_SECONDS = 2.0  # for a process to end after its connection has

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
        meanwhile: Iterable[object] = (),
    ) -> Iterator[ProofOutcome]: ...


def decide_all(
    obligations: Iterable[Obligation],
    settings: Settings,
    num_processes: int = 2,
    asker: Asker = ask,
    printer: Printer = Obligation.question,
    meanwhile: Iterable[object] = (),
) -> Iterator[ProofOutcome]:
    """Decide every obligation: trivial ones in this process, the others in solver processes.

    asker: the function that asks a solver. It tries at most `STRATEGIES_MAX` strategies, each up to the timeout.
    printer: the text of a question, as the asker wants it. meanwhile: work in steps, which this process does to its
    end after the last question is made, while the others answer.
    """
    pool = _Pool(settings, num_processes, asker, printer)
    try:
        yield from pool.run(obligations, meanwhile)
    finally:
        pool.stop()


def _serve(connection: Connection, settings: Settings, asker: Asker) -> None:
    """The main function of a solver process: answer until the connection closes."""
    received = queue.SimpleQueue[list[Question] | None]()
    threading.Thread(target=_receive, args=(connection, received), daemon=True).start()
    with suppress(OSError):
        while (questions := received.get()) is not None:
            for answer in answers_of(asker, questions, settings):
                connection.send(answer)


def _receive(connection: Connection, received: "queue.SimpleQueue[list[Question] | None]") -> None:
    """Receive batches also while others are answered, so that the sender never waits; at the end None."""
    with suppress(EOFError, OSError):
        while True:
            received.put(connection.recv())
    received.put(None)


def is_full(batch: Sequence[Question], following: Question) -> bool:
    """Whether a batch has enough questions, so that the following one belongs to the next batch."""
    return len(batch) >= (BATCH_MAX if following[0] == batch[-1][0] else BATCH)


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
        self.decided: deque[ProofOutcome] = deque()  # and not yet yielded
        self.batch: list[Question] = []  # the one that is made
        self.ready: deque[list[Question]] = deque()  # batches that no process has got
        self.looked = 0.0  # when answers were received last

    def run(self, obligations: Iterable[Obligation], meanwhile: Iterable[object]) -> Iterator[ProofOutcome]:
        """Yields the answers in the order in which they arrive."""
        for one in obligations:
            self._add(one)
            if time.monotonic() - self.looked > POLL_SECONDS:
                yield from self._news(IN_ADVANCE)
        self._close_batch()
        for _ in meanwhile:
            yield from self._news(IN_ADVANCE)
        yield from self._news(IN_ADVANCE_AT_THE_END)
        while self.waiting:
            yield from self._news(IN_ADVANCE_AT_THE_END, 1.0)

    def _add(self, obligation: Obligation) -> None:
        """Decide a trivial obligation, or one with a known answer; or add its question to a batch, once."""
        if obligation.is_trivial():
            self.decided.append(ProofOutcome(obligation, TRIVIAL, is_trivial=True))
            return
        question = self.printer(obligation)
        if question in self.answers:
            self.decided.append(ProofOutcome(obligation, self.answers[question]))
        elif question in self.waiting:
            self.waiting[question].append(obligation)
        else:
            if self.batch and is_full(self.batch, question):
                self._close_batch()
            self.waiting[question] = [obligation]
            self.batch.append(question)

    def _close_batch(self) -> None:
        if self.batch:
            self.ready.append(self.batch)
            self.batch, self.looked = [], 0.0  # a process may wait for it

    def _news(self, in_advance: int, seconds: float = 0.0) -> Iterator[ProofOutcome]:
        """Yields what is decided by now, after the processes have got what they can. Waits for an answer so long.

        in_advance: a process that has fewer questions left gets a batch.
        """
        self._receive(0.0)
        while (self.ready or self.again) and (worker := self._hungry(in_advance)) is not None:
            self._send(worker, self.again.popleft() if self.again else self.ready.popleft())
        if seconds and not self.decided:
            self._receive(seconds)
        while self.decided:
            yield self.decided.popleft()
        self.looked = time.monotonic()

    def _send(self, worker: _Worker, batch: list[Question]) -> None:
        if not worker.open:
            worker.heard = time.monotonic()
        worker.open.extend(batch)
        with suppress(OSError):  # the process has ended; `_receive` notices that
            worker.connection.send(batch)

    def _hungry(self, in_advance: int) -> _Worker | None:
        """A process that has fewer questions left than so many; None if there is none."""
        least = min(self.workers, key=lambda one: len(one.open), default=None)
        if least is not None and not least.open:
            return least
        if len(self.workers) < self.num_processes:
            self.workers.append(self._start())
            return self.workers[-1]
        return least if least is not None and len(least.open) < in_advance else None

    def _start(self) -> _Worker:
        # Not a fork: the process must not share memory with this one, which has used the solver already.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self.settings, self.asker), daemon=True)
        with deaf_to_interrupts():
            process.start()
        theirs.close()
        return _Worker(process, ours, heard=time.monotonic())

    def _receive(self, seconds: float) -> None:
        """Note every answer that has arrived, or arrives in so much time, and detect lost processes."""
        while busy := {worker.connection: worker for worker in self.workers if worker.open}:
            arrived = wait(list(busy), seconds)
            for connection in arrived:
                worker = busy[connection]  # type: ignore[index]
                try:
                    answer = worker.connection.recv()
                except (EOFError, OSError):
                    worker.process.join(END_SECONDS)  # the connection ends before the process has an exit code
                    code = worker.process.exitcode
                    ended = f"ended with exit code {code}" if code is not None else "closed its connection"
                    self._lose(worker, f"the solver process {ended}")
                    continue
                worker.heard = time.monotonic()
                self._note(worker.open.popleft(), answer)
            if not arrived:
                break
            seconds = 0.0
        for worker in list(self.workers):
            if worker.open and time.monotonic() - worker.heard > self.patience_seconds:
                self._lose(worker, f"no answer for {self.patience_seconds:.0f} s")

    def _note(self, question: Question, answer: Answer) -> None:
        self.answers[question] = answer
        self.decided.extend(ProofOutcome(obligation, answer) for obligation in self.waiting.pop(question))

    def _lose(self, worker: _Worker, reason: str) -> None:
        worker.process.kill()
        worker.process.join()
        worker.connection.close()
        self.workers.remove(worker)
        question = worker.open.popleft()
        if worker.open:
            self.again.append(list(worker.open))
        self._note(question, Answer(Verdict.UNKNOWN, reason=reason))

    def stop(self) -> None:
        """Kill every process."""
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.process.join()
            worker.connection.close()
        self.workers.clear()
