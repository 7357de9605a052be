"""Actors that are processes of this machine: each holds an object, and runs its methods."""

import tempfile
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from kvproof.check.hosts.channel import ChannelError
from kvproof.check.hosts.worker_process import WorkerProcess
from kvproof.check.hosts.workers import Lost, Make, Request, done, value_of


class LocalActors:
    """Actors that are processes of this machine. make: must be picklable."""

    def __init__(self, num: int, make: Make) -> None:
        self.num, self._make = num, make
        self._folder = tempfile.TemporaryDirectory(prefix="kvproof-actors-")
        self._processes = [self._started(number) for number in range(num)]

    @property
    def process_ids(self) -> list[int]:
        """As `Actors.process_ids`."""
        return [process.pid for process in self._processes]

    def answers(self, requests: Mapping[int, Request]) -> dict[int, Any]:
        """As `Actors.answers`."""
        lost = {number for number, request in requests.items() if not self._processes[number].send(request)}
        found: dict[int, Any] = dict.fromkeys(lost, Lost.LOST)
        outcomes = {}
        for number in requests.keys() - lost:
            try:
                outcomes[number] = self._processes[number].receive()
            except (EOFError, ChannelError):
                found[number] = Lost.LOST
        return found | {number: value_of(outcome) for number, outcome in outcomes.items()}

    def replace(self, number: int) -> None:
        """As `Actors.replace`."""
        self._processes[number].kill()
        self._processes[number] = self._started(number)

    def _started(self, number: int) -> WorkerProcess:
        return WorkerProcess(self._folder.name, _serve, self._make, number, self.num)

    def close(self) -> None:
        """As `Actors.close`."""
        for process in self._processes:
            process.kill()
        self._folder.cleanup()


def _serve(connection: "Connection[Any, Any]", make: Make, number: int, num: int) -> None:
    """Make the object, and run its methods until the other process closes the connection."""
    actor = Actor(make, number, num)
    while True:
        connection.send(actor.answer(*connection.recv()))


class Actor:
    """An object in a process of its own. If it cannot be made, each request is answered with the reason."""

    def __init__(self, make: Make, number: int, num: int) -> None:
        self._made = done(lambda _: make(number, num), None)

    def answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """The outcome of a method of the object."""
        is_made, held, _ = self._made
        return done(lambda _: getattr(held, name)(*arguments), None) if is_made else self._made
