"""`kvproof watch` and `watch(manager)`: what is found while the program runs, and that the program goes on."""

import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.golden_files import Command
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.check.recording import RecordingRefused, watch
from kvproof.check.recording.metrics import serve_metrics
from kvproof.check.recording.recorder import Recorder
from kvproof.check.recording.segments import SegmentReader, SegmentWriter
from kvproof.check.recording.validate import validate
from kvproof.check.recording.vllm_v0.recorder import V0Recorder
from kvproof.check.recording.watched_recording import WatchedRecording
from kvproof.check.recording.watching import DUMP, WatchSettings
from kvproof.impl import AllocStatus, BlockManager, Sequence, SequenceGroup
from kvproof.spec.extras import MissingExtra
from kvproof.spec.verdict import Exit

Serve = Callable[..., Path]
SEGMENT_BYTES = 4_000
SERVE = """
import sys, time, urllib.request
from kvproof.impl import BlockManager, Sequence, SequenceGroup

def serve(manager, first):
    for number in range(first, first + 20):
        group = SequenceGroup(str(number), [Sequence(number, [1, 2, 3, number], 4)])
        manager.allocate(group)
        manager.free(group.seqs[0])

managers = [BlockManager(block_size=4, num_gpu_blocks=8, num_cpu_blocks=0) for _ in range(2)]
for manager in managers:
    serve(manager, 1)
metrics = ""
while metrics.count("} 40.0") < 2:
    metrics = urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/metrics").read().decode()
open("metrics.txt", "w").write(metrics)
inner = managers[1].get_num_free_gpu_blocks
managers[1].get_num_free_gpu_blocks = lambda: inner() - 1
serve(managers[1], 21)
while True:
    time.sleep(0.01)
"""
KILL_THE_JUDGE = """
import os, signal, time
from pathlib import Path

for child in Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_text().split():
    if b"recording.watcher" in Path(f"/proc/{child}/cmdline").read_bytes():
        os.kill(int(child), signal.SIGKILL)
        raise SystemExit(7)
"""


def group_of(seq_id: int) -> SequenceGroup:
    return SequenceGroup(str(seq_id), [Sequence(seq_id, [1, 2, 3], 4)])


def recorder_with(path: Path, *sizes: int) -> tuple[BlockManager, Recorder]:
    manager = BlockManager(block_size=4, num_gpu_blocks=8, num_cpu_blocks=0)
    return manager, V0Recorder(manager, path, None, False, SegmentWriter(path, *sizes))


def test_a_recording_is_judged_while_it_grows_and_takes_two_segments_of_disk(serve: Serve, tmp_path: Path) -> None:
    whole = serve(1, 40)
    folder = tmp_path / "live"
    folder.mkdir()
    path, lines = folder / "recording.jsonl", whole.read_bytes().splitlines(keepends=True)
    file, writer = os.open(path, os.O_WRONLY | os.O_CREAT), SegmentWriter(path, SEGMENT_BYTES)
    watched = WatchedRecording(path, WatchSettings(str(folder), str(tmp_path / "out"), DUMP))
    for number, line in enumerate(lines):
        file = writer.file_for(file, len(line))
        os.write(file, line[:10])
        watched.advance()
        assert watched.num_lines == max(0, number - 1)
        os.write(file, line[10:])
        watched.advance()
        assert (watched.lines.num_bytes_left(), watched.lag_seconds()) == (0, 0.0)
        assert len(list(folder.iterdir())) <= 2
    assert writer.number > 5
    watched.finish()
    assert watched.judging is not None
    assert watched.copy is not None
    watched.lines.close()
    assert (list(folder.iterdir()), watched.copy.read_bytes()) == ([], whole.read_bytes())
    assert watched.judging.done.kinds == validate(whole).kinds
    assert (watched.judging.done.finding, watched.judging.done.reason) == (None, "")


