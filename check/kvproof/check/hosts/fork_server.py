"""A process that forks on request: it starts no threads, so each fork is a process with one thread.

A request is one byte with two descriptors: a socket, and what is shared with the fork. Each fork gets a session of its
own and ends with the process that forks, which adopts what a fork leaves behind, and ends it.
"""

import os
import select
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from kvproof.check.hosts.channel import Connection
from kvproof.check.hosts.descendants import adopt_descendants, end_children, end_with, may_be_child
from kvproof.check.protocol.finding import error_text

PARENT_SECONDS = 0.5  # between two looks at whether the parent lives
FAULT = 70  # the exit code of a fork that failed because of an error in kvproof


@contextmanager
def ending_with(parent: int) -> Iterator[None]:
    """Within the block, end this process soon after its parent: a subject may hang where nobody reads the socket.

    parent: its id by its own account. It may have ended before this process could ask for it.
    """

    def look(number: int, frame: object) -> None:
        if os.getppid() != parent:
            os._exit(0)

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, PARENT_SECONDS, PARENT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class ForkServer:
    """Forks on request, and reports the exit status of each fork.

    prepare: is called with the byte of a request before the fork. serve: what a fork does, with its end of the socket
    and the other descriptor.
    """

    def __init__(
        self, control: Connection, prepare: Callable[[bytes], None], serve: Callable[[Connection, int], None]
    ) -> None:
        self.control, self._prepare, self._serve_fork = control, prepare, serve
        self.forks: set[int] = set()
        adopt_descendants()
        self.woken, waker = os.pipe()
        for end in (self.woken, waker):
            os.set_blocking(end, False)
        self.waker = waker
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def run(self) -> None:
        """Serve until the parent closes the socket; then kill every fork."""
        with suppress(ConnectionError):
            self._serve()
        for pid in self.forks:
            if may_be_child(pid, os.getpid()):  # the subject may have changed os.fork
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
        end_children()

    def _serve(self) -> None:
        stream = self.control.stream
        while True:
            ready = select.select([stream.fileno(), self.woken], [], [])[0]
            if self.woken in ready:
                with suppress(BlockingIOError):
                    os.read(self.woken, 4096)
                self._reap()
            if stream.fileno() in ready:
                request, descriptors, _, _ = socket.recv_fds(stream, 1, 2)
                if not request:
                    return
                self._prepare(request)
                self._fork(*descriptors)

    def _reap(self) -> None:
        while self.forks:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid in self.forks:
                self.forks.remove(pid)
                self.control.send(["ended", pid, status])
                if not self.forks:
                    end_children()

    def _fork(self, descriptor: int, shared: int) -> None:
        server = os.getpid()
        pid = os.fork()
        if not pid:
            self._be_a_fork(server, descriptor, shared)
        self.forks.add(pid)
        os.close(descriptor)
        os.close(shared)
        self.control.send(["forked", pid])

    def _be_a_fork(self, server: int, descriptor: int, shared: int) -> NoReturn:
        try:
            end_with(server)
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            self.control.close()
            os.close(self.woken)
            os.close(self.waker)
            with socket.socket(fileno=descriptor) as stream:
                self._serve_fork(Connection(stream), shared)
        except BaseException as error:
            with suppress(BaseException):  # the subject may have changed everything here
                os.write(2, f"the process of the subject failed{_place_of(error)}\n".encode(errors="replace"))
            os._exit(FAULT)
        os._exit(0)  # without running exit handlers that the subject registered


def _place_of(error: BaseException) -> str:
    """The exception and where it was raised, in one line."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    place = "" if at is None else f", {at.tb_frame.f_code.co_filename} line {at.tb_lineno}"
    return f": {type(error).__name__}: {error_text(error)}{place}"
