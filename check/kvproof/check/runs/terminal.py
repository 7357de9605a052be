"""Terminal output of a running command: colours and a progress line on a terminal, plain lines in CI or a pipe.

A log of CI has a line every few seconds, so that a reader sees that the run goes on. Any other file or pipe has only
the lines with which a stage begins and ends.

If standard output can no longer be written, because its reader has closed the pipe or the disk is full, the command
goes on without it: the run and its files matter more. Unless the reader left on purpose, that is reported once, and
`kvproof.check.runs.errors` decides the exit code.
"""

import math
import os
import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from kvproof.check.runs.errors import discard, report_lost_output
from kvproof.reports.terminal import WIDTH_OF_PLAIN_TEXT
from kvproof.reports.terminal import say as say

PLAIN_INTERVAL_SECONDS = 5.0


class Output(Console):
    """A console that becomes silent when it can no longer be written."""

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        try:
            super().__exit__(kind, value, trace)
        except OSError as error:
            self.on_broken_pipe()
            report_lost_output(error)

    def on_broken_pipe(self) -> None:
        """Print nothing from now on."""
        self.quiet = True
        discard(self.file)


def output() -> Output:
    """The console of a command: plain and unwrapped unless standard output is a terminal."""
    file = sys.stdout
    if file.isatty() and not is_ci():
        return Output(file=file, highlight=False, soft_wrap=False)
    return Output(file=file, width=WIDTH_OF_PLAIN_TEXT, force_terminal=False, no_color=True, highlight=False)


def is_ci() -> bool:
    """Whether the command runs in a job of a CI system, all of which set the variable CI."""
    return bool(os.environ.get("CI"))


class PlainProgress:
    """Prints a line when a stage begins and ends, and in a log of CI at most one every few seconds between."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.stage, self.planned = "", ""
        self.began = self.last_line = time.monotonic()

    def begin(self, stage: str, seconds: float, total: int) -> None:
        self.stage = stage
        self.began = self.last_line = time.monotonic()
        self.planned = f" of {total:,}" if total else ""
        limit = f", up to {seconds:.0f} s" if math.isfinite(seconds) else ""
        say(self.console, f"{stage}: begins{f', {total:,} operations' if total else ''}{limit}")

    def advance(self, count: int) -> None:
        now = time.monotonic()
        if is_ci() and now - self.last_line >= PLAIN_INTERVAL_SECONDS:
            self.last_line = now
            say(self.console, f"{self.stage}: {count:,}{self.planned} after {now - self.began:.0f} s")

    def end(self) -> None:
        say(self.console, f"{self.stage}: ended after {time.monotonic() - self.began:.1f} s")

    def say(self, message: str) -> None:
        for line in message.splitlines():
            say(self.console, line)


class MovingProgress:
    """Shows one progress line for the current stage."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bars: Progress | None = None
        self.began, self.seconds, self.total = 0.0, 0.0, 0

    def begin(self, stage: str, seconds: float, total: int) -> None:
        self.began, self.seconds, self.total = time.monotonic(), seconds, total
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[done]}"),
            TimeElapsedColumn(),
            TextColumn(f"of {seconds:.0f} s" if math.isfinite(seconds) else ""),
        )
        limit = max(seconds, 0.001) if math.isfinite(seconds) else None
        self.bars = Progress(*columns, console=self.console, transient=True, refresh_per_second=5)
        self.bars.add_task(stage, total=total or limit, done="")
        self.bars.start()

    def advance(self, count: int) -> None:
        if self.bars:
            elapsed = min(time.monotonic() - self.began, self.seconds)
            done = f"{count:,} of {self.total:,}" if self.total else f"{count:,}"
            self.bars.update(self.bars.task_ids[0], completed=count if self.total else elapsed, done=done)

    def end(self) -> None:
        if self.bars:
            task = self.bars.tasks[0]
            self.bars.stop()
            self.bars = None
            say(self.console, f"{task.description}: ended after {task.elapsed or 0.0:.1f} s")

    def say(self, message: str) -> None:
        for line in message.splitlines():
            say(self.console, line, "yellow")


def progress_on(console: Console) -> PlainProgress | MovingProgress:
    """The progress display that suits the console."""
    return MovingProgress(console) if console.is_terminal else PlainProgress(console)
