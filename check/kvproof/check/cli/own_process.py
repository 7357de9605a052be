"""A command in a process of its own, where code of the user runs in the process of kvproof and can end it.

The command starts itself in another process, with the same options, and waits for it. That process writes into a
record, which is a file without a name: its id, the work that it does, and at its very end its exit code. If it ends
without an exit code in the record, it did not end by itself. So it is with an executor on a device (`device_process`),
and with a subject that has no process of its own, by `--no-isolation`.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import typer

from kvproof.check.hosts.program import how_it_ended_by_itself
from kvproof.check.runs.errors import error_boundary, fail
from kvproof.spec.verdict import Exit

PROCESS = "kvproof.check.cli.own_process_main"
RECORD_BYTES_MAX = 1 << 16


@dataclass(frozen=True)
class Record:
    """What the process reports. work: what it does; empty before the first case. code: its exit code at its end."""

    pid: int
    work: str = ""
    code: int | None = None


_record: list[int] = []  # in the other process: the descriptor of the record


def is_apart() -> bool:
    """Whether this is the process that `run_again` has started."""
    return bool(_record)


def open_record(descriptor: int) -> None:
    """Make this the other process. descriptor: of the record."""
    _record.append(descriptor)
    report_work("")


def report_work(what: str) -> None:
    """Write into the record, if there is one, what is done from now on."""
    _write(what)


def report_end(code: int) -> None:
    """Write the exit code into the record. Nothing of the command may run after this."""
    _write(code=code)


def _write(work: str = "", code: int | None = None) -> None:
    import msgspec

    for descriptor in _record:
        with suppress(OSError):  # the user's code has closed it
            os.pwrite(descriptor, msgspec.json.encode(Record(os.getpid(), work, code)) + b"\n", 0)


def _read(descriptor: int) -> Record | None:
    """The record; None if the user's code wrote over it, or nothing is written yet."""
    import msgspec

    try:
        return msgspec.json.decode(os.pread(descriptor, RECORD_BYTES_MAX, 0).partition(b"\n")[0], type=Record)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _pid(descriptor: int) -> int | None:
    record = _read(descriptor)
    return None if record is None else record.pid


@dataclass(frozen=True)
class Ended:
    """How the other process ended. code: as `how_it_ended` takes it. last: its last record."""

    code: int
    last: Record | None


def run_again(words: list[str]) -> Ended:
    """Run a command of kvproof in another process, to its end.

    Raises KeyboardInterrupt if a signal that was sent to this process ended the other one before it had an exit code.
    """
    from kvproof.check.hosts.program import module
    from kvproof.check.hosts.supervised_command import SupervisedCommand, signals_passed_on

    with tempfile.TemporaryFile() as file:
        record = file.fileno()
        process = SupervisedCommand(
            module(PROCESS, str(record), *words),
            streams=(0, 1, 2),
            inherited=(record,),
        )
        try:
            with signals_passed_on(lambda: _pid(record)) as passed_on:
                process.wait()
        finally:
            ended = process.end()
        last = _read(record)
    if -ended in passed_on and (last is None or last.code is None):
        raise KeyboardInterrupt
    return Ended(ended, last)


# A subject without a process of its own ---------------------------------------------------------------------------

_command: list[list[str]] = []  # the words of this command, if it is the user's


@contextmanager
def of_the_user(words: list[str]) -> Iterator[None]:
    """Within the block, this process is a command that a user typed, and not a test that calls one."""
    _command.append(words)
    try:
        yield
    finally:
        _command.pop()


def run_apart_without_isolation(isolation: bool | None) -> bool | None:
    """Run the command again in a process that the subject may end, if the subject is to have none of its own.

    It is called when the option is read. Raises Exit with the exit code of that process; it is never a success if the
    process ended before the command did. Returns the value of the option where the command goes on.
    """
    if isolation is not False or not _command or is_apart():
        return isolation
    with error_boundary():
        ended = run_again(_command[-1])
        if ended.last is not None and ended.last.code is not None:
            raise typer.Exit(ended.last.code)
        text = f"the process of the run, in which the subject was called, {how_it_ended_by_itself(ended.code)}"
        advice = "Leave --no-isolation out: then the call that ends its process is found."
        raise fail(f"inconclusive: {text}. {advice}", Exit.INCONCLUSIVE)
