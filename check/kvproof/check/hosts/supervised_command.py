"""A command that a supervisor starts (`descendants`): nothing of it is left when it ends, or when kvproof does."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType

from kvproof.check.hosts import descendants
from kvproof.check.hosts.descendants import end_marked, marked
from kvproof.check.hosts.program import BY_ITSELF_SECONDS, Streams, ended, started

# Without the modules of the user and the site: the supervisor imports a few standard modules, and starts in 20 ms.
SUPERVISOR = (sys.executable, "-I", "-S", descendants.__file__)


class SupervisedCommand:
    """A running command in a session of its own. Raises OSError if it cannot be started.

    inherited: other descriptors that the command gets. variables: those of its environment that differ. pid: of the
    supervisor, which ends as the command does, but after everything that the command has started; the command is its
    child.
    """

    def __init__(
        self,
        command: Iterable[str],
        *,
        streams: Streams,
        inherited: Iterable[int] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._mark, environment = marked()
        self._lifeline, theirs = socket.socketpair()
        failed, fails = os.pipe()
        with theirs, os.fdopen(fails, "wb"):
            self._supervisor = started(
                [*SUPERVISOR, str(theirs.fileno()), str(fails), str(os.getpid()), *command],
                streams,
                (*inherited, theirs.fileno(), fails),
                {**environment, **(variables or {})},
                is_in_own_session=True,
            )
        self.pid = self._supervisor.pid
        self._code: int | None = None
        with os.fdopen(failed, "rb") as answer:
            error = int(answer.read() or 0)
        if error:
            self.end()
            raise OSError(error, os.strerror(error))

    def wait(self, seconds: float | None = None) -> int | None:
        """The exit code of the command; None if it does not end in this time."""
        return self._supervisor.wait() if seconds is None else ended(self._supervisor, seconds)

    def end(self) -> int:
        """End the command and everything that it started. Returns its exit code. It may be called again."""
        if self._code is None:
            self._lifeline.close()
            if ended(self._supervisor, BY_ITSELF_SECONDS) is None:  # the command may have stopped it
                self._supervisor.kill()
            self._code = self._supervisor.wait()
            end_marked(self._mark)
        return self._code


@contextmanager
def signals_passed_on(pid: Callable[[], int | None]) -> Iterator[set[int]]:
    """Within the block, send SIGINT and SIGTERM to the process with this id. Yields those that were sent.

    Raises KeyboardInterrupt if there is no such process yet.
    """
    passed_on: set[int] = set()
    if threading.current_thread() is not threading.main_thread():
        yield passed_on
        return

    def pass_on(number: int, frame: FrameType | None) -> None:
        if (other := pid()) is None:
            raise KeyboardInterrupt
        passed_on.add(number)
        with suppress(ProcessLookupError):
            os.kill(other, number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield passed_on
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
