"""`kvproof device` in a process of its own, if an executor of the user may run on a CUDA device or a simulated one.

Such an executor works on tensors of kvproof, in the process of kvproof, and can end it. So the command starts itself in
another process, with the same options, and waits for it. That process writes into a record, which is a file without a
name: its id, the work that it does, and at its very end its exit code. If it ends without an exit code in the record,
the executor ended it, and that refutes the executor. What the run had decided before is in the result folder.
"""

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import typer

from kvproof.check.cli.config import options_to_repeat
from kvproof.check.hosts.program import how_it_ended
from kvproof.check.runs.errors import UsageError, fail
from kvproof.spec.verdict import Exit

PROCESS = "kvproof.check.cli.device_main"
RECORD_BYTES_MAX = 1 << 16


@dataclass(frozen=True)
class Record:
    """What the process reports. work: what it does; empty before the first case. code: its exit code at its end."""

    pid: int
    work: str = ""
    code: int | None = None


_record: list[int] = []  # in the process of the executors: the descriptor of the record


def is_apart() -> bool:
    """Whether this is the process that `run_apart` has started."""
    return bool(_record)


def open_record(descriptor: int) -> None:
    """Make this the process of the executors. descriptor: of the record."""
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
        with suppress(OSError):  # the executor has closed it
            os.pwrite(descriptor, msgspec.json.encode(Record(os.getpid(), work, code)) + b"\n", 0)


def _read(descriptor: int) -> Record | None:
    """The record; None if the executor wrote over it, or nothing is written yet."""
    import msgspec

    try:
        return msgspec.json.decode(os.pread(descriptor, RECORD_BYTES_MAX, 0).partition(b"\n")[0], type=Record)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _pid(descriptor: int) -> int | None:
    record = _read(descriptor)
    return None if record is None else record.pid


def run_apart(
    context: typer.Context, executors: Sequence[str], out: Path, json: Path | None, history: Path | None
) -> int:
    """Run the command in another process, and return its exit code. executors: those of the user.

    Raises UsageError if an executor ends the process as it is imported, KeyboardInterrupt if the process was ended by a
    signal that was sent to this one.
    """
    from kvproof.check.hosts.program import module, same_path
    from kvproof.check.hosts.supervised_command import SupervisedCommand, signals_passed_on

    with tempfile.TemporaryFile() as file:
        record = file.fileno()
        process = SupervisedCommand(
            module(PROCESS, str(record), "device", *options_to_repeat(context, frozenset())),
            streams=(0, 1, 2),
            inherited=(record,),
            variables=same_path(os.getcwd()),
        )
        try:
            with signals_passed_on(lambda: _pid(record)) as passed_on:
                process.wait()
        finally:
            ended = process.end()
        last = _read(record)
    if last is not None and last.code is not None:
        return last.code
    if -ended in passed_on:
        raise KeyboardInterrupt
    if last is not None and not last.work:
        raise UsageError(f"{', '.join(executors)}: the process that imported it {how_it_ended(ended)}")
    work = "" if last is None else last.work
    guilty = next((name for name in executors if work.startswith(f"{name}: ")), executors[0])
    text = f"{work or guilty}: the executor crashed: its process {how_it_ended(ended)}"
    return _refute(guilty, text, out, json, history)


def _refute(executor: str, text: str, out: Path, json: Path | None, history: Path | None) -> int:
    """Add the finding to the result that the process has left, and write the reports again."""
    from kvproof.check.runs.data_plane_stage import JUDGE, SWAPS
    from kvproof.check.runs.history import add_to_history
    from kvproof.check.runs.json_output import document_to
    from kvproof.check.runs.run import write_json
    from kvproof.check.runs.store import RESULT, Store
    from kvproof.check.runs.terminal import output
    from kvproof.reports.document import DocumentError, read
    from kvproof.reports.evidence import FailedCase, refuted
    from kvproof.reports.result import Result

    id = f"{JUDGE}/{SWAPS}/{executor}"
    try:
        result = read(out / RESULT, Result)
    except DocumentError as error:
        raise fail(f"refuted: {id}: {text}; {error}", Exit.REFUTED) from error
    result.checks = [
        refuted(check, FailedCase(text, executor)) if check.id == id and not check.is_failure else check
        for check in result.checks
    ]
    store = Store(out)
    store.write_all(result)
    store.write_device_page(result)
    if json is not None:
        with document_to(json):
            write_json(result, out, json)
    fail(f"refuted: {id}: {text}; what was decided before is in {out / RESULT}", Exit.REFUTED)
    add_to_history(history, result, Exit.REFUTED, output())
    return Exit.REFUTED
