"""Read a recording as a stream: a file, a pipe or standard input, plain or gzip, one line in memory at a time.

An error message gives line, column and what to do. Only the last line may be incomplete, as a server that was killed
leaves one.
"""

import gzip
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Protocol, TypeVar

import msgspec

from kvproof.check.recording.format import INTERFACES, LINE_BYTES_MAX, SCHEMA_VERSION, Header, RecordedCall
from kvproof.reports.document import DocumentError

GZIP = b"\x1f\x8b"
NUM_BLOCKS_MAX = 1_000_000  # of both devices; judging them takes about 80 MB
BLOCK_SIZE_MAX = 1 << 16
STANDARD_INPUT = "-"
HINT = "make one with kvproof.check.recording.record, or `kvproof record`"
Line = TypeVar("Line", Header, RecordedCall)


class RecordingError(DocumentError):
    """The file is not a readable recording; the message is for the user."""


class Lines(Protocol):
    """Where the lines come from."""

    def readline(self, limit: int, /) -> bytes: ...

    def close(self) -> None: ...


class RecordingReader:
    """An open recording: its header, and then its lines. A context manager.

    number, raw: number and content of the line that was read last. is_torn: the last line is incomplete. lines: read
    them from here instead of the file; then `calls` ends when no line is there yet, and may be called again.
    """

    def __init__(self, path: Path, lines: Lines | None = None) -> None:
        self.path = path
        self.name = "standard input" if str(path) == STANDARD_INPUT else str(path)
        self.number = 0
        self.is_torn = False
        self.raw = b""
        self._plain, self._file = self._opened() if lines is None else (lines, lines)
        self._calls = msgspec.json.Decoder(RecordedCall)
        try:
            self.header = self._header()
        except RecordingError:
            self.close()
            raise

    def __enter__(self) -> "RecordingReader":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._plain is not sys.stdin.buffer:
            self._file.close()
            if self._plain is not self._file:
                self._plain.close()

    def _opened(self) -> tuple[Lines, Lines]:
        """The file as it is, and its lines."""
        try:
            file: IO[bytes] = sys.stdin.buffer if str(self.path) == STANDARD_INPUT else self.path.open("rb")
            begin = file.peek(2)[:2]  # type: ignore[attr-defined]
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise RecordingError(f"{self.name} cannot be read: {reason}") from None
        return file, gzip.GzipFile(fileobj=file) if begin == GZIP else file

    def _header(self) -> Header:
        line = self._next()
        if not line:
            raise RecordingError(f"{self.name} is empty, but a recording begins with a header; {HINT}")
        try:
            version = msgspec.json.decode(line, type=_Version).kvproof_recording
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise self._wrong("this is not the header of a recording of kvproof", 1, HINT) from None
        if version != SCHEMA_VERSION:
            what = f"the recording has format version {version}, and this kvproof reads version {SCHEMA_VERSION}"
            raise self._wrong(what, 1, "validate it with the release that recorded it")
        header = self._decoded(line, msgspec.json.Decoder(Header))
        sizes = (header.block_size, header.num_gpu_blocks, header.num_host_blocks + 1)
        is_negative = min(header.window or 0, header.local_chunk or 0) < 0
        if min(sizes) < 1 or is_negative or not 0 <= header.watermark <= 1:
            raise self._wrong("the sizes in the header are impossible", 1, HINT)
        num_blocks = header.num_gpu_blocks + header.num_host_blocks
        if num_blocks > NUM_BLOCKS_MAX or header.block_size > BLOCK_SIZE_MAX:
            what = f"at most {NUM_BLOCKS_MAX:,} blocks of at most {BLOCK_SIZE_MAX:,} slots can be judged"
            raise self._wrong(what, 1, "record a server with smaller pools")
        if header.interface not in INTERFACES:
            raise self._wrong(f"there is no interface {header.interface!r}", 1, "validate it with a newer kvproof")
        return header

    def calls(self) -> Iterator[RecordedCall]:
        """The lines after the header, in order. Raises RecordingError for a broken line."""
        while line := self._next():
            is_whole = line.endswith(b"\n")
            try:
                call = self._decoded(line, self._calls)
            except RecordingError:
                if is_whole or self._next():
                    raise
                self.is_torn = True
                return
            if call.n != self.number - 1:
                what = f"found call {call.n}, expected call {self.number - 1}"
                raise self._wrong(what, 1, "lines were lost, repeated or moved; use the file as it was recorded")
            yield call

    def _next(self) -> bytes:
        try:
            line = self._file.readline(LINE_BYTES_MAX)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            self.number += 1
            raise self._wrong(f"the gzip data is broken ({error})", 1, "copy the file again") from None
        except OSError as error:
            raise RecordingError(f"{self.name} cannot be read: {error.strerror or error}") from None
        if line:
            self.number += 1
            self.raw = line
        if len(line) == LINE_BYTES_MAX:
            raise self._wrong(f"the line is longer than {LINE_BYTES_MAX:,} bytes", LINE_BYTES_MAX, HINT)
        return line

    def _decoded(self, line: bytes, decoder: "msgspec.json.Decoder[Line]") -> Line:
        try:
            return decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            what, column = _explained(error, line)
            raise self._wrong(what, column, "use the file as it was recorded") from None

    def _wrong(self, what: str, column: int, advice: str) -> RecordingError:
        return RecordingError(f"{self.name}, line {self.number}, column {column}: {what}; {advice}")


class _Version(msgspec.Struct):
    kvproof_recording: int


def _explained(error: Exception, line: bytes) -> tuple[str, int]:
    """What is wrong with a line, and in which column: where it stops being JSON, or where the wrong field is."""
    text = str(error)
    place = re.search(r"byte (\d+)", text)
    if place:
        return text, int(place[1]) + 1
    fields = re.findall(r"\.(\w+)", text.rpartition("`$")[2]) or re.findall(r"field `(\w+)`", text)
    at = line.find(f'"{fields[-1]}"'.encode()) if fields else 0
    return text, max(at, 0) + 1
