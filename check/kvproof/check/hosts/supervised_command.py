"""A command that a supervisor starts (`descendants`): nothing of it is left when it ends, or when kvproof does."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress

from kvproof.check.hosts import descendants
from kvproof.check.hosts.descendants import end_marked, marked
from kvproof.check.hosts.ending import BY_ITSELF_SECONDS

# Without the modules of the user and the site: the supervisor imports a few standard modules, and starts in 20 ms.
SUPERVISOR = (sys.executable, "-I", "-S", descendants.__file__)


class SupervisedCommand:
    """A running command in a session of its own. Raises OSError if it cannot be started.

    streams: standard input, output and error, as of `subprocess.Popen`. inherited: other descriptors that the command
    gets. variables: those of its environment that differ. `supervisor` ends as the command does, but after everything
    that the command has started; the command is its child.
    """

    def __init__(
        self,
        command: Iterable[str],
        *,
        streams: tuple[int, int, int],
        inherited: Iterable[int] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._mark, environment = marked()
        self._lifeline, theirs = socket.socketpair()
        failed, fails = os.pipe()
        with theirs, os.fdopen(fails, "wb"):
            self.supervisor = subprocess.Popen(
                [*SUPERVISOR, str(theirs.fileno()), str(fails), str(os.getpid()), *command],
                pass_fds=(*inherited, theirs.fileno(), fails),
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
                env={**environment, **(variables or {})},
                bufsize=0,
                start_new_session=True,
            )
        with os.fdopen(failed, "rb") as answer:
            error = int(answer.read() or 0)
        if error:
            self.end()
            raise OSError(error, os.strerror(error))

    def end(self) -> None:
        """End the command and everything that it started. It may be called again."""
        self._lifeline.close()
        for stream in (self.supervisor.stdin, self.supervisor.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        try:
            self.supervisor.wait(BY_ITSELF_SECONDS)  # the command may have stopped it
        except subprocess.TimeoutExpired:
            self.supervisor.kill()
            self.supervisor.wait()
        end_marked(self._mark)
