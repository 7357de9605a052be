"""The client of a fork server: start it, request forks, and learn how they ended."""

import os
import signal
import socket
import subprocess
import sys
import weakref
from contextlib import ExitStack, suppress
from typing import Any

from kvproof.check.hosts.channel import ChannelError, Connection, text_of
from kvproof.check.hosts.descendants import end_marked, marked, may_be_child
from kvproof.check.hosts.ending import BY_ITSELF_SECONDS, KILLED_SECONDS, how_it_ended
from kvproof.check.hosts.limits import Limits
from kvproof.check.hosts.output import SubjectOutput
from kvproof.check.hosts.time_limit import AGAIN_SECONDS_MIN, OutOfTime, Patience, require_time, seconds_left
from kvproof.check.isolation.journal import Journal
from kvproof.check.isolation.messages import unpack
from kvproof.check.oracle.level import LEVELS
from kvproof.check.protocol.manager import Assumption, Capabilities
from kvproof.check.subjects import SubjectNotReady, UnknownSubject

COMMAND = (sys.executable, "-m", "kvproof.check.isolation.fork_server")
FORK_SECONDS_MAX = 20.0
LEVEL_NAMES = frozenset(level.name for level in LEVELS)
WROTE_TO_CHANNEL = "it wrote to descriptors of its process that are not its own"
ENDED_SERVER = "ended the process that it was forked from"


class ServerGone(Exception):
    """The process that forks has ended: the subject ended it, or somebody else did."""


class ForkClient:
    """The fork server of one subject. Raises UnknownSubject if the subject cannot be created.

    A server that a subject has ended is started again for the next fork, within what is left of the run. level, name,
    capabilities, assumptions: those of the subject.
    """

    def __init__(self, name: str, limits: Limits) -> None:
        self.subject, self.limits = name, limits
        self._start()

    def _start(self) -> None:
        output = SubjectOutput()
        mark, environment = marked()
        try:
            ours, theirs = socket.socketpair()
            self.process = subprocess.Popen(
                [*COMMAND, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output.descriptor,
                stderr=output.descriptor,
                pass_fds=[theirs.fileno()],
                # A fixed hash seed makes runs repeatable; what a subject prints is not lost when its process ends.
                env={**environment, "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        finally:
            output.begin()
        theirs.close()
        self.control = Connection(ours)
        self.close = weakref.finalize(self, _close, self.process, self.control, output, mark)
        self._ended: dict[int, int] = {}
        self.level, self.name, self.capabilities, self.assumptions = self._handshake()

    def _handshake(self) -> tuple[str, str, Capabilities, tuple[Assumption, ...]]:
        seconds = min(self.limits.start_seconds, max(AGAIN_SECONDS_MIN, seconds_left()))
        self.control.stream.settimeout(seconds)
        try:
            self.control.send([self.subject, sys.path, self.limits.memory_bytes, os.getpid()])
            _wait_for(self.control, seconds, self.process.pid)
            answer = self.control.receive()
        except (TimeoutError, OutOfTime):
            self.process.kill()
            self.close()
            if seconds_left() <= 0:  # it is made again at the end of a run, which says nothing about it
                raise OutOfTime from None
            late = f"{self.subject}: the subject was not ready within {self.limits.start_seconds:g} s"
            raise SubjectNotReady(late) from None
        except OSError:
            answer = None
        except ChannelError as error:
            answer = [str(error)]
        match answer:
            case None:
                reason = f"its process {self._how_gone()}"
            case ["unknown", str(reason)]:
                self.close()
                raise UnknownSubject(reason)
            case ["made", str(level), str(name), capabilities, assumptions] if level in LEVEL_NAMES:
                with suppress(ChannelError, TypeError):
                    offers, assumed = unpack(capabilities), tuple(unpack(assumptions))
                    if isinstance(offers, Capabilities) and all(isinstance(one, Assumption) for one in assumed):
                        return level, name, offers, assumed
                reason = WROTE_TO_CHANNEL
            case _:
                reason = WROTE_TO_CHANNEL
        self.process.kill()
        self.close()
        raise UnknownSubject(f"{self.subject}: the subject cannot be created: {reason}")

    def _how_gone(self) -> str:
        """How the server ended. One that closed its connection, or that does not end, is killed."""
        try:
            return how_it_ended(self.process.wait(max(BY_ITSELF_SECONDS, min(KILLED_SECONDS, seconds_left()))))
        except subprocess.TimeoutExpired:
            self.process.kill()
            return "does not answer"

    def fork(self, journal: Journal, purpose: bytes) -> "Fork":
        """A fork with a fresh subject. purpose: CALLS_ONLY or SEARCH. Raises ServerGone if there is no server."""
        if self.process.poll() is not None:
            self.close()
            self._start()
        ours, theirs = socket.socketpair()
        with theirs, ExitStack() as if_it_fails:
            if_it_fails.enter_context(ours)
            pid = self._forked(theirs, journal, purpose)
            if_it_fails.pop_all()
        self._ended.pop(pid, None)  # the status of an earlier process with the same id
        return Fork(self, Connection(ours), pid, journal)

    def _forked(self, theirs: socket.socket, journal: Journal, purpose: bytes) -> int:
        """The process id of a new fork, which has this end of a connection. Raises ServerGone, OutOfTime."""
        try:
            socket.send_fds(self.control.stream, [purpose], [theirs.fileno(), journal.descriptor])
            return self._await("forked", min(FORK_SECONDS_MAX, max(AGAIN_SECONDS_MIN, seconds_left())))
        except OSError as error:
            if isinstance(error, TimeoutError) and seconds_left() <= 0:
                self.process.kill()
                raise OutOfTime from None
            raise ServerGone(self._how_gone()) from error
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
                    raise ServerGone(self._how_gone())
                case ["ended", int(pid), int(status)]:
                    self._ended[pid] = status
                    if wanted == "ended":
                        return pid
                case ["forked", int(pid)] if wanted == "forked" and may_be_child(pid, self.process.pid):
                    return pid
                case other:
                    raise ChannelError(f"{text_of(other)} arrived from the process that forks")


def _close(process: "subprocess.Popen[bytes]", control: Connection, output: SubjectOutput, mark: str) -> None:
    control.close()
    try:
        process.wait(KILLED_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    end_marked(mark)  # the subject may have ended the server, which would end its daemons
    output.end()


class Fork:
    """A process with one fresh subject."""

    def __init__(self, server: ForkClient, connection: Connection, pid: int, journal: Journal) -> None:
        self.server, self.connection, self.pid, self.journal = server, connection, pid, journal
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
        if status is None:
            self._kill()
            status = self.server.status(self.pid, KILLED_SECONDS)
        if status is None:
            gone = self.server.process.poll() is not None
            return ENDED_SERVER if gone else "does not end"
        try:
            return how_it_ended(os.waitstatus_to_exitcode(status))
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
