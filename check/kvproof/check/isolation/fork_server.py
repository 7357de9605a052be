"""The fork server process: it imports a subject once, and forks a process with a fresh one on each request.

It is run as `python -m kvproof.check.isolation.fork_server FD`; FD is a socket to the process that wants the subject.
The server starts no threads, so each fork is a process with one thread. What the forks need alike is there before the
first of them: the rules of the level, compiled, and objects that the garbage collector of a fork leaves alone.
"""

import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from kvproof.check.hosts.channel import Connection
from kvproof.check.hosts.descendants import adopt_descendants, end_children, end_with, may_be_child
from kvproof.check.hosts.garbage_collection import collecting_seldom
from kvproof.check.hosts.limits import limit_memory
from kvproof.check.isolation.child import serve
from kvproof.check.isolation.factory import found
from kvproof.check.isolation.journal import Journal
from kvproof.check.isolation.messages import SEARCH, pack
from kvproof.check.isolation.stuck_place import write_frames_on_signal
from kvproof.check.oracle.level import Level, level_of
from kvproof.check.protocol.finding import error_text
from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.registry import Factory

PARENT_SECONDS = 0.5  # between two looks at whether the parent lives
NUM_NEW_OBJECTS = 200_000  # between two collections while a subject is imported, which makes hardly any garbage
FAULT = 70  # the exit code of a fork that failed because of an error in kvproof


def main(descriptor: int) -> None:
    """Create the subject, describe it to the parent, and fork until the parent closes the socket."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the parent decides when this process ends
        signal.signal(number, signal.SIG_IGN)
    control = Connection(socket.socket(fileno=descriptor))
    hello = control.receive()
    if hello is None:
        return
    name, sys.path[:], memory_bytes, parent = hello
    try:
        with ending_with(parent), collecting_seldom(NUM_NEW_OBJECTS):
            factory = found(name)
            subject = factory()
            gc.collect()
            gc.freeze()  # or the collector of each fork looks at all objects that are there now, and copies their pages
    except UnknownSubject as error:
        control.send(["unknown", str(error)])
        return
    level = level_of(subject)
    offers = pack(subject.capabilities), pack(tuple(subject.assumptions))
    try:
        control.send(["made", level.name, subject.name, *offers])
    except UnicodeEncodeError as error:
        control.send(["unknown", f"{name}: its name, or the text of an assumption, is no text: {error.reason}"])
        return
    ForkServer(control, factory, level, memory_bytes).run()


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
    """Forks on request, and reports the exit status of each fork."""

    def __init__(self, control: Connection, factory: Factory, level: Level, memory_bytes: int) -> None:
        self.control, self.factory, self.level, self.memory_bytes = control, factory, level, memory_bytes
        self.forks: set[int] = set()
        self.has_compiled = False
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
                # A request is one byte (CALLS_ONLY or SEARCH) with two descriptors: a socket and a journal.
                request, descriptors, _, _ = socket.recv_fds(stream, 1, 2)
                if not request:
                    return
                if request == SEARCH and not self.has_compiled:
                    self.level.compile()
                    gc.freeze()
                    self.has_compiled = True
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

    def _fork(self, descriptor: int, journal: int) -> None:
        server = os.getpid()
        pid = os.fork()
        if not pid:
            self._be_a_fork(server, descriptor, journal)
        self.forks.add(pid)
        os.close(descriptor)
        os.close(journal)
        self.control.send(["forked", pid])

    def _be_a_fork(self, server: int, descriptor: int, journal: int) -> NoReturn:
        try:
            end_with(server)
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            self.control.close()
            os.close(self.woken)
            os.close(self.waker)
            limit_memory(self.memory_bytes)
            write_frames_on_signal(journal)
            serve(Connection(socket.socket(fileno=descriptor)), self.factory, Journal(journal))
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


if __name__ == "__main__":
    with suppress(BrokenPipeError):  # the parent has ended, such as by Ctrl-C, before it was answered
        main(int(sys.argv[1]))
