"""A campaign whose workers and head are killed, whose results come late and twice, and whose disk becomes full.

Nothing is lost or counted twice: its table is that of a campaign without such faults.
"""

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

NUM_RUNS, NUM_LATE, NUM_FULL = 30, 10, 10
MAIN = "from kvproof.check.cli import main; main()"
SECONDS_MAX = 600.0
FAULTY = f"""{FORGETFUL}
class Fussy(BuiltIn):
    def preempt(self, group):
        raise RuntimeError("no preemption here")
"""
# `python faults.py late SEED ...`: every worker answers late, and repeats earlier answers.
# `python faults.py full SEED ...`: the database has no space for more than a few results, or no file can be written.
FAULTS = """
import errno, os, random, sys, time
from contextlib import suppress

from kvproof.check.cli import main
from kvproof.check.hunting.store import ResultStore
from kvproof.check.hosts import pool
from kvproof.check.hosts.workers import done


def serve(connection):
    draw, earlier = random.Random(os.getpid()), []
    with suppress(EOFError, OSError):
        while True:
            number, do, unit = connection.recv()
            answer = number, done(do, unit), True
            time.sleep(draw.uniform(0.0, 0.5))
            for late in draw.sample(earlier, min(len(earlier), draw.randrange(3))):
                connection.send(late)
            earlier.append(answer)
            connection.send(answer)
            if draw.random() < 0.5:
                connection.send(answer)


def full(draw):
    if draw.random() < 0.5:
        before = ResultStore.__init__

        def small(self, file):
            before(self, file)
            (pages,) = self._database.execute("PRAGMA page_count").fetchone()
            self._database.execute(f"PRAGMA max_page_count = {pages + draw.randrange(1, 12)}")

        ResultStore.__init__ = small
    else:
        def refused(draft, target):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

        os.replace = refused


if __name__ == "__main__":
    kind, seed = sys.argv.pop(1), int(sys.argv.pop(1))
    if kind == "late":
        pool._serve = serve
    else:
        full(random.Random(seed))
    main()
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
    (folder / "faults.py").write_text(FAULTS)
    (folder / "plan.toml").write_text(PLAN)
    return folder


@pytest.fixture(scope="module")
def expected(folder: Path) -> Any:
    """The table of a campaign in which nothing is killed."""
    return finished(started(folder, "expected", "2"), folder / "expected")


def started(folder: Path, out: str, workers: str, *faults: str) -> subprocess.Popen[bytes]:
    program = ["faults.py", *faults] if faults else ["-c", MAIN]
    command = [sys.executable, *program, "campaign", "plan.toml", "--out", out, "--workers", workers]
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


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(NUM_LATE))
def test_a_campaign_whose_results_come_late_and_twice_has_the_table_of_one_without(
    folder: Path, expected: Any, seed: int
) -> None:
    head = started(folder, f"late-{seed}", str(1 + seed % 3), "late", str(seed))
    assert finished(head, folder / f"late-{seed}") == expected


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(NUM_FULL))
def test_a_campaign_whose_disk_is_full_goes_on_where_it_was_when_there_is_space(
    folder: Path, expected: Any, seed: int
) -> None:
    out = f"full-{seed}"
    assert started(folder, out, "2", "full", str(seed)).wait(SECONDS_MAX) in (1, 3)
    assert finished(started(folder, out, "2"), folder / out) == expected