def test_the_last_lines_before_a_finding_are_kept_as_a_recording(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = serve(1, 30).read_text().splitlines(keepends=True)
    place = next(i for i, line in enumerate(lines) if '"call":"free"' in line)
    lines[place] = lines[place].replace('"free":[', '"free":[1')
    path = tmp_path / "recording.jsonl"
    for number_kept, reason in ((5, "the recording starts when the manager is already in use"), (10_000, "")):
        path.write_text("".join(lines))
        monkeypatch.setattr("kvproof.check.recording.watched_recording.NUM_LINES_KEPT", number_kept)
        watched = WatchedRecording(path, WatchSettings("", str(tmp_path / "out")))
        watched.advance()
        assert not watched.is_judged
        report = watched.report()
        tail = tmp_path / "out" / ("tail.jsonl" if number_kept == 5 else "tail-2.jsonl")
        assert report.startswith("conservation is refuted for kvproof.impl.block_manager.")
        assert report.endswith(f"The last {min(number_kept, place):,} lines: {tail}")
        assert tail.read_text().splitlines()[1:] == [line.rstrip("\n") for line in lines[1 : place + 1][-number_kept:]]
        again = validate(tail)
        assert again.reason.startswith(reason)
        assert (again.finding is None) == bool(reason)


def test_a_manager_that_is_recorded_faster_than_it_is_judged_goes_on(tmp_path: Path) -> None:
    manager, recorder = recorder_with(tmp_path / "r.jsonl", 1_000, 3)
    seq_ids = iter(range(60))
    with recorder, pytest.warns(RuntimeWarning, match="the judge is 0 MB behind: it is slower than the calls"):
        assert all(manager.can_allocate(group_of(seq_id)) is AllocStatus.OK for seq_id in seq_ids)
    assert not recorder.is_on
    assert len(list(tmp_path.iterdir())) == 3
    reading, last = SegmentReader(tmp_path / "r.jsonl"), b""
    while line := reading.readline(1_000):
        last = line
    assert b"recording stopped" in last


def test_a_manager_goes_on_when_its_recording_fails_even_where_warnings_are_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "live"
    folder.mkdir()
    manager, recorder = recorder_with(folder / "r.jsonl", 1_000)
    with recorder:
        (folder / "r.jsonl").unlink()
        folder.rmdir()
        for seq_id in range(20):
            assert manager.can_allocate(group_of(seq_id)) is AllocStatus.OK
    assert capsys.readouterr().err.count("kvproof stopped recording") == 1


def test_a_wrong_manager_is_found_while_it_runs_and_the_command_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    (tmp_path / "serve.py").write_text(SERVE)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = CliRunner().invoke(app, ["watch", "--metrics", port, "--", sys.executable, "serve.py", port])
        assert (refused.exit_code, "Address already in use" in refused.stderr) == (Exit.USAGE, True)
    before = signal.getsignal(signal.SIGTERM)
    options = ["--on-finding", "stop", "--metrics", port, "--out", "out"]
    done = CliRunner().invoke(app, ["watch", *options, "--", sys.executable, "serve.py", port])
    assert done.exit_code == Exit.REFUTED
    assert done.stderr.splitlines()[-3:] == [
        "kvproof: SIGTERM is sent to the command (--on-finding stop)",
        "kvproof: the command was stopped at the finding and was ended by signal 15 (SIGTERM); 80 lines of 2 managers "
        "were judged: 1 finding; the last lines before it: out/tail-2.jsonl",
        "kvproof: exit code 1: there is a finding",
    ]
    assert signal.getsignal(signal.SIGTERM) is before
    text = capfd.readouterr().err
    assert "kvproof: conservation is refuted for kvproof.impl.block_manager.SelfAttnBlockSpaceManager." in text
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["tail-2.jsonl"]
    figures = (tmp_path / "metrics.txt").read_text()
    assert 'kvproof_watch_lines_total{recording="recording"} 40.0' in figures
    assert 'kvproof_watch_judging{recording="recording-2"} 1.0' in figures
    assert 'kvproof_watch_blocks{pool="gpu",recording="recording",state="free"} 8.0' in figures
    assert 'kvproof_watch_lag_bytes{recording="recording"} 0.0' in figures


def test_a_command_goes_on_without_its_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(KILL_THE_JUDGE)
    assert command("watch", "--", sys.executable, "program.py").exit_code == 7
    assert list((tmp_path / ".kvproof" / "watch").iterdir()) == []


FULL_DISK = """
import resource, warnings
from kvproof.impl import BlockManager, Sequence, SequenceGroup

warnings.simplefilter("ignore")
resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, 3_000))
manager = BlockManager(block_size=4, num_gpu_blocks=8, num_cpu_blocks=0)
for number in range(100):
    group = SequenceGroup(str(number), [Sequence(number, [1, 2, 3, number], 4)])
    manager.allocate(group)
    manager.free(group.seqs[0])
"""


def test_calls_that_a_full_disk_keeps_from_the_judge_are_not_called_consistent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    (tmp_path / "program.py").write_text(FULL_DISK)
    done = CliRunner().invoke(app, ["watch", "--", sys.executable, "program.py"])
    assert done.exit_code == Exit.INCONCLUSIVE
    assert done.stderr.splitlines()[-1] == "kvproof: exit code 4: a manager was not judged to its end"
    assert "were judged, but not to the end" in done.stderr
    assert "was not written whole: calls after it are not recorded" in capfd.readouterr().err


@pytest.mark.long  # two processes; the command's tests cover the parts
def test_a_manager_is_watched_from_within_its_program(tmp_path: Path) -> None:
    manager = BlockManager(block_size=4, num_gpu_blocks=8, num_cpu_blocks=0)
    with watch(manager, tmp_path) as watching:
        for seq_id in range(20):
            assert manager.can_allocate(group_of(seq_id)) is AllocStatus.OK
    assert watching.findings == []
    assert (watching.judge.last.num_lines, watching.judge.last.num_unjudged) == (20, 0)
    inner, heard = manager.get_num_free_gpu_blocks, list[int]()
    before = signal.signal(signal.SIGTERM, lambda *of_signal: heard.append(1))
    try:
        with watch(manager, tmp_path, on_finding="stop") as watching:
            manager.get_num_free_gpu_blocks = lambda: inner() - 1  # type: ignore[method-assign]
            manager.can_allocate(group_of(1))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [1]
    assert watching.findings == ["failed-call-changes-nothing: can_admit only asks, but free went (8, 0) -> (7, 0)"]


def test_what_cannot_be_watched_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = BlockManager(block_size=4, num_gpu_blocks=8, num_cpu_blocks=0)
    with pytest.raises(RecordingRefused, match="on_finding must be one of log, dump, stop"):
        watch(manager, tmp_path, on_finding="end")
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtra, match=r"pip install 'kvproof\[watch\]'"):
        serve_metrics("127.0.0.1", 0, {})
