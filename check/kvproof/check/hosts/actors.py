"""Actors that are processes of this machine: each holds an object, and runs its methods."""

import multiprocessing
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from kvproof.check.hosts.descendants import end_with
from kvproof.check.hosts.workers import Lost, Make, Request, done, value_of
from kvproof.models.solvers.interrupts import deaf_to_interrupts


@dataclass
class _Process:
    process: BaseProcess
    connection: "Connection[Any, Any]"


class LocalActors:
    """Actors that are processes of this machine. make: must be picklable."""

    def __init__(self, num: int, make: Make) -> None:
        self.num, self._make = num, make
        self._folder = tempfile.TemporaryDirectory(prefix="kvproof-actors-")
        self._processes = [self._started(number) for number in range(num)]

    @property
    def process_ids(self) -> list[int]:
        """As `Actors.process_ids`."""
        return [each.process.pid or 0 for each in self._processes]

    def answers(self, requests: Mapping[int, Request]) -> dict[int, Any]:
        """As `Actors.answers`."""
        lost = {number for number, request in requests.items() if not self._has_sent(number, request)}
        found: dict[int, Any] = dict.fromkeys(lost, Lost.LOST)
        outcomes = {}
        for number in requests.keys() - lost:
            try:
                outcomes[number] = self._processes[number].connection.recv()
            except (EOFError, OSError):
                found[number] = Lost.LOST
        return found | {number: value_of(outcome) for number, outcome in outcomes.items()}

    def _has_sent(self, number: int, request: Request) -> bool:
        try:
            self._processes[number].connection.send(request)
        except OSError:  # the process has ended
            return False
        return True

    def replace(self, number: int) -> None:
        """As `Actors.replace`."""
        _end(self._processes[number])
        self._processes[number] = self._started(number)

    def _started(self, number: int) -> _Process:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        arguments = (theirs, os.getpid(), self._folder.name, self._make, number, self.num)
        process = context.Process(target=_serve, args=arguments)
        with deaf_to_interrupts():
            process.start()
        theirs.close()
        return _Process(process, ours)

    def close(self) -> None:
        """As `Actors.close`."""
        for each in self._processes:
            _end(each)
        self._folder.cleanup()


def _end(kept: _Process) -> None:
    kept.connection.close()
    kept.process.kill()
    kept.process.join()


def _serve(connection: "Connection[Any, Any]", parent: int, folder: str, make: Make, number: int, num: int) -> None:
    """Make the object, and run its methods until the other process closes the connection."""
    end_with(parent)
    tempfile.tempdir = folder
    actor = Actor(make, number, num)
    try:
        while True:
            connection.send(actor.answer(*connection.recv()))
    except (EOFError, OSError):
        return


class Actor:
    """An object in a process of its own. If it cannot be made, each request is answered with the reason."""

    def __init__(self, make: Make, number: int, num: int) -> None:
        self._made = done(lambda _: make(number, num), None)

    def answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """The outcome of a method of the object."""
        is_made, kept, _ = self._made
        return done(lambda _: getattr(kept, name)(*arguments), None) if is_made else self._made
