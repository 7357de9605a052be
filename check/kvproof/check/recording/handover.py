"""How a recorder's lines get to their file: at once, or by a process beside the server.

`Directly` converts and writes each line before the call goes on. `Handover` copies each line to memory that it shares
with a process of its own (`scribe`), which converts and writes it. That costs the call less, above all if it names
much, and the call does not wait for a disk. If the server is killed, that process writes what was handed over.

Such lines are short, with bytes in place of what takes time. A recorder copies what a call names, such as the tokens of
a prompt, page ids or hashes, and the process that writes the recording makes the fields of the line from them. A raw
line is an array without names, of which the last fields are left out if they have their defaults. What is large may be
beside it in buffers, which are copied once. That is done before the call goes on: then the server may change what it
passed.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Protocol

import msgspec

from kvproof.check.hosts.program import DISCARDED, ended, module, started
from kvproof.check.recording import ring
from kvproof.check.recording.format import Header, KeyedDigests, RecordedCall
from kvproof.check.recording.recording_file import RecordingFile, RecordingRefused, opened
from kvproof.check.recording.ring import Buffer
from kvproof.check.recording.segments import SegmentWriter, lock


class RawCall(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """A line that is not complete. Subclasses have what one interface names; the fields here are those of the line."""

    n: int = 0
    call: str = ""
    free: tuple[int, int] = (0, 0)
    answer: bool | int | str | list[tuple[int, int]] | None = None
    group: str = ""
    raised: str = ""
    refs: list[int] | None = None
    free_ids: list[int] | None = None


class RawLines:
    """Completes the lines of one recording. Subclasses do so for one interface, whose raw lines are of type `kind`."""

    kind: ClassVar[type[RawCall]] = RawCall

    def __init__(self, header: Header, digests: KeyedDigests) -> None:
        self.header, self.digests = header, digests

    def completed(self, raw: Any, data: bytes = b"") -> RecordedCall:
        """The line. data: the bytes of its buffers. Raises an exception for what no recorder hands over."""
        return RecordedCall(
            raw.n,
            raw.call,
            raw.free,
            raw.group,
            answer=raw.answer,
            raised=raw.raised,
            reserved=self.header.reserved,
            refs=raw.refs,
            free_ids=raw.free_ids,
        )


END_SECONDS_MAX = 60.0  # that `close` waits for the process
NUM_LINES_BETWEEN_LOOKS = 256  # at whether the process is there
WHOLE = b"{"  # with this begins a line that is handed over as it is in the file, and no raw one
Line = RecordedCall | RawCall


class HandoverSettings(msgspec.Struct):
    """The first message to the process: what it writes, and where. file: the descriptor that it has inherited.

    parent: the process that hands over. segments: the size and the number of segments, if the recording is judged while
    it grows.
    """

    header: Header
    path: str
    key: bytes
    file: int
    parent: int
    segments: tuple[int, int] | None


class Sink(Protocol):
    """Where the lines of a recorder go."""

    @property
    def has_ended(self) -> bool:
        """Whether it takes no further line."""

    def put(self, line: Line, buffers: Sequence[Buffer] = ()) -> None:
        """Take a line. buffers: the bytes of a raw one, which are copied. Raises OSError if it cannot."""

    def end(self, line: RecordedCall, waits: bool) -> None:
        """Take the last line, and release everything. waits: until it is written. Raises OSError."""

    def release(self) -> None:
        """Release everything without a further line."""


class Directly:
    """Writes each line to its file before the call goes on."""

    def __init__(self, path: Path, header: Header, segments: SegmentWriter | None) -> None:
        self.file = RecordingFile(opened(path), segments)
        self._encoder = msgspec.json.Encoder()
        self.file.put(self._encoder.encode(header) + b"\n")

    @property
    def has_ended(self) -> bool:
        """Whether a line was not written whole."""
        return self.file.is_torn

    def put(self, line: Line, buffers: Sequence[Buffer] = ()) -> None:
        """Write a line, which is not raw. Raises OSError."""
        self.file.put(self._encoder.encode(line) + b"\n")

    def end(self, line: RecordedCall, waits: bool) -> None:
        """Write the last line. Raises OSError."""
        try:
            self.put(line)
        finally:
            self.release()

    def release(self) -> None:
        """Close the file."""
        self.file.close()


class Handover:
    """Hands the lines to a process that it starts. Raises RecordingRefused if that is not possible."""

    def __init__(self, path: Path, header: Header, segments: SegmentWriter | None, key: bytes) -> None:
        self._lock = Lock()
        self._message = bytearray()  # that is put; it is kept, because to make one for each line takes longer
        file = opened(path)
        lock(file)
        try:
            self._start(path, header, file, segments, key)
        except OSError as error:
            raise RecordingRefused(f"the process that writes the recording does not start: {error}") from error
        finally:
            os.close(file)
        self._has_ended = False
        self._num_lines = 0

    @property
    def has_ended(self) -> bool:
        """Whether the process takes no further line."""
        return self._has_ended

    def _start(self, path: Path, header: Header, file: int, segments: SegmentWriter | None, key: bytes) -> None:
        sizes = None if segments is None else (segments.num_bytes_max, segments.num_segments_max)
        memory = ring.shared_file(ring.RING_BYTES)
        try:
            self._ring = ring.RingWriter(memory)
            self._put, self._encode = self._ring.put, msgspec.msgpack.Encoder().encode_into
            self._encode_whole = msgspec.json.Encoder().encode_into
            self._encode(HandoverSettings(header, str(path), key, file, os.getpid(), sizes), self._message)
            self._put(self._message)
            command = module("kvproof.check.recording.scribe", str(memory))
            self._process = started(command, (DISCARDED,) * 3, (memory, file))
        finally:
            os.close(memory)

    def put(self, line: Line, buffers: Sequence[Buffer] = ()) -> None:
        """Hand a line over. Raises OSError if the process has ended, or is too far behind."""
        message = self._message
        with self._lock:
            self._num_lines += 1
            if self._num_lines % NUM_LINES_BETWEEN_LOOKS == 0 and self._process.poll() is not None:
                self._fail(f"the process that writes the recording has ended (code {self._process.returncode})")
            try:
                (self._encode if isinstance(line, RawCall) else self._encode_whole)(line, message)
                if self._put(message, buffers):
                    self._fail(self._ring.said(ring.FROM_WRITER))
            except ring.RingFull:
                num_megabytes = self._ring.num_unread() >> 20
                self._fail(
                    f"the process that writes the recording is {num_megabytes:,} MB behind: the calls are faster"
                )

    def _fail(self, why: str) -> None:
        self._has_ended = True
        self._ring.say(ring.FROM_SERVER, why)
        raise OSError(why)

    def end(self, line: RecordedCall, waits: bool) -> None:
        """Hand over the last line; if it waits, until all lines are written, but not for ever. Raises OSError."""
        try:
            self.put(line)
            if waits:
                self._wait()
        finally:
            self.release()

    def _wait(self) -> None:
        code = ended(self._process, END_SECONDS_MAX)
        if code is None:
            raise OSError("its lines are still being written")
        if code or self._ring.has_failed():
            raise OSError(self._ring.said(ring.FROM_WRITER) or f"the process that writes it has ended (code {code})")

    def release(self) -> None:
        """Leave the process alone: it writes what was handed over, and ends."""
        self._ring.close()
        if self._process.poll() is None:
            self._process.returncode = 0  # so that nobody warns that it goes on
