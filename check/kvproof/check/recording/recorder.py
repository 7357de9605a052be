"""The recorder: one line for each outermost call of a manager, written or handed over before the caller continues.

The recorder replaces bound methods of one manager object and does not change its class. It passes the arguments to the
manager, and the answer or exception back to the caller, unchanged. An error in the recorder itself (a full disk, an
unexpected object of an engine) never reaches the server: a last line gives the reason, the recording stops, and later
calls go directly to the manager.
"""

import atexit
import os
import secrets
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any

from kvproof.check.recording.digests import POSITIVE, Digests
from kvproof.check.recording.format import DIGESTS, ENDED, IDS, STOPPED, Header, RecordedCall, RecordedSequence, Table
from kvproof.check.recording.handover import Directly, Handover, Line, Sink
from kvproof.check.recording.raw_lines import RawCall
from kvproof.check.recording.ring import Buffer
from kvproof.check.recording.segments import SegmentWriter
from kvproof.check.subjects.loading.partial_import import installed_version


class Written:
    """What has been written about a live sequence: the number of tokens, its tables, the digest of its last token.

    rows: copies of the manager's own tables, whose entries may be objects; a line has their ids.
    """

    __slots__ = ("last", "num_tokens", "rows")

    def __init__(self) -> None:
        self.num_tokens = 0
        self.rows: list[list[Any]] = []
        self.last = b""


class Recorder:
    """Writes the lines of one manager. Subclasses define the calls and their lines.

    The method `on_NAME(answer, *arguments)` returns the line of a call NAME, without its number and the state of the
    pool. It returns None for a call that needs no line. segments: splits the recording for a judge that runs beside it.
    hands_over: lines are written by a process beside this one, which also completes the raw ones.
    """

    calls: tuple[str, ...] = ()
    hands_over = True

    def __init__(
        self,
        manager: Any,
        path: Path,
        digest_key: bytes | None,
        shows_pool: bool,
        segments: SegmentWriter | None = None,
    ) -> None:
        self.manager, self.path, self.shows_pool = manager, path, shows_pool
        key, self.has_digests = digest_key or secrets.token_bytes(32), digest_key is not None
        self._digests = Digests(key)
        self.digest = self._digests.text
        self.known: dict[int, Written] = {}
        self.num_lines = 0
        self.is_on = True
        self._is_inside = False
        header = self.header()
        header.tokens = DIGESTS if self.has_digests else IDS
        header.version = installed_version("kvproof")
        if shows_pool:
            header.refs, header.free_ids = self.pool()
        header.started = datetime.now(timezone.utc).replace(microsecond=0, tzinfo=None).isoformat() + "Z"
        self._process = os.getpid()
        self._sink: Sink = (
            Handover(path, header, segments, key) if self.hands_over else Directly(path, header, segments)
        )
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

    def show_pool(self, described: Any) -> None:
        """Add the state of the whole pool to a line."""
        line = described.line if isinstance(described, RawCall) else described
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
        describe: Callable[..., Line | None],
        answer: Any,
        raised: str,
        arguments: Any,
        options: Any,
    ) -> None:
        self._is_inside = True
        try:
            described = describe(answer, *arguments, **options)
            if described is None:
                return
            line = described.line if isinstance(described, RawCall) else described
            line.n, line.call, line.raised = self.num_lines + 1, name, raised
            line.free, line.reserved = self.free(), self.reserved()
            if self.shows_pool:
                self.show_pool(described)
            self._put(described)
            self.num_lines += 1
        except Exception as error:
            self._stop(f"{name}: {type(error).__name__}: {error}")
        finally:
            self._is_inside = False

    def _stop(self, why: str) -> None:
        self.is_on = False
        if self._sink.has_ended:
            self._sink.release()
        else:
            self._end(RecordedCall(self.num_lines + 1, STOPPED, answer=why), waits=False)
        self._warn(why)

    def _warn(self, why: str) -> None:
        text = f"kvproof stopped recording to {self.path}: {why}"
        try:
            warnings.warn(text, RuntimeWarning, stacklevel=5)
        except RuntimeWarning:  # where warnings are errors; this one must not reach the server
            print(text, file=sys.stderr)

    def _end(self, line: RecordedCall, waits: bool = True) -> None:
        self.is_on = False
        try:
            self._sink.end(line, waits)
        except OSError as error:
            self._warn(f"its last line: {error.strerror or error}")

    def _put(self, line: Line, buffers: Sequence[Buffer] = ()) -> None:
        self._sink.put(line, buffers)

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
        numbers, digest = [], self._digests.of
        for token in tokens:
            known.last = digest(known.last + b"%d" % token)
            numbers.append(int.from_bytes(known.last, "big") & POSITIVE)
        return numbers

    def new_tables(
        self, recorded: RecordedSequence, rows: Sequence[list[Any]], ids_of: Callable[[list[Any]], list[int]]
    ) -> None:
        """Add the changes of the tables since the last line about the sequence. ids_of: of the entries of a row."""
        known = self.known.setdefault(recorded.seq, Written())
        if len(known.rows) != len(rows):
            known.rows = [[] for _ in rows]
        recorded.tables = []
        for old, new in zip(known.rows, rows, strict=True):
            num_kept = _num_kept(old, new)
            rest = new[num_kept:]
            recorded.tables.append(Table(num_kept, ids_of(rest) if rest else []))
            old[num_kept:] = rest


def _num_kept(old: list[Any], new: list[Any]) -> int:
    """The number of leading entries that both tables have in common."""
    if new[: len(old)] == old:
        return len(old)
    return next(
        (i for i, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), min(len(old), len(new))
    )
