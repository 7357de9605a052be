"""Turn exceptions into exit codes: each gives one clear message, no traceback, and the code that fits."""

import errno
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import typer

from kvproof.reports.printable import printable
from kvproof.spec.extras import MissingExtra
from kvproof.spec.verdict import Exit


class UsageError(Exception):
    """The command line asks for something impossible; the message says what is possible.

    option: the option whose value is impossible, as a parameter of the command; empty if it is not the value of one.
    """

    def __init__(self, message: str, option: str = "") -> None:
        super().__init__(message)
        self.option = option


def fail(message: str, code: Exit) -> typer.Exit:
    """Print the message on standard error, and return the exception to raise."""
    lines = f"kvproof: {printable(message)}".splitlines()
    with suppress(OSError):
        if sys.stderr.isatty():
            from kvproof.reports.terminal import wrapped

            width = shutil.get_terminal_size().columns
            lines = [part for line in lines for part in wrapped(line, width)]
        print(*lines, sep="\n", file=sys.stderr, flush=True)
    return typer.Exit(code)


_lost_output: list[OSError] = []  # at most one error of this command


def report_lost_output(error: OSError) -> None:
    """Report once that standard output cannot be written. The command goes on, but it does not succeed."""
    if not _lost_output:
        _lost_output.append(error)
        lost_output(error)


def lost_output(error: OSError) -> typer.Exit:
    """Report that standard output cannot be written, and return the exception to raise."""
    return fail(f"standard output cannot be written ({error.strerror}); what follows is not printed", Exit.INTERNAL)


def discard(stream: IO[Any]) -> None:
    """Let what is written to a stream from now on go nowhere, and what it still holds too."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def error_boundary(json: Path | None = None, place: Callable[[str], str] = lambda option: "") -> Iterator[None]:
    """Run the body of a command, and turn what it raises into an exit code. json: the file of its result document.

    place: where in a configuration the value of an option comes from; empty if it comes from the command line.
    If a part of the output was lost, the command does not succeed; a refutation stays one. An interrupt passes through:
    typer makes exit code 130 of it at any moment, and `app.main` the message.
    """
    from kvproof.check.hosts.workers import NoWorkers, WorkerLost
    from kvproof.check.protocol.fault_attribution import lack_of
    from kvproof.check.protocol.finding import AdapterError
    from kvproof.check.runs.json_output import document_to
    from kvproof.check.runs.store import StoreError
    from kvproof.reports.document import DocumentError

    _lost_output.clear()
    try:
        with document_to(json):
            yield
        if _lost_output:
            raise typer.Exit(Exit.INTERNAL)
    except typer.Exit as done:
        if _lost_output and done.exit_code != Exit.REFUTED:
            raise typer.Exit(Exit.INTERNAL) from done
        raise
    except (StoreError, UsageError) as error:
        where = place(error.option) if error.option else ""
        code = error.exit_code if isinstance(error, StoreError) else Exit.USAGE
        raise fail(f"{where}: {error}" if where else str(error), code) from error
    except (DocumentError, AdapterError, MissingExtra, NoWorkers) as error:
        raise fail(str(error), Exit.USAGE) from error
    except WorkerLost as error:
        raise fail(str(error), Exit.INTERNAL) from error
    except BrokenPipeError as error:  # the reader has closed the pipe: nobody reads the rest
        discard(sys.stdout)
        raise typer.Exit(Exit.INCONCLUSIVE) from error
    except (Exception, SystemExit) as error:  # SystemExit too: only this function decides the exit code
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:  # no name that kvproof makes is so long
            raise fail(f"{error.filename or 'a path'} cannot be used: {error.strerror}", Exit.USAGE) from error
        if lack := lack_of(error):
            raise fail(lack, Exit.INTERNAL) from error
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise fail(f"a fault of kvproof, not of the subject: {what}\n{_place(error)}", Exit.INTERNAL) from error


def _place(error: BaseException) -> str:
    """The innermost four frames, innermost last, for a bug report."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    return "\n".join(f"  in {frame.name}, {Path(frame.filename).name} line {frame.lineno}" for frame in frames)
