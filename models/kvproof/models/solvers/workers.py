"""Many questions at once: processes that ask a solver, watched from here.

Questions travel as text, a few at a time to whoever has none left. An answer is given on as soon as it is there, in
whatever order. A process that is silent for much longer than the timeout allows, or that ends, costs the question it
was at (`unknown`, and why); the others it had are asked again by the process that takes its place. Whoever stops
taking answers stops the processes.
"""

import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from kvproof.models.proofs.obligation import Obligation
from kvproof.models.solvers.solving import TRIVIAL, Answer, ProofOutcome, Settings, ask
from kvproof.spec.verdict import Verdict

BATCH = 16  # questions sent at once: few enough that nobody waits for one process at the end
WAYS_MAX = 3  # in which a solver is asked one question
GRACE_SECONDS = 10.0  # a solver looks at its clock now and then only

Asker = Callable[[str, str, Settings], Answer]  # hypotheses, negated goal; a function that a process can import
Question = tuple[int, str, str]  # number, hypotheses, negated goal; many have the same hypotheses, sent once


def decide_all(
    obligations: Iterable[Obligation], settings: Settings, num_processes: int = 2, asker: Asker = ask
) -> Iterator[ProofOutcome]:
    """Decide every obligation; what is kept word for word is decided here, the others by processes.

    asker: how a process decides one; it tries no more than `WAYS_MAX` ways, each up to the timeout.
    """
    pool = _Pool(settings, num_processes, asker)
    try:
        yield from pool.run(iter(obligations))
    finally:
        pool.stop()


def _serve(connection: Connection, settings: Settings, asker: Asker) -> None:
    """What a process does: answer, until nobody asks any more. An interrupt is the asker's affair."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, OSError):
        while True:
            questions: list[Question] = connection.recv()
            for number, assumed, goal in questions:
                connection.send((number, _answer(asker, assumed, goal, settings)))


def _answer(asker: Asker, assumed: str, goal: str, settings: Settings) -> Answer:
    try:
        return asker(assumed, goal, settings)
    except Exception as error:  # what a solver cannot read is undecided, and the others go on
        return Answer(Verdict.UNKNOWN, reason=f"{type(error).__name__}: {error}")


@dataclass(eq=False)
class _Worker:
    """A process, and the questions it has not answered yet, in their order."""

    process: BaseProcess
    connection: Connection
    open: deque[Question] = field(default_factory=deque)
    spoke: float = 0.0


class _Pool:
    def __init__(self, settings: Settings, num_processes: int, asker: Asker) -> None:
        self.settings, self.asker = settings, asker
        self.num_processes = num_processes
        self.patience_seconds = WAYS_MAX * settings.timeout_seconds + GRACE_SECONDS
        self.workers: list[_Worker] = []
        self.again: deque[Question] = deque()  # questions of a process that was lost
        self.asked: dict[int, Obligation] = {}

    def run(self, obligations: Iterator[Obligation]) -> Iterator[ProofOutcome]:
        """Answers, as they come."""
        next_number, is_over = 0, False
        while not is_over or self.asked:
            batch: list[Question] = []
            while len(batch) < BATCH and (self.again or not is_over):
                if self.again:
                    batch.append(self.again.popleft())
                    continue
                obligation = next(obligations, None)
                if obligation is None:
                    is_over = True
                elif obligation.is_trivial():
                    yield ProofOutcome(obligation, TRIVIAL, is_trivial=True)
                else:
                    self.asked[next_number] = obligation
                    batch.append((next_number, *obligation.question()))
                    next_number += 1
            while batch and (worker := self._idle()) is None:
                yield from self._answers()
            if batch and worker is not None:
                worker.open.extend(batch)
                worker.spoke = time.monotonic()
                with suppress(OSError):  # it has ended; that is noticed where answers are awaited
                    worker.connection.send(batch)
            yield from self._answers(0.0 if batch else None)

    def _idle(self) -> _Worker | None:
        for worker in self.workers:
            if not worker.open:
                return worker
        if len(self.workers) < self.num_processes:
            self.workers.append(self._start())
            return self.workers[-1]
        return None

    def _start(self) -> _Worker:
        # Not a fork: the solver's memory, and that of whoever calls us, is not to be shared.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self.settings, self.asker), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours, spoke=time.monotonic())

    def _answers(self, seconds: float | None = None) -> Iterator[ProofOutcome]:
        """Whatever has been answered; wait for it, but not so long that a silent process is overlooked."""
        busy = {worker.connection: worker for worker in self.workers if worker.open}
        if not busy:
            return
        for connection in wait(list(busy), 1.0 if seconds is None else seconds):
            worker = busy[connection]  # type: ignore[index]
            try:
                number, answer = worker.connection.recv()
            except (EOFError, OSError):
                yield self._lost(worker, f"the process that was asked ended with {worker.process.exitcode}")
                continue
            worker.open.popleft()
            worker.spoke = time.monotonic()
            yield ProofOutcome(self.asked.pop(number), answer)
        for worker in list(busy.values()):
            if worker.open and time.monotonic() - worker.spoke > self.patience_seconds:
                yield self._lost(worker, f"no answer for {self.patience_seconds:.0f} s")

    def _lost(self, worker: _Worker, reason: str) -> ProofOutcome:
        worker.process.kill()
        worker.process.join()
        worker.connection.close()
        self.workers.remove(worker)
        number, _, _ = worker.open.popleft()
        self.again.extend(worker.open)
        return ProofOutcome(self.asked.pop(number), Answer(Verdict.UNKNOWN, reason=reason))

    def stop(self) -> None:
        """End every process."""
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.process.join()
            worker.connection.close()
        self.workers.clear()
