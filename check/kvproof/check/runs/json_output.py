"""Where the document of a run goes with `--json`: a file that can be written, or standard output with nothing beside.

Whether a file can be written is seen before the run, and not after it. If standard output is wanted for the document,
all else that is said there (the report, what an adapter or an engine prints, in Python or not) goes to standard error.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO

from kvproof.check.runs.store import StoreError, explained
from kvproof.reports.atomic import write_atomically
from kvproof.spec.verdict import Exit

STANDARD_OUTPUT = Path("-")
_apart: ContextVar[BinaryIO] = ContextVar("standard_output")  # kept for the document


@contextmanager
def document_to(json: Path | None) -> Iterator[None]:
    """Have the document's place ready in the block. Raises StoreError if it cannot be written there."""
    if json == STANDARD_OUTPUT:
        with _standard_output_apart():
            yield
        return
    if json is not None:
        require_writable(json)
    yield


def write_document(json: Path, data: bytes) -> None:
    """Write it, within `document_to`. Raises StoreError."""
    if json != STANDARD_OUTPUT:
        with explained(json):
            write_atomically(json, data)
        return
    stream = _apart.get(None) or sys.stdout.buffer
    stream.write(data)
    stream.flush()


def require_writable(json: Path) -> None:
    """Raise StoreError unless a file can be written there."""
    with explained(json):
        if json.is_dir():
            raise StoreError(f"{json} is a folder; --json needs a file, --out takes a folder", Exit.USAGE)
        json.parent.mkdir(parents=True, exist_ok=True)
        target = Path(os.path.realpath(json))
        if target.is_file() or not target.exists():  # else a pipe or a device, which is not replaced
            with tempfile.TemporaryFile(dir=target.parent):
                pass


@contextmanager
def _standard_output_apart() -> Iterator[None]:
    sys.stdout.flush()
    with _duplicate() as stream, redirect_stdout(sys.stderr):
        token = _apart.set(stream)
        try:
            yield
        finally:
            _apart.reset(token)


@contextmanager
def _duplicate() -> Iterator[BinaryIO]:
    """Standard output, while descriptor 1 is standard error; where there are no descriptors, just the stream."""
    try:
        ours, theirs = sys.stdout.fileno(), sys.stderr.fileno()
    except (OSError, ValueError):  # a test that captures
        yield sys.stdout.buffer
        return
    kept = os.dup(ours)
    stream = os.fdopen(os.dup(ours), "wb")
    os.dup2(theirs, ours)
    try:
        yield stream
    finally:
        with suppress(OSError):  # whoever reads has gone
            stream.close()
        os.dup2(kept, ours)
        os.close(kept)
