"""The fork server process: it imports a subject once, and forks a process with a fresh one on each request.

It is run as `python -m kvproof.check.isolation.fork_server FD`; FD is a socket to the process that wants the subject.
What the forks need alike is there before the first of them: the rules of the level, compiled, and objects that the
garbage collector of a fork leaves alone.
"""

import gc
import socket
import sys
from contextlib import suppress

from kvproof.check.hosts.channel import Connection
from kvproof.check.hosts.fork_server import ForkServer, ending_with
from kvproof.check.hosts.garbage_collection import collecting_seldom
from kvproof.check.hosts.interrupt import INTERRUPT, TERMINATE, leave_to_parent
from kvproof.check.hosts.limits import limit_memory
from kvproof.check.isolation.child import serve
from kvproof.check.isolation.factory import made_here
from kvproof.check.isolation.journal import Journal
from kvproof.check.isolation.messages import SEARCH, pack
from kvproof.check.isolation.stuck_place import write_frames_on_signal
from kvproof.check.oracle.level import Level, level_of
from kvproof.check.subjects import UnknownSubject

NUM_NEW_OBJECTS = 200_000  # between two collections while a subject is imported, which makes hardly any garbage


def main(descriptor: int) -> None:
    """Create the subject, describe it to the parent, and fork until the parent closes the socket."""
    leave_to_parent(INTERRUPT, TERMINATE)
    control = Connection(socket.socket(fileno=descriptor))
    hello = control.receive()
    if hello is None:
        return
    name, sys.path[:], memory_bytes, parent = hello
    try:
        with ending_with(parent), collecting_seldom(NUM_NEW_OBJECTS):
            factory = made_here(name)
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

    def serve_fork(connection: Connection, journal: int) -> None:
        limit_memory(memory_bytes)
        write_frames_on_signal(journal)
        serve(connection, factory, Journal(journal))

    ForkServer(control, Compiling(level).prepare, serve_fork).run()


class Compiling:
    """Compiles the rules of a level before the first search."""

    def __init__(self, level: Level) -> None:
        self._level, self._is_done = level, False

    def prepare(self, request: bytes) -> None:
        """Compile the rules, once, if the request is a search."""
        if request == SEARCH and not self._is_done:
            self._level.compile()
            gc.freeze()
            self._is_done = True


if __name__ == "__main__":
    with suppress(BrokenPipeError):  # the parent has ended, such as by Ctrl-C, before it was answered
        main(int(sys.argv[1]))
