"""One recording that is judged while it grows, and what is reported about it."""

import time
from pathlib import Path

import msgspec

from kvproof.check.recording.format import Header
from kvproof.check.recording.reader import RecordingError, RecordingReader
from kvproof.check.recording.segments import SegmentReader, claimed
from kvproof.check.recording.validate import LineJudging
from kvproof.check.recording.watching import DUMP, WatchSettings

NUM_LINES_IN_TURN = 500
NUM_LINES_KEPT = 10_000  # before a finding, for the file


class WatchedRecording:
    """One recording that grows.

    caught_up_at: when its last line was judged at the latest, in monotonic seconds. tail: the file of the last lines
    before a finding, if it could be written. is_over: the program has ended. Raises OSError for what is no file.
    """

    def __init__(self, path: Path, settings: WatchSettings) -> None:
        self.name, self.out = path.stem, Path(settings.out)
        self.copy = claimed(self.out / f"{self.name}.jsonl") if settings.on_finding == DUMP else None
        self.lines = SegmentReader(path, None if self.copy is None else self.copy.open("wb", buffering=0))
        self.judging: LineJudging | None = None
        self.problem = ""  # why it is not a recording
        self.caught_up_at = time.monotonic()
        self.tail: Path | None = None
        self.is_over = False

    @property
    def is_judged(self) -> bool:
        """Whether further lines are judged."""
        return not self.problem and (self.judging is None or not self.judging.is_over)

    @property
    def is_refused(self) -> bool:
        """Whether there is nothing in it: a recorder refused the manager, or could not begin."""
        return self.judging is None and not self.problem

    @property
    def num_lines(self) -> int:
        return 0 if self.judging is None else self.judging.done.num_calls

    def lag_seconds(self) -> float:
        """An upper bound of the age of the oldest line that is not judged; 0 if every line was at the last look."""
        return time.monotonic() - self.caught_up_at if self.lines.num_bytes_left() else 0.0

    def advance(self) -> int:
        """Judge some of the lines that are there; how many. Returns 0 at once if the judging is over."""
        try:
            if not self.is_judged:
                self.lines.discard()
                return 0
            if self.judging is None and self.lines.has_line():
                self.judging = LineJudging(RecordingReader(Path(self.name), self.lines), NUM_LINES_KEPT)
            number = 0 if self.judging is None else self.judging.advance(NUM_LINES_IN_TURN)
        except RecordingError as error:
            self.problem = f"{error}; the program goes on unwatched"
            return 0
        except OSError as error:  # about a segment that another writer has put there
            self.problem = self.problem or f"{self.name} cannot be read: {error.strerror or error}"
            return 0
        if number < NUM_LINES_IN_TURN:
            self.caught_up_at = time.monotonic()
        return number

    def finish(self) -> None:
        """The program has ended, so no line follows. A line that is there in part shows that its recorder stopped."""
        if not self.is_judged:
            return
        self.is_over = True
        if self.judging is not None:
            self.judging.finish()
        if self.lines.is_torn() and not (self.judging is not None and self.judging.done.finding):
            where = f"line {self.num_lines + 2:,}" if self.judging else "the header"
            self.problem = f"{self.name}: {where} was not written whole: calls after it are not recorded"

    def report(self) -> str:
        """The message about the finding, or about the line from which on nothing can be judged. Writes the tail."""
        assert self.judging is not None
        done, reading = self.judging.done, self.judging.reading
        self.judging.finish()
        if done.finding is None:
            goes_on = "" if self.is_over else "; the program goes on unwatched"
            return f"{self.name}: not judged from line {done.line:,} on: {done.reason}{goes_on}"
        head = f"{done.finding.property} is refuted for {done.header.manager}."
        try:
            self.tail = self.write_tail(reading.header)
            files = [f"The last {len(self.judging.kept):,} lines: {self.tail}"]
        except OSError as error:
            files = [f"The last lines cannot be written: {error.strerror}"]
        if self.lines.keep_error:
            files.append(f"The copy of the recording ended early: {self.lines.keep_error}")
        elif self.copy is not None:
            self.lines.stop_keeping()
            files.append(f"The whole recording: {self.copy}; repeat the finding: kvproof validate {self.copy}")
        return "\n".join([head, done.refutation(), *files])

    def write_tail(self, header: Header) -> Path:
        """Write the last lines to a file with a header, as a recording that begins with the manager in use."""
        assert self.judging is not None
        kept = self.judging.kept
        is_whole = bool(kept) and kept[0][0] == 2  # the header is line 1
        header = msgspec.structs.replace(header, is_fresh=header.is_fresh and is_whole)
        path = claimed(self.out / f"{self.name.replace('recording', 'tail')}.jsonl")
        with path.open("wb") as file:
            file.write(msgspec.json.encode(header) + b"\n")
            file.writelines(raw for _, raw in kept)
        return path
