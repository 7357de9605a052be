"""The file of a recording, or its segments, as its writer has them."""

import os
from enum import Enum
from pathlib import Path

from kvproof.check.recording.format import ENDED
from kvproof.check.recording.segments import SegmentWriter, opened_to_read

FIRST_BYTES = b'{"kvproof_recording":'  # of every recording

LAST_BYTES = 1 << 10
LAST_CALL = b'"call":"%s"' % ENDED.encode()  # in the last line of a whole recording


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


class State(Enum):
    """What a recording is when nobody writes to it any more."""

    EMPTY, UNFINISHED, WHOLE = "not recorded", "not recorded to its end", "whole"


def state_of(path: Path) -> State:
    """Whether the recording has its last line, or any."""
    try:
        descriptor = opened_to_read(path)
    except OSError:
        return State.UNFINISHED
    with os.fdopen(descriptor, "rb") as file:
        num_bytes = file.seek(0, os.SEEK_END)
        file.seek(max(0, num_bytes - LAST_BYTES))
        last = file.read(LAST_BYTES)
    if not num_bytes:
        return State.EMPTY
    is_whole = last.endswith(b"\n") and LAST_CALL in last[:-1].rpartition(b"\n")[2]
    return State.WHOLE if is_whole else State.UNFINISHED


def opened(path: Path) -> int:
    """The descriptor of an empty recording. Raises RecordingRefused."""
    require_replaceable(path)
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    except OSError as error:
        raise RecordingRefused(f"{path} cannot be written: {error.strerror}") from error


class RecordingFile:
    """Lines are written whole, each with one call, or the file is torn and gets no further one.

    file: the descriptor. segments: splits the recording for a judge that runs beside it.
    """

    def __init__(self, file: int, segments: SegmentWriter | None) -> None:
        self.file, self._segments = file, segments
        self.identity = os.fstat(file)
        self.is_torn = False

    def put(self, data: bytes) -> None:
        """Write a line. Raises OSError."""
        self.is_torn = not self._is_there()
        if self.is_torn:
            raise OSError("the program has closed its file")
        if self._segments is not None and (file := self._segments.file_for(self.file, len(data))) != self.file:
            self.file, self.identity = file, os.fstat(file)
        self.is_torn = True
        if os.write(self.file, data) != len(data):
            raise OSError("the line was not written whole")
        self.is_torn = False

    def close(self) -> None:
        """Close the descriptor, if it still is that of the recording."""
        if self._is_there():
            os.close(self.file)

    def _is_there(self) -> bool:
        """Whether the descriptor is that of the recording: a daemon closes all, and opens others with their numbers."""
        try:
            return os.path.samestat(os.fstat(self.file), self.identity)
        except OSError:
            return False
