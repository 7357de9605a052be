"""The client of a process that forks: start it, request forks, ask them, and learn how they ended.

Nothing that a fork or the process that forks sends is trusted: code of a subject may have changed them.
"""

import os
import signal
import socket
import weakref
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any, Protocol

from kvproof.check.hosts.channel import ChannelError, Connection, text_of
from kvproof.check.hosts.descendants import end_marked, marked, may_be_child
from kvproof.check.hosts.output import SubjectOutput
from kvproof.check.hosts.program import (
    BY_ITSELF_SECONDS,
    DISCARDED,
    KILLED_SECONDS,
    Running,
    ended,
    how_it_ended,
    how_it_ended_by_itself,
    started,
)
from kvproof.check.hosts.time_limit import AGAIN_SECONDS_MIN, OutOfTime, Patience, require_time, seconds_left

FORK_SECONDS_MAX = 20.0
ENDED_SERVER = "ended the process that it was forked from"


class Shared(Protocol):
    """What a fork shares with the process that asked for it: a file."""

    @property
    def descriptor(self) -> int: ...


class ServerGone(Exception):
    """The process that forks has ended: the subject ended it, or somebody else did."""


class ForkingProcess:
    """A process that forks, as `fork_server.ForkServer` does. command: starts it, with the number of its socket.

    Of what it starts, nothing is left when it was closed. `close` may be called again.
    """

    def __init__(self, command: Sequence[str]) -> None:
        output = SubjectOutput()
        mark, environment = marked()
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                self.process = started(
                    [*command, str(theirs.fileno())],
                    (DISCARDED, output.descriptor, output.descriptor),
                    [theirs.fileno()],
                    # A fixed hash seed makes runs repeatable; what a subject prints is not lost when its process ends.
                    {**environment, "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1"},
                    is_in_own_session=True,
                )
        finally:
            output.begin()
        self.control = Connection(ours)
        self.close = weakref.finalize(self, _close, self.process, self.control, output, mark)
        self._ended: dict[int, int] = {}

    @property
    def has_ended(self) -> bool:
        """Whether it is there no more."""
        return self.process.poll() is not None

    def ask(self, message: list[Any], seconds: float) -> Any:
        """Send a message before the first fork, and return the answer. Raises as `Fork.ask`, and OSError."""
        self.control.stream.settimeout(seconds)
        self.control.send(message)
        _wait_for(self.control, seconds, self.process.pid)
        return self.control.receive()

    def kill(self) -> None:
        """Kill it, and what it has started."""
        self.process.kill()
        self.close()

    def how_gone(self) -> str:
        """How it ended. One that closed its connection, or that does not end, is killed."""
        code = ended(self.process, max(BY_ITSELF_SECONDS, min(KILLED_SECONDS, seconds_left())))
        if code is None:
            self.process.kill()
            return "does not answer"
        return how_it_ended_by_itself(code)

    def fork(self, request: bytes, shared: Shared) -> "Fork":
        """A new fork. request: one byte. shared: what the fork gets. Raises ServerGone, OutOfTime."""
        ours, theirs = socket.socketpair()
        with theirs, ExitStack() as if_it_fails:
            if_it_fails.enter_context(ours)
            pid = self._forked(theirs, shared.descriptor, request)
            if_it_fails.pop_all()
        self._ended.pop(pid, None)  # the status of an earlier process with the same id
        return Fork(self, Connection(ours), pid, shared)

    def _forked(self, theirs: socket.socket, shared: int, request: bytes) -> int:
        """The process id of a new fork, which has this end of a connection. Raises ServerGone, OutOfTime."""
        try:
            socket.send_fds(self.control.stream, [request], [theirs.fileno(), shared])
            return self._await("forked", min(FORK_SECONDS_MAX, max(AGAIN_SECONDS_MIN, seconds_left())))
        except OSError as error:
            if isinstance(error, TimeoutError) and seconds_left() <= 0:
                self.process.kill()
                raise OutOfTime from None
            raise ServerGone(self.how_gone()) from error
        except ChannelError as error:
            self.process.kill()
            raise ServerGone(f"sent what is no message ({error})") from None

    def status(self, pid: int, seconds: float) -> int | None:
        """The wait status with which a fork ended; None if it does not end within the given time."""
        with suppress(TimeoutError, ServerGone, ChannelError):
            while pid not in self._ended:
                self._await("ended", seconds)
        return self._ended.pop(pid, None)

    def _await(self, wanted: str, seconds: float) -> int:
        """The process id in the next message of this kind. Raises ServerGone, ChannelError, TimeoutError.

        The subject may have changed its server. A number that is not a process that the server has forked would be
        killed later by mistake: 1 stands for every process, and 0 for those of this command.
        """
        self.control.stream.settimeout(seconds)
        while True:
            match self.control.receive():
                case None:
                    raise ServerGone(self.how_gone())
                case ["ended", int(pid), int(status)]:
                    self._ended[pid] = status
                    if wanted == "ended":
                        return pid
                case ["forked", int(pid)] if wanted == "forked" and may_be_child(pid, self.process.pid):
                    return pid
                case other:
                    raise ChannelError(f"{text_of(other)} arrived from the process that forks")


def _close(process: Running, control: Connection, output: SubjectOutput, mark: str) -> None:
    control.close()
    if ended(process, KILLED_SECONDS) is None:
        process.kill()
        process.wait()
    end_marked(mark)  # the subject may have ended the server, which would end its daemons
    output.end()


class Fork:
    """A process that was forked."""

    def __init__(self, server: ForkingProcess, connection: Connection, pid: int, shared: Shared) -> None:
        self.server, self.connection, self.pid, self.shared = server, connection, pid, shared
        self.is_alive = True
        weakref.finalize(self, connection.close)

    def ask(self, message: list[Any], seconds: float) -> Any:
        """Send a message. Returns the answer; None if the process ended instead. Raises TimeoutError, OutOfTime."""
        self.connection.stream.settimeout(seconds)
        with suppress(ConnectionError):
            self.connection.send(message)
        _wait_for(self.connection, seconds, self.pid)
        return self.connection.receive()

    def end(self, has_gone: bool = False) -> str:
        """Kill the fork. Returns how it ended, in words. has_gone: its connection is closed, so it may have ended."""
        self.is_alive = False
        self.connection.close()
        status = self.server.status(self.pid, BY_ITSELF_SECONDS) if has_gone else None
        words = how_it_ended if status is None else how_it_ended_by_itself
        if status is None:
            self._kill()
            status = self.server.status(self.pid, KILLED_SECONDS)
        if status is None:
            return ENDED_SERVER if self.server.has_ended else "does not end"
        try:
            return words(os.waitstatus_to_exitcode(status))
        except (ValueError, OverflowError):  # the subject changed its server
            return "ended with a status that no process has"

    def _kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with suppress(ProcessLookupError, PermissionError):  # it may not have its own process group yet
            os.kill(self.pid, signal.SIGKILL)


def _wait_for(connection: Connection, seconds: float, pid: int) -> None:
    """Wait until a message of the process arrives, or the end of the connection. Raises TimeoutError, OutOfTime."""
    patience = Patience(seconds, pid)
    while not connection.is_ready(max(AGAIN_SECONDS_MIN, min(patience.left(), seconds_left()))):
        require_time()
        if patience.left() <= 0:
            raise TimeoutError


def may_be_killed_by_others(how: str) -> bool:
    """Whether a text says that a process ended in a way in which anybody can end it, such as the system for memory."""
    return ENDED_SERVER in how or how_it_ended(-signal.SIGKILL) in how
