"""Our side of a template process: start it, ask it for forks, and learn how they ended."""

import os
import signal
import socket
import subprocess
import sys
import weakref
from contextlib import suppress
from typing import Any

from kvproof.check.isolation.journal import Journal
from kvproof.check.isolation.limits import Limits
from kvproof.check.isolation.messages import Connection, unpack
from kvproof.check.protocol.manager import Assumption, Capabilities
from kvproof.check.subjects import UnknownSubject

COMMAND = (sys.executable, "-m", "kvproof.check.isolation.fork_server")
END_SECONDS_MAX = 10.0  # for a process that was killed to be gone
GONE_SECONDS_MAX = 2.0  # for one that ended of itself
FORK_SECONDS_MAX = 20.0


class ForkClient:
    """A template process of one subject. Raises UnknownSubject if it gives none."""

    def __init__(self, name: str, limits: Limits) -> None:
        self.subject, self.limits = name, limits
        ours, theirs = socket.socketpair()
        # A hash seed of its own for each start would make a run hard to repeat; 0 is as good as any.
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        self.process = subprocess.Popen(
            [*COMMAND, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=2,
            pass_fds=[theirs.fileno()],
            env=environment,
            start_new_session=True,
        )
        theirs.close()
        self.control = Connection(ours)
        self.close = weakref.finalize(self, _close, self.process, self.control)
        self._ended: dict[int, int] = {}
        self.level, self.name, self.capabilities, self.assumptions = self._met()

    def _met(self) -> tuple[str, str, Capabilities, tuple[Assumption, ...]]:
        self.control.stream.settimeout(self.limits.start_seconds)
        try:
            self.control.send([self.subject, sys.path, self.limits.memory_bytes])
            said = self.control.receive()
        except TimeoutError:
            self.process.kill()
            said = ["unknown", f"{self.subject}: it was not made within {self.limits.start_seconds:g} s"]
        except OSError:
            said = None
        if said is None:
            self.process.wait(END_SECONDS_MAX)
            how = how_it_ended(self.process.returncode)
            said = ["unknown", f"{self.subject}: the subject cannot be made: its process {how}"]
        if said[0] == "unknown":
            self.close()
            raise UnknownSubject(said[1])
        return said[1], said[2], unpack(said[3]), unpack(said[4])

    def fork(self, journal: Journal, purpose: bytes) -> "Fork":
        """A fresh subject, for calls or for a search."""
        ours, theirs = socket.socketpair()
        try:
            socket.send_fds(self.control.stream, [purpose], [theirs.fileno(), journal.descriptor])
        finally:
            theirs.close()
        pid = self._heard("forked")
        self._ended.pop(pid, None)  # of an earlier process with that number
        return Fork(self, Connection(ours), pid)

    def status(self, pid: int, seconds: float) -> int | None:
        """With what status a fork ended; None if it does not end in time."""
        with suppress(TimeoutError):
            while pid not in self._ended:
                self._heard("ended", seconds)
        return self._ended.pop(pid, None)

    def _heard(self, wanted: str, seconds: float = FORK_SECONDS_MAX) -> int:
        self.control.stream.settimeout(seconds)
        while True:
            said = self.control.receive()
            if said is None:
                raise AssertionError(f"the template process of {self.subject} ended; it only forks")
            if said[0] == "ended":
                self._ended[said[1]] = said[2]
            if said[0] == wanted:
                return int(said[1])


def _close(process: "subprocess.Popen[bytes]", control: Connection) -> None:
    control.close()
    try:
        process.wait(END_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Fork:
    """One fresh subject in a process of its own."""

    def __init__(self, template: ForkClient, connection: Connection, pid: int) -> None:
        self.template, self.connection, self.pid = template, connection, pid
        self.is_alive = True
        weakref.finalize(self, connection.close)

    def ask(self, message: list[Any], seconds: float | None = None) -> Any:
        """The answer to a message; None if the process ended instead. Raises TimeoutError."""
        self.connection.stream.settimeout(seconds)
        with suppress(ConnectionError):
            self.connection.send(message)
        return self.connection.receive()

    def end(self, has_gone: bool = False) -> str:
        """Be rid of it; how it ended. has_gone: it seems to have ended of itself."""
        self.is_alive = False
        self.connection.close()
        status = self.template.status(self.pid, GONE_SECONDS_MAX) if has_gone else None
        if status is None:
            self._kill()
            status = self.template.status(self.pid, END_SECONDS_MAX)
        return "does not end" if status is None else how_it_ended(os.waitstatus_to_exitcode(status))

    def _kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with suppress(ProcessLookupError, PermissionError):  # it has not made its own group yet
            os.kill(self.pid, signal.SIGKILL)


def how_it_ended(code: int) -> str:
    """In words: the exit code of a process, or the signal."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"was ended by signal {-code}"
