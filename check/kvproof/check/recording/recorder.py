"""The recorder: write one line for each outermost call of a manager, before the caller continues.

The recorder replaces bound methods of one manager object and does not change its class. It passes the arguments to the
manager, and the answer or exception back to the caller, unchanged. An error in the recorder itself (a full disk, an
unexpected object of an engine) never reaches the server: a last line gives the reason, the recording stops, and later
calls go directly to the manager.
"""

import atexit
import hashlib
import os
import secrets
import sys
import warnings
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from kvproof.check.recording.format import DIGESTS, ENDED, IDS, STOPPED, Header, RecordedCall, RecordedSequence, Table
from kvproof.check.recording.segments import SegmentWriter
from kvproof.check.subjects.loading.partial_import import installed_version

DIGEST_BYTES = 8
FIRST_BYTES = b'{"kvproof_recording":'  # of every recording
POSITIVE = (1 << 63) - 1


class RecordingRefused(Exception):
    """The object cannot be recorded; the message gives the reason."""


def require_replaceable(path: Path) -> None:
    """Raise RecordingRefused if the file exists and is neither empty nor a recording: it would be lost."""
    try:
        if not path.is_file():
            return
        with path.open("rb") as file:
            first = file.read(len(FIRST_BYTES))
    except OSError as error:
        raise RecordingRefused(f"{path} cannot be read: {error.strerror}") from error
    if first not in (b"", FIRST_BYTES):
        raise RecordingRefused(f"{path} exists and is not a recording of kvproof; name another file, or remove it")


class Written:
    """What has been written about a live sequence: the number of tokens, its tables, the digest of its last token."""

    __slots__ = ("last", "num_tokens", "tables")

    def __init__(self) -> None:
        self.num_tokens = 0
        self.tables: list[list[int]] = []
        self.last = b""


