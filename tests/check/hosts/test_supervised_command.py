"""A command of a supervisor ends with everything that it started, no matter which process ends it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvproof.check.hosts.supervised_command import SupervisedCommand

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt its descendants")

NONE = (subprocess.DEVNULL, subprocess.DEVNULL, subprocess.DEVNULL)
# Two daemons, of which the first has no environment: each writes its id.
DAEMONS = """
setsid env -i sh -c 'echo $$ >>pids; exec sleep 60' &
setsid sh -c 'echo $$ >>pids; exec sleep 60' &
while [ "$(wc -l <pids)" != 2 ]; do sleep 0.01; done
"""
SECONDS_MAX = 20.0
RUN = """
import sys, time
from kvproof.check.hosts.supervised_command import SupervisedCommand
running = SupervisedCommand(["sh", "-c", sys.argv[1]], streams=(0, 1, 2))
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pids").touch()
    return tmp_path


def started(then: str) -> SupervisedCommand:
    """The daemons, and the command that started them, which goes on with this."""
    return SupervisedCommand(["sh", "-c", f"{DAEMONS}\necho >ready\n{then}"], streams=NONE)


def wait_until_ready(folder: Path) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not (folder / "ready").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (folder / "ready").exists()


def left(folder: Path) -> list[int]:
    """Which daemons are there, at the latest when they should have gone."""
    pids = [int(line) for line in (folder / "pids").read_text().split()]
    assert len(pids) == 2
    deadline = time.monotonic() + SECONDS_MAX
    while (there := [pid for pid in pids if Path(f"/proc/{pid}").exists()]) and time.monotonic() < deadline:
        time.sleep(0.01)
    return there


@pytest.mark.parametrize(("then", "code"), [("exit 7", 7), ("kill -SEGV $$", -signal.SIGSEGV)])
def test_daemons_end_when_the_command_ends_which_says_how(folder: Path, then: str, code: int) -> None:
    running = started(then)
    assert running.wait(SECONDS_MAX) == code
    assert left(folder) == []
    running.end()


def test_daemons_end_when_the_command_is_ended(folder: Path) -> None:
    running = started("sleep 60")
    wait_until_ready(folder)
    running.end()
    assert left(folder) == []


@pytest.mark.parametrize("by", ["KILL", "STOP"])
def test_daemons_with_an_environment_end_without_the_supervisor(folder: Path, by: str) -> None:
    script = f"setsid sh -c 'echo $$ >>pids; exec sleep 60' &\necho $$ >>pids\nkill -{by} $PPID\nsleep 60"
    running = SupervisedCommand(["sh", "-c", f"{script}"], streams=NONE)
    deadline = time.monotonic() + SECONDS_MAX
    while len((folder / "pids").read_text().split()) != 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    running.end()
    assert left(folder) == []


def test_daemons_end_when_kvproof_is_killed(folder: Path) -> None:
    run = subprocess.Popen([sys.executable, "-c", RUN, f"{DAEMONS}\necho >ready\nsleep 60"])
    wait_until_ready(folder)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    assert left(folder) == []


def test_a_command_that_cannot_be_started_says_why() -> None:
    with pytest.raises(FileNotFoundError, match="No such file"):
        SupervisedCommand(["no-such-program"], streams=NONE)
