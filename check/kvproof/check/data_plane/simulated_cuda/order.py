"""Streams, events and the host of a simulated device: what is queued, what has run, and what is ordered before what.

A clock counts the work of each actor that certainly ran before. An actor is the host, or a stream. Work runs as late as
possible: when the host or another stream waits for it.

When the host has waited for all streams, everything before that is ordered before everything after it. So the clocks
begin again from empty, and need not name streams that are used no longer. `Host.settled` remembers that moment.

Source: CUDA C++ Programming Guide, sections on streams, events and implicit synchronisation. Streams of torch do not
wait for the default stream, because torch creates them as non-blocking.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

Clock = dict[int, int]
HOST = 0


def join(clock: Clock, other: Clock) -> None:
    """Make `clock` include everything that the other one includes."""
    for actor, count in other.items():
        if count > clock.get(actor, 0):
            clock[actor] = count


@dataclass
class Operation:
    """Queued work. serial: counts the work of all actors, in the order of the calls. run: moves the bytes.

    clock: for each actor, the serial of its last work that certainly runs before this, which is included.
    """

    name: str
    actor: int
    serial: int
    clock: Clock
    run: Callable[[Operation], None]

    def is_after(self, actor: int, serial: int) -> bool:
        """Whether this work of an actor is ordered before this operation, or is this operation."""
        return self.clock.get(actor, 0) >= serial


@dataclass
class Actor:
    """The host, or a stream with its queue."""

    name: str
    number: int
    clock: Clock = field(default_factory=dict)

    def tick(self, name: str, serial: int, run: Callable[[Operation], None]) -> Operation:
        """The next work of this actor."""
        self.clock[self.number] = serial
        return Operation(name, self.number, serial, dict(self.clock), run)


class Stream(Actor):
    """A queue of work of the one simulated device, with the methods of `torch.cuda.Stream` that order work."""

    def __init__(self, host: Host) -> None:
        self.host = host
        number = host.num_actors
        super().__init__(host.name_of(number), number)
        host.num_actors += 1
        self._queue: list[Operation] = []
        self._num_run = 0

    def submit(self, name: str, run: Callable[[Operation], None]) -> None:
        """Queue work. It runs after everything that the host did before."""
        join(self.clock, self.host.clock)
        self._enqueue(name, run)

    def _enqueue(self, name: str, run: Callable[[Operation], None]) -> None:
        self.host.busy[self.number] = self
        self._queue.append(self.tick(name, self.host.next_serial(), run))

    def wait_event(self, event: Event) -> None:
        """Make later work of this stream run after the event. An event that was not recorded is no wait."""
        if (origin := event.stream) is not None:
            join(self.clock, event.clock)
            position = event.position
            self._enqueue("a wait for an event", lambda _: origin.run_until(position))

    def wait_stream(self, other: Stream) -> None:
        """Make later work of this stream run after all work that the other one has now."""
        self.wait_event(other.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event, which stands for all work of this stream so far."""
        made = event if event is not None else Event(self.host)
        made.record(self)
        return made

    def synchronize(self) -> None:
        """Make the host wait for all work of this stream."""
        self.run_until(len(self._queue))
        join(self.host.clock, self.clock)

    def query(self) -> bool:
        """Whether all work has ended. One piece of work runs at each call, so that a loop of queries ends."""
        self.run_until(min(self._num_run + 1, len(self._queue)))
        if self._num_run < len(self._queue):
            return False
        join(self.host.clock, self.clock)
        return True

    @property
    def position(self) -> int:
        """The number of pieces of work that were queued."""
        return len(self._queue)

    def run_until(self, position: int) -> None:
        """Run the work before this position, in order."""
        while self._num_run < position:
            operation = self._queue[self._num_run]
            self._num_run += 1
            operation.run(operation)
            self._queue[self._num_run - 1] = _RAN  # releases the memory that it holds


_RAN = Operation("", HOST, 0, {}, lambda _: None)


class Event:
    """An event of a simulated device. The time that it records is of the host, when it is awaited."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.stream: Stream | None = None
        self.clock: Clock = {}
        self.position = 0
        self._seconds = 0.0

    def record(self, stream: Stream | None = None) -> None:
        """Stand for all work that the stream has now, by default the current stream."""
        self.stream = self.host.current if stream is None else stream
        self.stream.submit("an event", self._take_time)
        self.clock, self.position = dict(self.stream.clock), self.stream.position

    def _take_time(self, operation: Operation) -> None:
        self._seconds = time.perf_counter()

    def wait(self, stream: Stream | None = None) -> None:
        """Make the stream wait, by default the current stream."""
        (self.host.current if stream is None else stream).wait_event(self)

    def synchronize(self) -> None:
        """Make the host wait."""
        if self.stream is not None:
            self.stream.run_until(self.position)
            join(self.host.clock, self.clock)

    def query(self) -> bool:
        """Whether the event has occurred; the work before it runs now, as it may."""
        self.synchronize()
        return True

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds between two events."""
        return (end._seconds - self._seconds) * 1000


class Host(Actor):
    """The program that queues work.

    default: the default stream. current: the stream on which work is queued now. busy: the streams, by number, that got
    work since the host last waited for all of them. settled: work with a smaller serial had run then, and is ordered
    before everything that runs now.
    """

    def __init__(self) -> None:
        super().__init__("the host", HOST)
        self.num_actors = 1
        self.settled = self._serial = 1
        self.busy: dict[int, Stream] = {}
        self.default = self.current = Stream(self)

    def next_serial(self) -> int:
        """The serial of new work."""
        self._serial += 1
        return self._serial - 1

    def name_of(self, actor: int) -> str:
        """The name of an actor in a text."""
        return self.name if actor == HOST else f"stream {actor - 1}" if actor > 1 else "the default stream"

    def act(self, name: str) -> Operation:
        """Work of the host itself, which has run."""
        return self.tick(name, self.next_serial(), lambda _: None)

    def synchronize(self) -> None:
        """Wait for all streams."""
        for stream in list(self.busy.values()):
            stream.synchronize()
        for actor in (self, *self.busy.values()):
            actor.clock.clear()
        self.busy.clear()
        self.settled = self._serial
