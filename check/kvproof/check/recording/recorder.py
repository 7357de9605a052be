"""The recorder: one line for each outermost call of a manager, written or handed over before the caller continues.

The recorder replaces bound methods of one manager object and does not change its class. It passes the arguments to the
manager, and the answer or exception back to the caller, unchanged. An error in the recorder itself (a full disk, an
unexpected object of an engine) never reaches the server: a last line gives the reason, the recording stops, and later
calls go directly to the manager.

`SequenceRecorder` has what the recorders of vLLM V1 and of transformers share: the requests that lines are about. Of a
request that is known from an earlier line, only what is new is handed over. A request has a number from its first line
to the one after which it has no blocks; if it returns, it has another number, and everything is handed over again.
"""

import atexit
import os
import secrets
import sys
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from kvproof.check.recording.format import DIGESTS, ENDED, IDS, STOPPED, Header, KeyedDigests, RecordedCall
from kvproof.check.recording.handover import Directly, Handover, Line, Sink
from kvproof.check.recording.recording_file import RecordingRefused
from kvproof.check.recording.segments import SegmentWriter
from kvproof.check.recording.sequence_lines import RawSequence
from kvproof.check.subjects.loading.partial_import import installed_version

TEXT_MAX = 300  # characters of the text of an exception
_RECORDERS: "weakref.WeakSet[Recorder]" = weakref.WeakSet()  # of this process


class Covered:
    """Methods of objects, in front of which there are others."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def put(self, of: Any, name: str, method: Callable[..., Any]) -> None:
        """Put a method in front of another one of an object. Raises what the object raises."""
        before = vars(of).get(name)
        setattr(of, name, method)
        self._before.append((of, name, before))

    def restore(self) -> None:
        """Leave all objects as they were."""
        while self._before:
            of, name, before = self._before.pop()
            if before is None:
                delattr(of, name)
            else:
                setattr(of, name, before)


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
        self._digests = KeyedDigests(key)
        self.digest = self._digests.text
        self.num_lines = 0
        self.is_on = False
        self._is_inside = False
        try:
            header = self.header()
        except (AttributeError, TypeError, ArithmeticError, LookupError) as error:
            raise RecordingRefused(f"{type(manager).__name__} is not as kvproof knows it: {text_of(error)}") from error
        header.tokens = DIGESTS if self.has_digests else IDS
        header.version = installed_version("kvproof")
        if shows_pool:
            header.refs, header.free_ids = self.pool()
        header.started = datetime.now(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"
        self._process = os.getpid()
        _RECORDERS.add(self)
        self.covered = Covered()
        try:
            for name in self.calls:
                if hasattr(manager, name):
                    self.covered.put(manager, name, self._recorded(name, getattr(manager, name)))
            self.follow()
        except Exception as error:
            self.covered.restore()
            raise RecordingRefused(f"{type(manager).__name__} takes no recorder: {text_of(error)}") from error
        try:
            self._sink: Sink = (
                Handover(path, header, segments, key) if self.hands_over else Directly(path, header, segments)
            )
        except BaseException:
            self.covered.restore()
            raise
        self._put = self.line_sink()
        self.is_on = True
        self._at_exit = _calling_at_exit(self.close)

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the recording, and restore the methods of the manager. A normal end of the process does so as well."""
        self._at_exit()
        if os.getpid() != self._process:
            return  # a child process; the recording belongs to its parent
        self.covered.restore()
        if self.is_on:
            self._end(RecordedCall(self.num_lines + 1, ENDED))

    # Defined by subclasses ------------------------------------------------------------------------------------------

    def header(self) -> Header:
        raise NotImplementedError

    def free(self) -> tuple[int, int]:
        raise NotImplementedError

    def pool(self) -> tuple[list[int] | None, list[int] | None]:
        """Refcounts and free ids of the whole pool."""
        raise NotImplementedError

    def show_pool(self, described: Any) -> None:
        """Add the state of the whole pool to a line."""
        described.refs, described.free_ids = self.pool()

    def follow(self) -> None:
        """Cover the calls of other objects, such as the pool of the manager, in `covered`."""

    def line_sink(self) -> Callable[[Any], object]:
        """What takes a line: the sink itself, so that a call has one function less."""
        return self._sink.put

    # Calls ----------------------------------------------------------------------------------------------------------

    def _recorded(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        describe = getattr(self, f"on_{name}")

        def recorded(*arguments: Any, **options: Any) -> Any:
            if not self.is_on or self._is_inside:
                return inner(*arguments, **options)
            self._is_inside = True
            try:
                answer = inner(*arguments, **options)
            except Exception as error:
                self._write_line(name, describe, None, text_of(error), arguments, options)
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
            described.n = number = self.num_lines + 1
            described.call = name
            described.free = self.free()
            if raised:
                described.raised = raised
            if self.shows_pool:
                self.show_pool(described)
            self._put(described)
            self.num_lines = number
        except Exception as error:
            self._stop(f"{name}: {text_of(error)}")
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
            with suppress(Exception):
                print(text, file=sys.stderr)

    def _end(self, line: RecordedCall, waits: bool = True) -> None:
        self.is_on = False
        try:
            self._sink.end(line, waits)
        except Exception as error:
            self._warn(f"its last line: {text_of(error)}")


def _calling_at_exit(call: Callable[[], None]) -> Callable[[], None]:
    """Call this at the end of the process. Returns what makes that undone.

    Before Python 3.13 a process that multiprocessing forks calls nothing of `atexit`.
    """
    atexit.register(call)
    util = sys.modules.get("multiprocessing.util")
    finalize = None if util is None else util.Finalize(None, call, exitpriority=0)

    def forget() -> None:
        atexit.unregister(call)
        if finalize is not None:
            finalize.cancel()

    return forget


def _leave_to_the_parent() -> None:
    """In a process that was forked from a server: its calls are not those of the manager that is recorded."""
    for recorder in _RECORDERS:
        recorder.is_on = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)


