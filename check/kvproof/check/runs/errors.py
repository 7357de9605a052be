"""From exceptions to exit codes: one clear message each, no traceback, and never a code that says something else."""

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import typer

from kvproof.spec.verdict import Exit


class UsageError(Exception):
    """What the user asked for cannot be done; the message says what can."""


def fail(message: str, code: Exit) -> typer.Exit:
    """Say it on standard error; raise what this returns."""
    with suppress(OSError):
        print(f"kvproof: {message}", file=sys.stderr, flush=True)
    return typer.Exit(code)


@contextmanager
def error_boundary(json: Path | None = None) -> Iterator[None]:
    """What every command runs in; json: where its document shall go."""
    from kvproof.check.protocol.finding import AdapterError
    from kvproof.check.runs.json_output import document_to
    from kvproof.check.runs.store import StoreError
    from kvproof.reports.document import DocumentError

    try:
        with document_to(json):
            yield
    except typer.Exit:
        raise
    except StoreError as error:
        raise fail(str(error), error.exit_code) from error
    except (UsageError, DocumentError, AdapterError) as error:
        raise fail(str(error), Exit.USAGE) from error
    except KeyboardInterrupt as error:
        raise fail("interrupted", Exit.INCONCLUSIVE) from error
    except BrokenPipeError as error:  # who reads us has gone: what is left to say has no reader
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(Exit.INCONCLUSIVE) from error
    except (Exception, SystemExit) as error:  # only what is decided here ends the process
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise fail(f"a fault of kvproof, not of the subject: {what}\n{_place(error)}", Exit.INTERNAL) from error


def _place(error: BaseException) -> str:
    """Where it happened, innermost last, for the report of the fault."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    return "\n".join(f"  in {frame.name}, {Path(frame.filename).name} line {frame.lineno}" for frame in frames)
