"""A process of this machine that runs kvproof's own code, and answers what it is sent over a connection.

An actor is such a process, which holds an object and runs its methods.
"""

import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any

from kvproof.check.hosts.channel import ChannelError
from kvproof.check.hosts.descendants import MARK, end_marked, end_with
from kvproof.check.hosts.interrupt import deaf_to_interrupts
from kvproof.check.hosts.program import (
    BY_ITSELF_SECONDS,
    DISCARDED,
    SAME,
    ended,
    how_it_ended_by_itself,
    module,
    started,
)
from kvproof.check.hosts.workers import Lost, Make, Request, done, value_of

Serve = Callable[..., None]


class WorkerProcess:
    """A process that serves its end of a connection until the other end is closed, or this process ends.

    serve: the function that does it, at the top level of a module; it gets the connection, and then the arguments.
    folder: for the temporary files of the process. Nothing that it has started is
    left when it has ended. A Ctrl-C at the terminal is left to this process.
    """

    def __init__(self, folder: str, serve: Serve, *arguments: Any) -> None:
        # Not a fork: a subject may have started threads here, and a solver is not to be shared.
        self.connection: Connection[Any, Any]
        self.connection, theirs = Pipe()
        self._mark = secrets.token_hex(8)
        with theirs, deaf_to_interrupts():
            self._process = started(
                module(__name__, str(theirs.fileno()), str(os.getpid())),
                (DISCARDED, SAME, SAME),
                [theirs.fileno()],
                {**os.environ, MARK: self._mark},
            )
        self.send((folder, sys.path))
        self.send((serve, arguments))

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

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
        code = ended(self._process, BY_ITSELF_SECONDS)
        if code is None:
            self.kill()
            return "closed its connection"
        end_marked(self._mark)
        return how_it_ended_by_itself(code)

    def kill(self) -> None:
        """Kill the process, and wait until it has ended."""
        self._process.kill()
        self._process.wait()
        self.connection.close()
        end_marked(self._mark)


def main(descriptor: int, parent: int) -> None:
    """Serve the connection with this descriptor."""
    end_with(parent)
    connection: Connection[Any, Any] = Connection(descriptor)
    with suppress(EOFError, OSError), connection:
        tempfile.tempdir, sys.path[:] = connection.recv()
        serve, arguments = connection.recv()
        serve(connection, *arguments)


class ScratchFolder:
    """A temporary folder, which is removed also if this process is killed: a shell waits for the end of its input.

    As a context it is the name of the folder.
    """

    def __init__(self, prefix: str) -> None:
        self.name = tempfile.mkdtemp(prefix=prefix)
        ends, self._lifeline = os.pipe()
        command = ("sh", "-c", 'read -r _; exec rm -rf -- "$0"', self.name)
        try:
            self._shell = started(command, (ends, DISCARDED, DISCARDED), is_in_own_session=True)
        finally:
            os.close(ends)

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *raised: object) -> None:
        self.cleanup()

    def cleanup(self) -> None:
        """Remove the folder. It may be called again."""
        if self._shell.returncode is None:
            os.close(self._lifeline)
            self._shell.wait()


class LocalActors:
    """Actors that are processes of this machine. make: must be picklable."""

    def __init__(self, num: int, make: Make) -> None:
        self.num, self._make = num, make
        self._folder = ScratchFolder("kvproof-actors-")
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


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
