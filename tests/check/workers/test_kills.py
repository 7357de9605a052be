"""Workers, their subjects and the head of a campaign are killed at drawn moments: nothing is lost or counted twice."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.check.forgetful import FORGETFUL

NUM_RUNS = 30
MAIN = "from kvproof.check.cli import main; main()"
SECONDS_MAX = 600.0
FAULTY = f"""{FORGETFUL}
class Fussy(BuiltIn):
    def preempt(self, group):
        raise RuntimeError("no preemption here")
"""
PLAN = """
[[search]]
subjects = ["faulty_kills.py:Forgetful", "faulty_kills.py:Fussy"]
seeds = [1, 2]
efforts = [20_000]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kills")
    (folder / "faulty_kills.py").write_text(FAULTY)
    (folder / "plan.toml").write_text(PLAN)
    return folder


@pytest.fixture(scope="module")
def expected(folder: Path) -> Any:
    """The table of a campaign in which nothing is killed."""
    return finished(started(folder, "expected", "2"), folder / "expected")


def started(folder: Path, out: str, workers: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", MAIN, "campaign", "plan.toml", "--out", out, "--workers", workers]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)


def finished(head: "subprocess.Popen[bytes]", out: Path) -> Any:
    assert head.wait(SECONDS_MAX) == 1  # refuted
    table = json.loads((out / "campaign.json").read_bytes())
    assert table["is_complete"]
    assert {path.name for path in (out / "crashes").glob("*.json")} == {
        Path(found["trace"]).name for found in table["findings"]
    }
    return table


def descendants(pid: int) -> list[int]:
    """The ids of the processes that a process has started, and theirs."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def command_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
    return ""


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def wait_for_end(pids: list[int]) -> list[int]:
    """The processes among these that still run after half a minute."""
    end = time.monotonic() + 30
    while (left := [pid for pid in pids if is_running(pid)]) and time.monotonic() < end:
        time.sleep(0.1)
    return left


def is_running(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(NUM_RUNS))
def test_a_campaign_with_killed_workers_and_heads_has_the_table_of_one_without(
    folder: Path, expected: Any, seed: int
) -> None:
    draw, out = random.Random(seed), f"out-{seed}"
    head = started(folder, out, "2")
    seen = [head.pid]
    for kill_head in (False, draw.random() < 0.7):
        time.sleep(draw.uniform(0.5, 8.0))
        if head.poll() is not None:
            break
        below = descendants(head.pid)
        seen += below
        if kill_head:
            kill(head.pid)
            head.wait()
            head = started(folder, out, draw.choice(["1", "2", "3"]))
            seen.append(head.pid)
        elif workers := [pid for pid in descendants(head.pid) if "spawn_main" in command_of(pid)]:
            kill(draw.choice([*workers, *(pid for worker in workers for pid in descendants(worker))]))
    assert finished(head, folder / out) == expected
    assert wait_for_end(seen) == []
