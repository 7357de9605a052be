"""Watch a manager while the program runs: start the judge beside it, and hear what it finds.

    from kvproof.check.recording import watch
    watching = watch(scheduler.kv_cache_manager, on_finding="stop")

The program only writes its recording; `watcher` judges it in a process of its own. If that process is killed, the user
is informed once and the program goes on.
"""

import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from kvproof.check.hosts.interrupt import end_this_process
from kvproof.check.hosts.program import PIPED, SAME, how_it_ended, module, started
from kvproof.check.recording.recorder import Recorder
from kvproof.check.recording.recording_file import RecordingRefused
from kvproof.check.recording.segments import SegmentWriter

WATCHED_NAME = "recording.jsonl"
LOG, DUMP, STOP = ON_FINDING = "log", "dump", "stop"
READY, FINDING, DONE, REFUSED = "ready", "finding", "done", "refused"


class WatchSettings(msgspec.Struct):
    """What the judge process is started with. live: the folder of the recordings. metrics: host and port."""

    live: str
    out: str
    on_finding: str = LOG
    metrics: tuple[str, int] | None = None


class WatchEvent(msgspec.Struct, omit_defaults=True):
    """A line of the judge's standard output.

    kind: READY with the address of the metrics, if any; FINDING with the sentence and the file of the last lines, if it
    could be written; REFUSED with the reason; DONE with the numbers of lines, recordings, findings and recordings that
    could not be judged to their end, and of managers that were not recorded.
    """

    kind: str
    text: str = ""
    path: str = ""
    num_lines: int = 0
    num_recordings: int = 0
    num_findings: int = 0
    num_unjudged: int = 0
    num_refused: int = 0


class JudgeProcess:
    """The judge beside a program, seen from the process that started it.

    live: the folder in which the program writes. findings: one sentence for each. last_lines: the files of the lines
    before them. last: the last event, which is DONE if the judge came to its end. address: of the metrics. on_stop:
    called at the first finding if that shall stop the program. Raises RecordingRefused if the judge cannot be started.
    """

    def __init__(
        self, out: Path, on_finding: str, metrics: tuple[str, int] | None, on_stop: Callable[[], None]
    ) -> None:
        if on_finding not in ON_FINDING:
            raise RecordingRefused(f"on_finding must be one of {', '.join(ON_FINDING)}; it is {on_finding!r}")
        try:
            out.mkdir(parents=True, exist_ok=True)
            self.live = Path(tempfile.mkdtemp(prefix="live-", dir=out.resolve()))
        except OSError as error:
            raise RecordingRefused(f"{out} cannot be written: {error.strerror}") from error
        self.findings: list[str] = []
        self.last_lines: list[str] = []
        self.last = WatchEvent("")
        self._on_stop = on_stop if on_finding == STOP else None
        settings = WatchSettings(str(self.live), str(out), on_finding, metrics)
        command = module("kvproof.check.recording.watcher", msgspec.json.encode(settings).decode())
        self._process = started(command, (PIPED, PIPED, SAME))
        first = self._next_event()
        if first is None or first.kind != READY:
            self._clear_up()
            raise RecordingRefused(first.text if first is not None and first.kind == REFUSED else self._how_it_ended())
        self.address = first.text
        self._hearing = threading.Thread(target=self._hear, name="kvproof watch", daemon=True)
        self._hearing.start()

    def end(self, timeout_s: float | None = None) -> bool:
        """The program makes no further call: let the judge read to the end. Whether it has, within this time."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._hearing.join(timeout_s)
        return self.last.kind == DONE

    def _next_event(self) -> WatchEvent | None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return msgspec.json.decode(line, type=WatchEvent) if line.endswith(b"\n") else None

    def _hear(self) -> None:
        while (event := self._next_event()) is not None:
            self.last = event
            if event.kind == FINDING:
                self.findings.append(event.text)
                self.last_lines += filter(None, [event.path])
                if self._on_stop is not None and len(self.findings) == 1:
                    self._on_stop()
        self._clear_up()
        if self.last.kind != DONE:
            print(f"kvproof: {self._how_it_ended()}; the program goes on unwatched", file=sys.stderr, flush=True)

    def _clear_up(self) -> None:
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        shutil.rmtree(self.live, ignore_errors=True)

    def _how_it_ended(self) -> str:
        return f"the judge process {how_it_ended(self._process.returncode)}"


class RecordingWatch:
    """A manager that is watched. recorder: writes its lines. judge: reads them."""

    def __init__(self, recorder: Recorder, judge: JudgeProcess) -> None:
        self.recorder, self.judge = recorder, judge

    @property
    def findings(self) -> list[str]:
        """The findings so far, one sentence each."""
        return self.judge.findings

    def close(self, timeout_s: float | None = None) -> list[str]:
        """End the recording, wait until the judge has read it (at most `timeout_s`), and return the findings."""
        self.recorder.close()
        self.judge.end(timeout_s)
        return self.findings

    def __enter__(self) -> "RecordingWatch":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def watch_with(
    kind: Callable[..., Recorder],
    manager: Any,
    out: Path,
    on_finding: str = LOG,
    metrics: tuple[str, int] | None = None,
    digest_key: bytes | None = None,
    shows_pool: bool = False,
) -> RecordingWatch:
    """Record a manager with this kind of recorder, for a judge beside this process."""
    judge = JudgeProcess(out, on_finding, metrics, end_this_process)
    path = judge.live / WATCHED_NAME
    try:
        recorder = kind(manager, path, digest_key, shows_pool, SegmentWriter(path))
    except BaseException:
        judge.end()
        raise
    return RecordingWatch(recorder, judge)
