"""Runs that are killed at a moment drawn at random leave a whole result or none, no process, and no file elsewhere."""

import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from tests.attacks.processes import MARK, left_after
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.check.recording.example_run import record_run
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.reports.document import read
from kvproof.reports.result import Result

SUBJECT = f"{Path(__file__).parents[2] / 'examples' / 'forty_lines.py'}:Adapter"
SERVED = """
import time
from kvproof.impl import BlockManager, Sequence, SequenceGroup
manager, end = BlockManager(block_size=4, num_gpu_blocks=8, num_cpu_blocks=0), time.monotonic() + 8
while time.monotonic() < end:
    group = SequenceGroup("1", [Sequence(1, [1, 2, 3], 4)])
    manager.allocate(group)
    manager.free(group.seqs[0])
    time.sleep(0.01)
"""
COMMANDS = {
    "hunt": ["hunt", "--subject", SUBJECT, "--effort", "20000", "--seed", "1", "--out", "out"],
    "verify": ["verify", "--subject", SUBJECT, "--effort", "5000", "--seed", "1", "--out", "out"],
    "explore": ["explore", "--subject", SUBJECT, "--effort", "5000", "--out", "out"],
    "prove": ["prove", "--json", "out/proofs.json"],
    "device": ["device", "--device", "cpu", "--seed", "1", "--budget", "20", "--out", "out"],
    "record": ["record", "--out", "out/r.jsonl", "--", sys.executable, "-c", "import time; time.sleep(15)"],
    "validate": ["validate", "out/recording.jsonl", "--out", "out"],
    "watch": ["watch", "--out", "out", "--", sys.executable, "-c", SERVED],
    "campaign": ["campaign", "out/plan.toml", "--workers", "2"],
    "history": ["verify", "--subject", SUBJECT, "--effort", "5000", "--history", "out/runs.db", "--out", "out"],
    "workers": ["explore", "--workers", "2", "--scope", "window-and-cache", "--out", "out"],
    "faults": ["faults", "--of", "impl", "--only", "kvproof/*", "--jobs", "2", "--out", "out/faults.jsonl"],
}
PLAN = f"""out = "campaign"
[[search]]
subjects = ["{SUBJECT}"]
seeds = [1, 2, 3]
efforts = ["quick"]
"""
NUM_KILLS = 10
NUM_RECORDED = 60_000  # operations
MOMENT_SECONDS_MAX = 12.0
GONE_SECONDS_MAX = {signal.SIGKILL: 10.0, signal.SIGTERM: 20.0, signal.SIGINT: 20.0}
OF_PROGRAMS = ("record", "watch")  # their program goes on to its end; a busy machine needs long for its 15 s
PROGRAM_SECONDS = 40.0
OURS = {"out", "cache", "tmp"}


def begun(folder: Path, arguments: list[str], mark: str) -> subprocess.Popen[bytes]:
    """Begin a command in a folder; its cache and temporary files are below it, and what it says is in `out/log`."""
    for name in OURS:
        (folder / name).mkdir(exist_ok=True)
    places = {"XDG_CACHE_HOME": str(folder / "cache"), "TMPDIR": str(folder / "tmp"), "HOME": str(folder)}
    with (folder / "out" / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-c", "from kvproof.check.cli import main; main()", *arguments],
            cwd=folder,
            env={**os.environ, **places, MARK: mark},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="the processes of a run are found in /proc")
def test_a_divided_search_that_is_killed_while_its_parts_write_leaves_nothing(tmp_path: Path) -> None:
    run, seconds = secrets.token_hex(8), GONE_SECONDS_MAX[signal.SIGKILL]
    process = begun(tmp_path, COMMANDS["workers"], run)
    while process.poll() is None and not list((tmp_path / "tmp").glob("kvproof-levels-*/*")):
        time.sleep(0.01)
    assert process.poll() is None
    process.kill()
    process.wait()
    assert left_after(run, seconds) == []
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="the processes of a run are found in /proc")
@pytest.mark.parametrize("number", range(NUM_KILLS))
@pytest.mark.parametrize("command", COMMANDS)
def test_a_run_that_is_killed_leaves_a_whole_result_and_nothing_else(command: str, number: int, tmp_path: Path) -> None:
    random = Random(f"{command} {number}")
    by, moment = random.choice(list(GONE_SECONDS_MAX)), random.uniform(0.0, MOMENT_SECONDS_MAX)
    run, gone_seconds = secrets.token_hex(8), GONE_SECONDS_MAX[by]
    if command in OF_PROGRAMS:
        gone_seconds += PROGRAM_SECONDS
    for name in OURS:
        (tmp_path / name).mkdir()
    if command == "validate":
        record_run(BuiltIn, 3, NUM_RECORDED, tmp_path / "out" / "recording.jsonl", {"num_gpu_blocks": 6})
    if command == "campaign":
        (tmp_path / "out" / "plan.toml").write_text(PLAN)
    process = begun(tmp_path, COMMANDS[command], run)
    time.sleep(moment)
    process.send_signal(by)
    code = process.wait(gone_seconds)
    log_text = (tmp_path / "out" / "log").read_text()
    assert left_after(run, gone_seconds) == [], (by.name, moment)
    assert "Traceback" not in log_text, log_text
    assert code in {-by, 0, 1, 4, 130, 143}, (code, by.name, moment, log_text)
    if (document := tmp_path / "out" / "result.json").exists():
        assert read(document, Result).run.command
    if (database := tmp_path / "out" / "runs.db").exists():
        shown = CliRunner().invoke(app, ["history", "--history", str(database)])
        assert shown.exit_code == 0, shown.output
    assert {path.name for path in tmp_path.iterdir()} == OURS
    assert list((tmp_path / "tmp").iterdir()) == []
