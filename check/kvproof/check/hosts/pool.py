"""Workers that are processes of this machine, without Ray.

`concurrent.futures` gives up every unit when one of its processes is killed; here a new process does the unit again.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from multiprocessing.connection import Connection, wait
from typing import Any

from kvproof.check.hosts.channel import ChannelError
from kvproof.check.hosts.worker_process import LocalActors, ScratchFolder, WorkerProcess
from kvproof.check.hosts.workers import USUAL, Handling, Make, Outcome, UnitLost, WorkerLost, done, results_in

NUM_AHEAD = 4  # units for each worker, begun before the last result of the oldest one is there


@dataclass(eq=False)
class _Ticket:
    """One unit that was given out. number: in its messages. is_wanted: whether somebody waits for its results.

    arrived: results that nobody has got yet. num_arrived: all of every try. outcome: what came of the unit, at its end.
    """

    do: Callable[[Any], Any]
    unit: Any
    handling: Handling
    number: int = field(default_factory=count().__next__)
    num_tries: int = 0
    is_wanted: bool = True
    arrived: deque[Any] = field(default_factory=deque)
    num_arrived: int = 0
    outcome: Outcome | None = None

    def add(self, results: list[Any]) -> None:
        """Note results that have arrived."""
        self.arrived += results
        self.num_arrived += len(results)


@dataclass(eq=False)
class _Stream:
    """The units of one call of `results`. begun: in their order, without those whose results were all taken."""

    do: Callable[[Any], Any]
    source: Iterator[Any]
    handling: Handling
    meanwhile: Iterator[object]
    begun: deque[_Ticket] = field(default_factory=deque)
    is_over: bool = False


@dataclass(eq=False)
class _Worker:
    """A process; ticket: the unit that it does, until the deadline at the latest. num_sent: results of this try."""

    process: WorkerProcess
    ticket: _Ticket | None = None
    deadline: float = 0.0
    num_sent: int = 0


class LocalWorkers:
    """So many processes, each started when there is a unit for it, and replaced if it ends."""

    def __init__(self, num_processes: int) -> None:
        self.name = str(num_processes)
        self._num_processes = num_processes
        self._workers: list[_Worker] = []
        self._streams: list[_Stream] = []
        self._again = deque[_Ticket]()  # those whose worker was lost
        self._folder = ScratchFolder("kvproof-workers-")

    @property
    def process_ids(self) -> list[int]:
        """The ids of the processes that run now."""
        return [worker.process.pid for worker in self._workers]

    def prepare(self, do: Callable[[Any], Any], unit: Any) -> None:
        while len(self._workers) < self._num_processes:
            self._give(self._started(), _Ticket(do, unit, USUAL, is_wanted=False))

    def results(
        self,
        do: Callable[[Any], Any],
        units: Iterable[Any],
        handling: Handling = USUAL,
        meanwhile: Iterable[object] = (),
    ) -> Generator[Any, None, None]:
        stream = _Stream(do, iter(units), handling, iter(meanwhile))
        self._streams.append(stream)
        answers = self._answers(stream)
        next(answers)
        return answers

    def _answers(self, stream: _Stream) -> Generator[Any, None, None]:
        """Yield None when the first units have begun, and then the results of each unit."""
        try:
            self._begin_units()
            yield None
            while True:
                yield from _taken(stream)
                self._begin_units()
                has_more = stream.is_over and next(stream.meanwhile, stream) is not stream
                if stream.is_over and not stream.begun and not has_more:
                    return
                self._wait(0.0 if has_more else float("inf"))
        finally:
            self._streams.remove(stream)
            for ticket in stream.begun:
                ticket.is_wanted = False

    def actors(self, make: Make) -> LocalActors:
        return LocalActors(self._num_processes, make)

    def close(self) -> None:
        """End the processes: idle ones by themselves, so that they end what they started; others at once."""
        for worker in self._workers:
            worker.process.leave(is_busy=worker.ticket is not None)
        for worker in self._workers:
            worker.process.end()
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
            stream.begun.append(_Ticket(stream.do, unit, stream.handling))
            return stream.begun[-1]
        return None

    def _started(self) -> _Worker:
        self._workers.append(_Worker(WorkerProcess(self._folder.name, _serve)))
        return self._workers[-1]

    def _give(self, worker: _Worker, ticket: _Ticket) -> None:
        worker.ticket, worker.num_sent = ticket, 0
        worker.deadline = time.monotonic() + ticket.handling.seconds
        ticket.num_tries += 1
        if not worker.process.send((ticket.number, ticket.do, ticket.unit)):
            self._lose(worker)

    def _wait(self, seconds: float) -> None:
        """Wait for a message of a worker for at most so long, and take it. Raises WorkerLost."""
        busy = {worker.process.connection: worker for worker in self._workers if worker.ticket is not None}
        left = min((worker.deadline for worker in busy.values()), default=0.0) - time.monotonic()
        ready = wait(list(busy), max(0.0, min(seconds, left)))
        for connection in ready:
            worker = busy[connection]  # type: ignore[index]
            try:
                self._take(worker, *worker.process.receive())
            except EOFError:
                self._lose(worker)
            except ChannelError as error:
                worker.process.kill()
                self._lose(worker, str(error))
        for worker in busy.values() if not ready else ():
            if worker.ticket is not None and time.monotonic() >= worker.deadline:
                worker.process.kill()
                self._lose(worker, f"gave no answer for {worker.ticket.handling.seconds:,.0f} s")

    def _take(self, worker: _Worker, number: int, outcome: Outcome, is_last: bool) -> None:
        """Take a message: one result of several, or what came of the whole unit."""
        ticket = worker.ticket
        if ticket is None or ticket.number != number:
            return  # a second answer to an earlier unit
        if is_last:
            ticket.outcome, worker.ticket = outcome, None
            results = results_in(outcome)[worker.num_sent :] if outcome[0] else []
        else:
            results = [outcome[1]]
        num_known = max(0, ticket.num_arrived - worker.num_sent)  # an earlier try has brought them
        worker.num_sent += len(results)
        worker.deadline = time.monotonic() + ticket.handling.seconds
        ticket.add(results[num_known:])

    def _lose(self, worker: _Worker, how: str = "") -> None:
        """Forget a worker whose process has ended, or must end; its unit must be done again."""
        self._workers.remove(worker)
        worker.process.leave()
        how, ticket = how or worker.process.end(), worker.ticket
        if ticket is None or not ticket.is_wanted:
            return
        if ticket.num_tries < ticket.handling.num_tries:
            self._again.append(ticket)
        elif ticket.handling.is_loss_a_result:
            ticket.outcome = True, UnitLost(how, worker.num_sent == ticket.num_arrived), ""
            ticket.add([ticket.outcome[1]])
        else:
            raise WorkerLost(
                f"{ticket.num_tries} workers ended while they did the same unit, the last {how}: {ticket.unit}. "
                "If the subject ends its process, leave out --no-isolation"
            )


def _taken(stream: _Stream) -> Iterator[Any]:
    """The results that have arrived; in the order of the units, if that is asked. Raises what a unit raised."""
    for ticket in list(stream.begun):
        while ticket.arrived:
            yield ticket.arrived.popleft()
        if ticket.outcome is not None:
            stream.begun.remove(ticket)
            results_in(ticket.outcome)
        elif stream.handling.is_ordered:
            return


def _serve(connection: "Connection[Any, Any]") -> None:
    """Do units until the other process closes the connection."""
    while True:
        number, do, unit = connection.recv()
        outcome = done(do, unit, partial(_send_part, connection, number))
        connection.send((number, outcome, True))


def _send_part(connection: "Connection[Any, Any]", number: int, one: Any) -> None:
    connection.send((number, (True, one, ""), False))
