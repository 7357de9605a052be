"""A process of this machine that runs kvproof's own code, and answers what it is sent over a connection."""

import multiprocessing
import os
import secrets
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from kvproof.check.hosts.channel import ChannelError
from kvproof.check.hosts.descendants import MARK, end_marked, end_with
from kvproof.check.hosts.ending import BY_ITSELF_SECONDS, how_it_ended
from kvproof.check.hosts.interrupt import deaf_to_interrupts
from kvproof.check.protocol.environment import variable

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
        return how_it_ended(self._process.exitcode)

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
