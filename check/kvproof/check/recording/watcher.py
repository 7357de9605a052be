"""The judge of a program that runs: a process beside it, which reads the recordings of its managers as they grow.

`watching` starts it, and gives it a folder in which the program writes one recording for each manager. It judges them
in turn, a few hundred lines at a time. Its memory is that of `kvproof validate` for each manager, and the last lines.
It yields the processor to the program (`nice`), so it lags behind when the program needs all processors, and catches
up later.

It talks to the process that started it by pipes. The end of its standard input says that the program is over: it judges
what is left and ends. Each line of its standard output is an `Event`; a report for people goes to standard error. It
never writes to the program, so no fault of it stops the program.
"""

import contextlib
import os
import select
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from kvproof.check.hosts.interrupt import INTERRUPT, leave_to_parent
from kvproof.check.recording.metrics import serve_metrics
from kvproof.check.recording.watched_recording import WatchedRecording
from kvproof.check.recording.watching import DONE, FINDING, READY, REFUSED, WatchEvent, WatchSettings
from kvproof.spec.extras import MissingExtra

PAUSE_SECONDS = 0.02  # between two looks at recordings of which every line is judged
NICENESS = 10


class Watcher:
    """Judges every recording of a folder until the program is over."""

    def __init__(self, settings: WatchSettings) -> None:
        self.settings = settings
        self.recordings: dict[Path, WatchedRecording] = {}
        self.no_recordings: dict[Path, OSError] = {}  # what cannot be read, and why
        self.is_program_over = False
        self.num_findings = self.num_unjudged = 0

    def run(self) -> None:
        """Judge until the end of standard input, and then what is left."""
        has_said = False
        while True:
            was_over = self.is_program_over and not self._has_writer()  # before the look, so that it sees the last line
            self._open_new_ones()
            number = sum(self._advance(one) for one in self.recordings.values())
            if was_over and not number:
                break
            if was_over and not has_said:
                has_said = True
                self._say_what_is_left()
            self._look_at_input(0.0 if number else PAUSE_SECONDS)
        for one in self.recordings.values():
            was_judged = one.is_judged
            one.finish()
            if was_judged:
                self._note(one)
            one.lines.close()
        for path, error in list(self.no_recordings.items())[:1]:
            others = f" and {len(self.no_recordings) - 1:,} others" if len(self.no_recordings) > 1 else ""
            _say(f"{path.name}{others} cannot be read: {error.strerror or error}")
        recordings, num_unjudged = self.recordings.values(), self.num_unjudged + len(self.no_recordings)
        num_refused = sum(one.is_refused for one in recordings)
        numbers = (len(recordings) - num_refused, self.num_findings, num_unjudged, num_refused)
        _tell(WatchEvent(DONE, "", "", sum(one.num_lines for one in recordings), *numbers))

    def _open_new_ones(self) -> None:
        live = Path(self.settings.live)
        try:
            paths = sorted(set(live.glob("*.jsonl")) - self.recordings.keys() - self.no_recordings.keys())
        except OSError as error:
            paths, self.no_recordings[live] = [], error
        for path in paths:
            try:
                self.recordings[path] = WatchedRecording(path, self.settings)
            except OSError as error:  # it is no file, or this process has too many open
                self.no_recordings[path] = error

    def _advance(self, one: WatchedRecording) -> int:
        was_judged = one.is_judged
        number = one.advance()
        if was_judged and not one.is_judged:
            self._note(one)
        return number

    def _note(self, one: WatchedRecording) -> None:
        """Report what is decided about a recording that is judged no further."""
        if one.problem:
            self.num_unjudged += 1
            _say(one.problem)
        elif one.judging is not None and one.judging.done.finding is not None:
            self.num_findings += 1
            _say(one.report())
            sentence = f"{one.judging.done.finding.property}: {one.judging.done.finding.text}"
            _tell(WatchEvent(FINDING, sentence, "" if one.tail is None else str(one.tail)))
        elif one.judging is not None and one.judging.done.reason:
            self.num_unjudged += 1
            _say(one.report())

    def _has_writer(self) -> bool:
        return any(one.is_judged and one.lines.has_writer() for one in self.recordings.values())

    def _look_at_input(self, seconds: float) -> None:
        if self.is_program_over:
            time.sleep(seconds)
            return
        readable, _, _ = select.select([sys.stdin], [], [], seconds)
        self.is_program_over = bool(readable) and not os.read(sys.stdin.fileno(), 1)

    def _say_what_is_left(self) -> None:
        num_bytes = sum(one.lines.num_bytes_left() for one in self.recordings.values() if one.is_judged)
        if num_bytes > 1 << 20:
            _say(f"the program has ended; {num_bytes >> 20:,} MB of its recording are still to be judged")


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        print(f"kvproof: {text}", file=sys.stderr, flush=True)


def _tell(event: WatchEvent) -> None:
    with contextlib.suppress(OSError):
        os.write(1, msgspec.json.encode(event) + b"\n")


def main(arguments: list[str]) -> Any:
    """Run the judge process with the settings in the first argument."""
    leave_to_parent(INTERRUPT)  # an interrupt at the terminal is for the program, which ends or not
    settings = msgspec.json.decode(arguments[0], type=WatchSettings)
    os.nice(NICENESS)
    watcher = Watcher(settings)
    address = ""
    if settings.metrics is not None:
        try:
            address = serve_metrics(*settings.metrics, watcher.recordings)
        except (MissingExtra, OSError) as error:
            _tell(WatchEvent(REFUSED, str(error)))
            return
    _tell(WatchEvent(READY, address))
    try:
        watcher.run()
    finally:
        shutil.rmtree(settings.live, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
