"""Every kind of host, behind one function: it runs a piece of Python in another process, and says what came of that.

The piece is run by `exec` in the process of the host. What came of it is `7` if it ran to its end, `raised TEXT` for an
exception, `no answer` after a second, `no message` if what arrived is none, or how the process ended.
"""

import json
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from kvproof.check.hosts.channel import ChannelError, Connection
from kvproof.check.hosts.fork_client import ForkingProcess
from kvproof.check.hosts.fork_server import ForkServer
from kvproof.check.hosts.line_host import Ended, LineHost, LineTooLong, NotRead
from kvproof.check.hosts.output import SubjectOutput
from kvproof.check.hosts.pool import LocalWorkers
from kvproof.check.hosts.worker_process import LocalActors
from kvproof.check.hosts.workers import Handling, Lost, UnitLost, Workers

Ask = Callable[[str], str]
SECONDS = 3.0  # for an answer
DESCRIPTORS_MAX = 512  # a process of tests has many open, and so the numbers of a channel may be large
# Of a process that is started to run a function of this file.
PATH = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
NO_ANSWER, NO_MESSAGE, NOT_READ = "no answer", "no message", "not read"


def run(code: str) -> int:
    """Run a piece of Python, in the process of a host."""
    exec(code, {"channels": range(3, DESCRIPTORS_MAX)})
    return 7


def serve_lines(requests: int, answers: int) -> None:
    """The program of a host that answers lines."""
    for line in os.fdopen(requests, "rb"):
        os.write(answers, json.dumps(_done(json.loads(line))).encode() + b"\n")


def serve_forks(descriptor: int) -> None:
    """The process that forks."""

    def serve(connection: Connection, shared: int) -> None:
        while (request := connection.receive()) is not None:
            connection.send([_done(request[0])])

    ForkServer(Connection(socket.socket(fileno=descriptor)), lambda request: None, serve).run()


def _done(code: str) -> str:
    try:
        return str(run(code))
    except Exception as error:
        return f"raised {error}"


def _command(function: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", f"from {__name__} import {function}; {function}({', '.join(arguments)})"]


@contextmanager
def fork() -> Iterator[Ask]:
    """A fork of a process."""
    with tempfile.TemporaryFile() as file, _path():

        class Nothing:
            descriptor = file.fileno()

        server = ForkingProcess(_command("serve_forks", "int(__import__('sys').argv[1])"))
        forked = server.fork(b"c", Nothing())

        def ask(code: str) -> str:
            try:
                answer = forked.ask([code], SECONDS)
            except TimeoutError:
                return NO_ANSWER
            except ChannelError:
                return NO_MESSAGE
            return forked.end(has_gone=True) if answer is None else str(answer[0])

        try:
            yield ask
        finally:
            if forked.is_alive:
                forked.end()
            server.close()


@contextmanager
def _path() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", PATH["PYTHONPATH"])
        yield


@contextmanager
def _lines(command: list[str], over_arguments: bool) -> Iterator[Ask]:
    host = LineHost(command, SubjectOutput(is_printed=False), over_arguments=over_arguments, variables=PATH)

    def ask(code: str) -> str:
        try:
            return str(json.loads(host.ask(json.dumps(code).encode() + b"\n", SECONDS)))
        except NotRead:
            return NOT_READ
        except TimeoutError:
            return NO_ANSWER
        except (LineTooLong, ValueError):
            return NO_MESSAGE
        except Ended as how:
            return str(how)

    with closing_by(host.end):
        yield ask


def pipe() -> Any:
    """A program that is asked over its standard input and output."""
    return _lines(_command("serve_lines", "0", "1"), over_arguments=False)


def executor() -> Any:
    """A program that is asked over two descriptors, as an executor of the data plane."""
    numbers = "*map(int, __import__('sys').argv[1:])"
    return _lines(_command("serve_lines", numbers), over_arguments=True)


@contextmanager
def pool() -> Iterator[Ask]:
    """A worker of a pool."""
    with closing(LocalWorkers(1)) as workers:
        workers.prepare(run, "pass")
        yield asking(workers)


def asking(workers: Workers, seconds: float = SECONDS) -> Ask:
    """What asks workers for one unit."""

    def ask(code: str) -> str:
        try:
            (result,) = workers.results(run, [code], Handling(seconds, num_tries=1, is_loss_a_result=True))
        except RuntimeError as error:
            return f"raised {error}"
        if not isinstance(result, UnitLost):
            return str(result)
        return NO_ANSWER if NO_ANSWER in result.how else NO_MESSAGE if NO_MESSAGE in result.how else result.how

    return ask


class Held:
    """The object of an actor."""

    def __init__(self, number: int, num: int) -> None:
        self.number, self.num = number, num

    def run(self, code: str) -> int:
        """As `run`."""
        return run(code)


@contextmanager
def actor() -> Iterator[Ask]:
    """An actor."""
    with closing(LocalActors(1, Held)) as actors:

        def ask(code: str) -> str:
            try:
                answer = actors.answers({0: ("run", (code,))})[0]
            except RuntimeError as error:
                return f"raised {error}"
            return "lost" if answer is Lost.LOST else str(answer)

        yield ask


@contextmanager
def ray_worker() -> Iterator[Ask]:
    """A worker of a Ray cluster."""
    from kvproof.check.hosts.on_ray import RayWorkers

    with closing(RayWorkers()) as workers:
        yield asking(workers, seconds=60.0)


@contextmanager
def closing_by(end: Callable[[], object]) -> Iterator[None]:
    """Call this at the end of the block."""
    try:
        yield
    finally:
        end()
