"""The process beside a server that writes one recording: it takes lines from a ring, completes them and writes them.

`handover` starts it. It ends after the last line, or when the server is over, however it ended; then it has written
every line that was handed over. What fails here does not stop the server: the recording ends with a line that says why,
and the server hears of it with its next call.
"""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from kvproof.check.hosts.interrupt import HANG_UP, INTERRUPT, TERMINATE, leave_to_parent
from kvproof.check.recording import ring
from kvproof.check.recording.format import (
    ENDED,
    LMCACHE_L1,
    SGLANG,
    STOPPED,
    TRANSFORMERS,
    VLLM_OFFLOAD,
    VLLM_V1,
    Header,
    KeyedDigests,
    RecordedCall,
)
from kvproof.check.recording.handover import WHOLE, HandoverSettings, RawLines
from kvproof.check.recording.lmcache.raw_lines import L1Lines
from kvproof.check.recording.recording_file import RecordingFile
from kvproof.check.recording.segments import SegmentWriter
from kvproof.check.recording.sequence_lines import SequenceLines
from kvproof.check.recording.sglang.raw_lines import RadixLines
from kvproof.check.recording.vllm_offload.raw_lines import OffloadLines

PAUSE_SECONDS = 0.01  # between two looks at a ring that is empty
NUM_LINES_IN_TURN = 1_000
LINES: dict[str, type[RawLines]] = {
    VLLM_V1: SequenceLines,
    TRANSFORMERS: SequenceLines,
    SGLANG: RadixLines,
    LMCACHE_L1: L1Lines,
    VLLM_OFFLOAD: OffloadLines,
}


class Scribe:
    """Writes the recording of one ring."""

    def __init__(self, reader: ring.RingReader) -> None:
        first = reader.take()
        assert first is not None, "the settings are put before this process is started"
        settings = msgspec.msgpack.decode(first[0], type=HandoverSettings)
        sizes = settings.segments
        segments = None if sizes is None else SegmentWriter(Path(settings.path), *sizes, locks=True)
        kind = LINES.get(settings.header.interface, RawLines)
        self._ring, self._parent, self._header = reader, settings.parent, settings.header
        self._file = RecordingFile(settings.file, segments)
        self._lines = kind(settings.header, KeyedDigests(settings.key))
        self._decoder = msgspec.msgpack.Decoder(kind.kind)
        self._decoder_of_whole = msgspec.json.Decoder(RecordedCall)
        self._encoder = msgspec.json.Encoder()
        self._num_lines = 0
        self._is_over = False

    def run(self) -> None:
        """Write until the last line, or until the server is over."""
        try:
            self._write(self._header)
            while not self._is_over:
                is_server_over = os.getppid() != self._parent  # asked before the look, so that it sees the last line
                if self._write_what_is_there():
                    continue
                if why := self._ring.said(ring.FROM_SERVER):
                    self._write(RecordedCall(self._num_lines + 1, STOPPED, answer=why))
                    return
                if is_server_over:
                    return
                time.sleep(PAUSE_SECONDS)
        except OSError as error:
            self._stop(error.strerror or str(error))
        except Exception as error:
            self._stop(f"{type(error).__name__}: {error}")
        finally:
            self._file.close()

    def _write_what_is_there(self) -> bool:
        """Write the lines of the ring, at most so many that the server is looked at again; whether there was one."""
        for number in range(NUM_LINES_IN_TURN):
            message = self._ring.take()
            if message is None:
                return number > 0
            first, data = message
            if first.startswith(WHOLE):
                line = self._decoder_of_whole.decode(first)
            else:
                line = self._lines.completed(self._decoder.decode(first), data)
            self._is_over = line.call in (ENDED, STOPPED)
            self._write(line)
            self._num_lines = line.n
            if self._is_over:
                break
        return True

    def _write(self, line: RecordedCall | Header) -> None:
        self._file.put(self._encoder.encode(line) + b"\n")

    def _stop(self, why: str) -> None:
        """End the recording with the reason, and tell the server."""
        self._ring.say(ring.FROM_WRITER, why)
        if not self._file.is_torn:
            with suppress(OSError):
                self._write(RecordedCall(self._num_lines + 1, STOPPED, answer=why))


def main(arguments: list[str]) -> None:
    """Write the recording of the ring whose descriptor is the first argument."""
    leave_to_parent(INTERRUPT, TERMINATE, HANG_UP)  # these are for the server, which ends or not
    Scribe(ring.RingReader(int(arguments[0]))).run()


if __name__ == "__main__":
    main(sys.argv[1:])
