"""A process of this machine that runs kvproof's own code, and answers what it is sent over a connection.

An actor is such a process, which holds an object and runs its methods.
"""

import multiprocessing
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from kvproof.check.hosts.channel import ChannelError
from kvproof.check.hosts.descendants import MARK, end_marked, end_with
from kvproof.check.hosts.interrupt import deaf_to_interrupts
from kvproof.check.hosts.program import BY_ITSELF_SECONDS, how_it_ended_by_itself, variable
from kvproof.check.hosts.workers import Lost, Make, Request, done, value_of

LOOK_SECONDS = 0.005
Serve = Callable[..., None]


class WorkerProcess:
    """A process that serves its end of a connection until the other end is closed, or this process ends.

    serve: the function that does it, at the top level of a module; it gets the connection, and then the arguments.
    folder: for the temporary files of the process. Nothing that it has started is
    left when it has ended. A Ctrl-C at the terminal is left to this process.
    """

    def __init__(self, folder: str, serve: Serve, *arguments: Any) -> None:
        # Not a fork: a subject may have started threads here, and a solver is not to be shared.
        context = multiprocessing.get_context("spawn")
        self.connection: Connection[Any, Any]
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_begin, args=(theirs, os.getpid(), folder, serve, arguments))
        self._mark = secrets.token_hex(8)
        with deaf_to_interrupts(), variable(MARK, self._mark):
            self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid or 0

    def send(self, message: Any) -> bool:
        """Send a message. Returns whether the process has not closed its connection."""
        try:
            self.connection.send(message)
        except OSError:
            return False
        return True

    def receive(self) -> Any:
        """The next message. Raises EOFError if the process has closed its connection, and ChannelError."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            raise EOFError from None
        except Exception as error:  # about the length, of pickle, or of what is made of it
            raise ChannelError(f"sent what is no message ({type(error).__name__}: {error})") from error

    def leave(self, is_busy: bool = False) -> None:
        """Close the connection, at which an idle process ends by itself, with what it has started; tell a busy one."""
        self.connection.close()
        if is_busy:
            self._process.terminate()

    def end(self) -> str:
        """Wait for the end of a process that was left; kill it if it does not end. Returns how it ended, in words."""
        deadline = time.monotonic() + BY_ITSELF_SECONDS
        while self._process.exitcode is None and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)  # `join` may wait for ever for a process that has closed its descriptors
        if self._process.exitcode is None:
            self.kill()
            return "closed its connection"
        end_marked(self._mark)
        return how_it_ended_by_itself(self._process.exitcode)

    def kill(self) -> None:
        """Kill the process, and wait until it has ended."""
        self._process.kill()
        self._process.join()
        self.connection.close()
        end_marked(self._mark)


def _begin(
    connection: "Connection[Any, Any]", parent: int, folder: str, serve: Serve, arguments: tuple[Any, ...]
) -> None:
    end_with(parent)
    tempfile.tempdir = folder
    with suppress(EOFError, OSError):
        serve(connection, *arguments)


class LocalActors:
    """Actors that are processes of this machine. make: must be picklable."""

    def __init__(self, num: int, make: Make) -> None:
        self.num, self._make = num, make
        self._folder = tempfile.TemporaryDirectory(prefix="kvproof-actors-")
        self._processes = [self._started(number) for number in range(num)]

    @property
    def process_ids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def answers(self, requests: Mapping[int, Request]) -> dict[int, Any]:
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
        self._processes[number].kill()
        self._processes[number] = self._started(number)

    def _started(self, number: int) -> WorkerProcess:
        return WorkerProcess(self._folder.name, _serve, self._make, number, self.num)

    def close(self) -> None:
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
