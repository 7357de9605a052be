"""Whatever a process starts while those with its mark are looked for ends, too."""

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.attacks import processes

from kvproof.check.hosts.descendants import MARK, end_marked

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")

STARTS = """
import os, sys, time
sys.stdin.readline()
if not os.fork():
    os.setsid()
    time.sleep(600)
print("started", flush=True)
"""


@pytest.mark.parametrize("then", ["is waited for", "is not waited for", "goes on"])
def test_a_daemon_that_is_started_during_the_search_is_ended(monkeypatch: pytest.MonkeyPatch, then: str) -> None:
    mark, look = secrets.token_hex(8), Path.glob
    program = f"{STARTS}time.sleep(600)" if then == "goes on" else STARTS
    environment = os.environ | {MARK: mark}
    command = [sys.executable, "-c", program]

    def start_after_the_look(folder: Path, pattern: str) -> Iterator[Path]:
        files = [*look(folder, pattern)]
        monkeypatch.setattr(Path, "glob", look)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        assert process.stdout.readline() == b"started\n"
        if then == "is waited for":
            process.wait()
        elif then == "is not waited for":
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        return iter(files)

    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, bufsize=0
    ) as process:
        monkeypatch.setattr(Path, "glob", start_after_the_look)
        end_marked(mark)
        monkeypatch.setattr(processes, "MARK", MARK)
        left = processes.left_after(mark, 5.0)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    assert left == []