def num_kept(old: list[Any], new: list[Any]) -> int:
    """The number of leading entries that both tables have in common."""
    if new[: len(old)] == old:
        return len(old)
    return next(
        (i for i, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), min(len(old), len(new))
    )


def text_of(error: BaseException) -> str:
    """The class and the message of an exception, as a line can have it, even if the exception does not give it."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        text = type(error).__name__
    return text[:TEXT_MAX].encode(errors="replace").decode()


class KnownSequence:
    """What has been handed over about a request: its number, how many tokens, its tables.

    rows: copies of the manager's own tables, whose entries may be objects; a line has their ids.
    """

    __slots__ = ("num_tokens", "number", "rows")

    def __init__(self, number: int) -> None:
        self.number = number
        self.num_tokens = 0
        self.rows: list[list[Any]] = []


class SequenceRecorder(Recorder):
    """Follows requests by their names."""

    def __init__(self, *arguments: Any) -> None:
        self._known: dict[str, KnownSequence] = {}
        self._num_requests = 0
        super().__init__(*arguments)

    def _known_as(self, name: str) -> KnownSequence:
        known = self._known.get(name)
        if known is None:
            self._num_requests += 1
            known = self._known[name] = KnownSequence(self._num_requests)
        return known

    def _forget(self, name: str, seq: RawSequence) -> None:
        """Forget a request; this is the last line about its number."""
        seq.is_over = True
        self._known.pop(name, None)


def add_tokens(
    seq: RawSequence, known: KnownSequence, num_tokens: int, tokens_from: Callable[[int], list[int]]
) -> None:
    """Add the tokens that no earlier line contains. tokens_from: returns the tokens from a position on."""
    start = known.num_tokens
    if num_tokens < start:  # tokens were removed, so all are written again
        start = 0
    seq.start = start
    if num_tokens > start:
        seq.tokens = tokens_from(start)
        known.num_tokens = start + len(seq.tokens)


def add_tables(
    seq: RawSequence, known: KnownSequence, rows: list[list[Any]], ids_of: Callable[[list[Any]], list[int]] | None
) -> None:
    """Add the changes of the tables since the last line about the request. ids_of: of entries that are objects."""
    old_rows = known.rows
    if len(old_rows) != len(rows):
        old_rows = known.rows = [[] for _ in rows]
    tables: list[tuple[int, list[int]]] = []
    for old, new in zip(old_rows, rows, strict=True):
        if new == old:
            tables.append((len(old), []))
            continue
        kept = num_kept(old, new)
        rest = new[kept:]
        tables.append((kept, ids_of(rest) if ids_of else rest))
        old[kept:] = rest
    seq.tables = tables