class Recorder:
    """Writes the lines of one manager. Subclasses define the calls and their lines.

    The method `on_NAME(answer, *arguments)` returns the line of a call NAME, without its number and the state of the
    pool. It returns None for a call that needs no line. segments: splits the recording for a judge that runs beside it.
    """

    calls: tuple[str, ...] = ()

    def __init__(
        self,
        manager: Any,
        path: Path,
        digest_key: bytes | None,
        shows_pool: bool,
        segments: SegmentWriter | None = None,
    ) -> None:
        self.manager, self.path, self.shows_pool, self._segments = manager, path, shows_pool, segments
        self.key, self.has_digests = digest_key or secrets.token_bytes(32), digest_key is not None
        self.known: dict[int, Written] = {}
        self.num_lines = 0
        self.is_on = True
        self._is_inside = False
        self._encoder = msgspec.json.Encoder()
        header = self.header()
        header.tokens = DIGESTS if self.has_digests else IDS
        header.version = installed_version("kvproof")
        if shows_pool:
            header.refs, header.free_ids = self.pool()
        header.started = datetime.now(timezone.utc).replace(microsecond=0, tzinfo=None).isoformat() + "Z"
        require_replaceable(path)
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        except OSError as error:
            raise RecordingRefused(f"{path} cannot be written: {error.strerror}") from error
        self._identity = os.fstat(self._file)
        self._process = os.getpid()
        self._put(header)
        self._wrapped = {name: vars(manager).get(name) for name in self.calls if hasattr(manager, name)}
        for name in self._wrapped:
            setattr(manager, name, self._recorded(name, getattr(manager, name)))
        atexit.register(self.close)

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the recording, and restore the methods of the manager. A normal end of the process does so as well."""
        atexit.unregister(self.close)
        if os.getpid() != self._process:
            return  # a child process; the recording belongs to its parent
        for name, before in self._wrapped.items():
            if before is None:
                delattr(self.manager, name)
            else:
                setattr(self.manager, name, before)
        self._wrapped = {}
        if self.is_on:
            self._end(RecordedCall(self.num_lines + 1, ENDED))

    # Defined by subclasses ------------------------------------------------------------------------------------------

    def header(self) -> Header:
        raise NotImplementedError

    def free(self) -> tuple[int, int]:
        raise NotImplementedError

    def reserved(self) -> list[int]:
        """The ids of the blocks that the manager keeps for itself."""
        raise NotImplementedError

    def pool(self) -> tuple[list[int] | None, list[int] | None]:
        """Refcounts and free ids of the whole pool."""
        raise NotImplementedError

    def show_pool(self, line: RecordedCall) -> None:
        """Add the state of the whole pool to a line."""
        line.refs, line.free_ids = self.pool()

    # Calls ----------------------------------------------------------------------------------------------------------

    def _recorded(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        describe = getattr(self, f"on_{name}")

        def recorded(*arguments: Any, **options: Any) -> Any:
            if not self.is_on or self._is_inside or os.getpid() != self._process:
                return inner(*arguments, **options)
            self._is_inside = True
            try:
                answer = inner(*arguments, **options)
            except Exception as error:
                self._write_line(name, describe, None, f"{type(error).__name__}: {error}"[:300], arguments, options)
                raise
            finally:
                self._is_inside = False
            self._write_line(name, describe, answer, "", arguments, options)
            return answer

        return recorded

    def _write_line(
        self,
        name: str,
        describe: Callable[..., RecordedCall | None],
        answer: Any,
        raised: str,
        arguments: Any,
        options: Any,
    ) -> None:
        self._is_inside = True
        try:
            line = describe(answer, *arguments, **options)
            if line is None:
                return
            line.n, line.call, line.raised = self.num_lines + 1, name, raised
            line.free, line.reserved = self.free(), self.reserved()
            if self.shows_pool:
                self.show_pool(line)
            self._put(line)
            self.num_lines += 1
        except Exception as error:
            self._stop(f"{name}: {type(error).__name__}: {error}")
        finally:
            self._is_inside = False

    def _stop(self, why: str) -> None:
        self.is_on = False
        if self._is_torn:
            self._close_file()
        else:
            self._end(RecordedCall(self.num_lines + 1, STOPPED, answer=why))
        self._warn(why)

    def _warn(self, why: str) -> None:
        text = f"kvproof stopped recording to {self.path}: {why}"
        try:
            warnings.warn(text, RuntimeWarning, stacklevel=5)
        except RuntimeWarning:  # where warnings are errors; this one must not reach the server
            print(text, file=sys.stderr)

    def _end(self, line: RecordedCall) -> None:
        self.is_on = False
        try:
            self._put(line)
        except OSError as error:
            self._warn(f"its last line: {error.strerror or error}")
        self._close_file()

    def _has_file(self) -> bool:
        """Whether the descriptor is that of the recording: a daemon closes all, and opens others with their numbers."""
        try:
            return os.path.samestat(os.fstat(self._file), self._identity)
        except OSError:
            return False

    def _close_file(self) -> None:
        if self._has_file():
            os.close(self._file)

    def _put(self, line: RecordedCall | Header) -> None:
        data = self._encoder.encode(line) + b"\n"
        self._is_torn = not self._has_file()
        if self._is_torn:
            raise OSError("the program has closed its file")
        if self._segments is not None and (file := self._segments.file_for(self._file, len(data))) != self._file:
            self._file, self._identity = file, os.fstat(file)
        self._is_torn = True
        if os.write(self._file, data) != len(data):
            raise OSError("the line was not written whole")
        self._is_torn = False

    # Sequences ------------------------------------------------------------------------------------------------------

    def new_tokens(
        self, recorded: RecordedSequence, num_tokens: int, tokens_from: Callable[[int], Iterable[int]]
    ) -> None:
        """Add the tokens that no earlier line contains. tokens_from: returns the tokens from a position on."""
        known = self.known.setdefault(recorded.seq, Written())
        if num_tokens < known.num_tokens:  # tokens were removed, so all are written again
            known.num_tokens, known.last = 0, b""
        recorded.start = known.num_tokens
        if num_tokens > known.num_tokens:
            recorded.tokens = self._numbers(known, tokens_from(known.num_tokens))
            known.num_tokens = recorded.start + len(recorded.tokens)

    def _numbers(self, known: Written, tokens: Iterable[int]) -> list[int]:
        if not self.has_digests:
            return list(tokens)
        numbers = []
        for token in tokens:
            known.last = self._digest(known.last + b"%d" % token)
            numbers.append(int.from_bytes(known.last, "big") & POSITIVE)
        return numbers

    def new_tables(self, recorded: RecordedSequence, tables: list[list[int]]) -> None:
        """Add the changes of the tables since the last line about the sequence."""
        known = self.known.setdefault(recorded.seq, Written())
        if len(known.tables) != len(tables):
            known.tables = [[] for _ in tables]
        recorded.tables = [Table(_num_kept(old, new), new) for old, new in zip(known.tables, tables, strict=True)]
        for table in recorded.tables:
            table.rest = table.rest[table.kept :]
        known.tables = tables

    def digest(self, value: Any) -> str:
        """A keyed digest of a value. Digests are equal if and only if the values are; None has an empty digest."""
        return "" if value is None else self._digest(repr(value).encode()).hex()

    def _digest(self, data: bytes) -> bytes:
        return hashlib.blake2b(data, digest_size=DIGEST_BYTES, key=self.key[:64]).digest()


def _num_kept(old: list[int], new: list[int]) -> int:
    """The number of leading entries that both tables have in common."""
    if new[: len(old)] == old:
        return len(old)
    return next(
        (i for i, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), min(len(old), len(new))
    )
