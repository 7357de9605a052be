"""The destination of the result document with `--json`: a file, or standard output.

Whether the file can be written is checked before the run. With `--json -`, standard output holds the document and
nothing else: the report, and whatever an adapter or an engine prints from Python or C, go to standard error.
"""

import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO

from kvproof.check.hosts.interrupt import uninterrupted
from kvproof.check.runs.store import StoreError, explained
from kvproof.reports.document import write_atomically
from kvproof.spec.verdict import Exit

STANDARD_OUTPUT = Path("-")
_document_stream: ContextVar[BinaryIO] = ContextVar("standard_output")  # the real standard output


@contextmanager
def document_to(json: Path | None) -> Iterator[None]:
    """Prepare the destination for the duration of the block. Raises StoreError if it cannot be written."""
    if json == STANDARD_OUTPUT:
        with _standard_output_for_document():
            yield
        return
    if json is not None:
        require_writable(json)
    yield


def write_document(json: Path, data: bytes) -> None:
    """Write the document; call this within `document_to`. An interrupt waits for its end. Raises StoreError."""
    if json != STANDARD_OUTPUT:
        with explained(json):
            write_atomically(json, data, follows_links=True)
        return
    stream = _document_stream.get(None) or sys.stdout.buffer
    try:
        with uninterrupted():
            stream.write(data)
            stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StoreError(f"standard output cannot be written ({error.strerror})", Exit.INTERNAL) from error


def require_writable(json: Path) -> None:
    """Raise StoreError unless the file can be written."""
    with explained(json):
        if json.is_dir():
            raise StoreError(f"{json} is a folder; --json needs a file, --out takes a folder", Exit.USAGE)
        json.parent.mkdir(parents=True, exist_ok=True)
        target = Path(os.path.realpath(json))
        if target.is_file() or not target.exists():  # a pipe or a device is written to, not replaced
            with tempfile.TemporaryFile(dir=target.parent):
                pass


@contextmanager
def _standard_output_for_document() -> Iterator[None]:
    sys.stdout.flush()
    with _duplicate() as stream, redirect_stdout(sys.stderr):
        token = _document_stream.set(stream)
        try:
            yield
        finally:
            _document_stream.reset(token)


@contextmanager
def _duplicate() -> Iterator[BinaryIO]:
    """Yield a copy of standard output while descriptor 1 points to standard error.

    Without descriptors (a test that captures output) yield the stream itself.
    """
    try:
        ours, theirs = sys.stdout.fileno(), sys.stderr.fileno()
    except (OSError, ValueError):  # output is captured
        yield sys.stdout.buffer
        return
    kept = os.dup(ours)
    stream = os.fdopen(os.dup(ours), "wb")
    os.dup2(theirs, ours)
    try:
        yield stream
    finally:
        with suppress(OSError):  # the reader has closed the pipe
            stream.close()
        ctypes.CDLL(None).fflush(None)  # what the C library keeps of what an adapter printed
        os.dup2(kept, ours)
        os.close(kept)
