"""Streams, events and the host of a simulated device: what is queued, what has run, and what is ordered before what.

A clock counts the work of each actor that certainly ran before. An actor is the host, or a stream. Work runs as late as
possible: when the host or another stream waits for it.

Source: CUDA C++ Programming Guide, sections on streams, events and implicit synchronisation. Streams of torch do not
wait for the default stream, because torch creates them as non-blocking.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Clock = dict[int, int]
HOST = 0


def join(clock: Clock, other: Clock) -> None:
    """Make `clock` include everything that the other one includes."""
    for actor, count in other.items():
        if count > clock.get(actor, 0):
            clock[actor] = count


@dataclass
class Operation:
    """Queued work. run: moves the bytes. clock: what certainly runs before it, itself included."""

    name: str
    actor: int
    clock: Clock
    run: Callable[[Operation], None]

    @property
    def number(self) -> int:
        """Its number among the work of its actor."""
        return self.clock[self.actor]

    def includes(self, actor: int, number: int) -> bool:
        """Whether the work of an actor up to this number is ordered before this."""
        return self.clock.get(actor, 0) >= number

    def counts(self, actors: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each actor, how much of its work is ordered before this."""
        known = np.zeros(int(actors.max(initial=0)) + 1, np.int64)
        for actor, count in self.clock.items():
            if actor < len(known):
                known[actor] = count
        return known[actors]


@dataclass
class Actor:
    """The host, or a stream with its queue."""

    name: str
    number: int
    clock: Clock = field(default_factory=dict)

    def tick(self, name: str, run: Callable[[Operation], None]) -> Operation:
        """The next work of this actor."""
        self.clock[self.number] = self.clock.get(self.number, 0) + 1
        return Operation(name, self.number, dict(self.clock), run)


class Stream(Actor):
    """A queue of work. `device` is its simulated device; arguments are as for `torch.cuda.Stream`."""

    def __init__(self, host: Host) -> None:
        self.host = host
        super().__init__("the default stream" if not host.streams else f"stream {len(host.streams)}", host.num_actors)
        self._queue: list[Operation] = []
        self._num_run = 0
        host.streams.append(self)

    def submit(self, name: str, run: Callable[[Operation], None]) -> None:
        """Queue work. It runs after everything that the host did before."""
        join(self.clock, self.host.clock)
        self._queue.append(self.tick(name, run))

    def wait_event(self, event: Event) -> None:
        """Make later work of this stream run after the event. An event that was not recorded is no wait."""
        if (origin := event.stream) is not None:
            join(self.clock, event.clock)
            self._queue.append(self.tick("a wait for an event", lambda _: origin.run_until(event.position)))

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


_RAN = Operation("", HOST, {}, lambda _: None)


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
    """The program that queues work, with the streams of the device. `current`: where work is queued now."""

    def __init__(self) -> None:
        super().__init__("the host", HOST)
        self.streams: list[Stream] = []
        self.current = Stream(self)

    @property
    def num_actors(self) -> int:
        return 1 + len(self.streams)

    def name_of(self, actor: int) -> str:
        """The name of an actor in a text."""
        return self.name if actor == HOST else self.streams[actor - 1].name

    def act(self, name: str) -> Operation:
        """Work of the host itself, which has run."""
        return self.tick(name, lambda _: None)

    def synchronize(self) -> None:
        """Wait for all streams."""
        for stream in self.streams:
            stream.synchronize()
