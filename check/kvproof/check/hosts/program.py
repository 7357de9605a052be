"""Programs that are neither asked nor judged: git, pip, a command of the user, a module of kvproof.

How any process has ended is said here in words, and how long is waited for one to end; and variables of the environment
are set for the processes that this one starts within a block.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

BEGIN = Path(__file__).with_name("begin.py")
SAME, DISCARDED, PIPED = None, subprocess.DEVNULL, subprocess.PIPE  # as this process has it, nothing, or a pipe to it
Running = subprocess.Popen[bytes]
Streams = tuple[int | None, int | None, int | None]  # standard input, output and error; also descriptors

LAST_WORDS_SECONDS = 0.5  # for a program whose input has ended to write the rest, and to end
BY_ITSELF_SECONDS = 2.0  # for a process whose connection has ended, or whose work is over
NOT_OURS = "kvproof sent none, so another process did, or the system because memory is short"
KILLED_SECONDS = 10.0  # for a process that was killed, or that first ends what it has started


class Finished(NamedTuple):
    """A program that has ended. code: as `how_it_ended` takes it."""

    code: int
    output: str
    errors: str


def finished(
    command: Sequence[str],
    seconds: float | None = None,
    environment: Mapping[str, str] | None = None,
    in_other_encoding: str = "strict",
    encoding: str | None = None,
    folder: Path | None = None,
) -> Finished:
    """Run a program to its end. Raises OSError if it cannot be started, TimeoutError, and ValueError for bad text.

    in_other_encoding: what becomes of output that has another encoding, as the `errors` of `bytes.decode`. encoding: of
    the output; by default that of the locale. folder: it works there; by default where this process does.
    """
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            encoding=encoding,
            errors=in_other_encoding,
            env=environment,
            timeout=seconds,
            cwd=folder,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"no answer within {seconds:g} s") from error
    return Finished(done.returncode, done.stdout, done.stderr)


def finished_at_terminal(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a program to its end with the streams of this process. Returns its exit code. Raises OSError."""
    return subprocess.run(command, env=environment).returncode


def started(
    command: Sequence[str],
    streams: Streams = (SAME, SAME, SAME),
    inherited: Iterable[int] = (),
    environment: Mapping[str, str] | None = None,
    is_in_own_session: bool = False,
    folder: Path | None = None,
) -> Running:
    """Start a program. inherited: further descriptors that it gets. folder: it works there. Raises OSError."""
    return subprocess.Popen(
        command,
        stdin=streams[0],
        stdout=streams[1],
        stderr=streams[2],
        pass_fds=tuple(inherited),
        env=environment,
        start_new_session=is_in_own_session,
        cwd=folder,
    )


def ended(process: Running, seconds: float) -> int | None:
    """The exit code of a program; None if it does not end in this time."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def module(name: str, *arguments: str) -> list[str]:
    """The command that runs a module of kvproof: this kvproof's, and nothing of the working folder (`begin`)."""
    folders, path = list(sys.modules["kvproof"].__path__), list(filter(None, sys.path))
    numbers = str(len(folders)), str(len(path))
    return [sys.executable, "-P", str(BEGIN), name, *numbers, *folders, *path, *arguments]


def how_it_ended(code: int) -> str:
    """The exit code of a process in words; a negative one is the signal that killed it."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"was ended by signal {-code}"


def how_it_ended_by_itself(code: int) -> str:
    """The exit code of a process that kvproof did not kill.

    No fault of a program ends it by SIGKILL, but the system does when memory is short. What follows the semicolon is no
    part of the identity of a finding.
    """
    return how_it_ended(code) + (f"; {NOT_OURS}" if code == -signal.SIGKILL else "")


@contextmanager
def variable(name: str, value: str) -> Iterator[None]:
    """Within the block, the variable has this value; afterwards it is as before."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
