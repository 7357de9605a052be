"""Workers that are processes of this machine, without Ray.

`concurrent.futures` gives up every unit when one of its processes is killed; here a new process does the unit again.
"""

import multiprocessing
import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from kvproof.check.hosts.actors import LocalActors
from kvproof.check.hosts.descendants import end_with
from kvproof.check.hosts.workers import NUM_TRIES_MAX, SECONDS_MAX, Answer, Make, Outcome, WorkerLost, done, value_of
from kvproof.models.solvers.interrupts import deaf_to_interrupts

NUM_AHEAD = 4  # units for each worker, begun before the result of the oldest one is there
END_SECONDS = 2.0  # for a process to end by itself after its connection is closed


@dataclass(eq=False)
class _Ticket:
    """One unit that was given out. number: in its messages. is_wanted: whether somebody waits for its result."""

    do: Callable[[Any], Any]
    unit: Any
    number: int = field(default_factory=count().__next__)
    num_tries: int = 0
    is_wanted: bool = True
    outcome: Outcome | None = None


@dataclass(eq=False)
class _Stream:
    """The units of one call of `results`. begun: in their order, without those whose result was taken."""

    do: Callable[[Any], Any]
    source: Iterator[Any]
    begun: deque[_Ticket] = field(default_factory=deque)
    is_over: bool = False


@dataclass(eq=False)
class _Worker:
    """A process; ticket: the unit that it does, until the deadline at the latest."""

    process: BaseProcess
    connection: "Connection[Any, Any]"
    ticket: _Ticket | None = None
    deadline: float = 0.0


class LocalWorkers:
    """So many processes, each started when there is a unit for it, and replaced if it ends."""

    def __init__(self, num_processes: int) -> None:
        self.name = str(num_processes)
        self._num_processes = num_processes
        self._workers: list[_Worker] = []
        self._streams: list[_Stream] = []
        self._again = deque[_Ticket]()  # those whose worker was lost
        self._folder = tempfile.TemporaryDirectory(prefix="kvproof-workers-")

    @property
    def process_ids(self) -> list[int]:
        """The ids of the processes that run now."""
        return [worker.process.pid for worker in self._workers if worker.process.pid is not None]

    def prepare(self, do: Callable[[Any], Any], unit: Any) -> None:
        """As `Workers.prepare`."""
        while len(self._workers) < self._num_processes:
            self._give(self._started(), _Ticket(do, unit, is_wanted=False))

    def results(self, do: Callable[[Any], Answer], units: Iterable[Any]) -> Generator[Answer, None, None]:
        """As `Workers.results`."""
        stream = _Stream(do, iter(units))
        self._streams.append(stream)
        answers = self._answers(stream)
        next(answers)
        return answers

    def _answers(self, stream: _Stream) -> Generator[Any, None, None]:
        """Yield None when the first units have begun, and then the result of each unit."""
        try:
            self._begin_units()
            yield None
            while True:
                while stream.begun and (outcome := stream.begun[0].outcome) is not None:
                    stream.begun.popleft()
                    yield value_of(outcome)
                self._begin_units()
                if stream.is_over and not stream.begun:
                    return
                self._wait()
        finally:
            self._streams.remove(stream)
            for ticket in stream.begun:
                ticket.is_wanted = False

    def actors(self, make: Make) -> LocalActors:
        """As `Workers.actors`."""
        return LocalActors(self._num_processes, make)

    def close(self) -> None:
        """End the processes: idle ones by themselves, so that they end what they started; others at once."""
        for worker in self._workers:
            if worker.ticket is not None:
                worker.process.kill()
            worker.connection.close()
        for worker in self._workers:
            _end(worker.process)
        self._workers.clear()
        self._folder.cleanup()

    def _begin_units(self) -> None:
        """Give units to the workers that have none."""
        while True:
            idle = next((worker for worker in self._workers if worker.ticket is None), None)
            if idle is None and len(self._workers) >= self._num_processes:
                return
            if (ticket := self._next_ticket()) is None:
                return
            self._give(idle or self._started(), ticket)

    def _next_ticket(self) -> _Ticket | None:
        """A unit to do: one whose worker was lost, or else the next of the stream that began first."""
        while self._again:
            if (ticket := self._again.popleft()).is_wanted:
                return ticket
        for stream in self._streams:
            if stream.is_over or len(stream.begun) >= NUM_AHEAD * self._num_processes:
                continue
            unit = next(stream.source, stream)
            if unit is stream:
                stream.is_over = True
                continue
            stream.begun.append(_Ticket(stream.do, unit))
            return stream.begun[-1]
        return None

    def _started(self) -> _Worker:
        context = multiprocessing.get_context("spawn")  # not a fork: a subject may have started threads here
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, os.getpid(), self._folder.name))
        with deaf_to_interrupts():
            process.start()
        theirs.close()
        self._workers.append(_Worker(process, ours))
        return self._workers[-1]

    def _give(self, worker: _Worker, ticket: _Ticket) -> None:
        worker.ticket, worker.deadline = ticket, time.monotonic() + SECONDS_MAX
        ticket.num_tries += 1
        try:
            worker.connection.send((ticket.number, ticket.do, ticket.unit))
        except OSError:  # the process has ended
            self._lose(worker)

    def _wait(self) -> None:
        """Wait for a worker, and take its answer. Raises WorkerLost."""
        busy = {worker.connection: worker for worker in self._workers if worker.ticket is not None}
        left = min(worker.deadline for worker in busy.values()) - time.monotonic()
        ready = wait(list(busy), max(0.0, left))
        for worker in busy.values() if not ready else ():
            if time.monotonic() >= worker.deadline:
                worker.process.kill()
                self._lose(worker)
        for connection in ready:
            worker = busy[connection]  # type: ignore[index]
            try:
                number, outcome = worker.connection.recv()
            except (EOFError, OSError):
                self._lose(worker)
                continue
            ticket = worker.ticket
            if ticket is not None and ticket.number == number:  # not a second answer to an earlier unit
                ticket.outcome, worker.ticket = outcome, None

    def _lose(self, worker: _Worker) -> None:
        """Forget a worker whose process has ended; its unit must be done again."""
        self._workers.remove(worker)
        worker.connection.close()
        _end(worker.process)
        ticket = worker.ticket
        if ticket is None or not ticket.is_wanted:
            return
        if ticket.num_tries >= NUM_TRIES_MAX:
            raise WorkerLost(
                f"{ticket.num_tries} workers ended while they did the same unit, the last with exit code "
                f"{worker.process.exitcode}: {ticket.unit}. If the subject ends its process, leave out --no-isolation"
            )
        self._again.append(ticket)


def _end(process: BaseProcess) -> None:
    """Wait until a process whose connection is closed has ended; kill it if it does not."""
    process.join(END_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()


def _serve(connection: "Connection[Any, Any]", parent: int, folder: str) -> None:
    """Do units until the other process closes the connection. folder: for temporary files; the parent removes it."""
    end_with(parent)
    tempfile.tempdir = folder
    with suppress(EOFError, OSError):
        while True:
            number, do, unit = connection.recv()
            connection.send((number, done(do, unit)))
