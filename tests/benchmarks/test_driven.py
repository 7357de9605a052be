"""The processor time of a command is that of all processes that it has started."""

import os
import subprocess
import sys

import pytest

WORK = "import time; began = time.process_time()\nwhile time.process_time() - began < 0.5: pass"
LEAVE = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {WORK!r}])"
MEASURE = (
    f"import sys; from benchmarks.driven import seconds_of; print(seconds_of([sys.executable, '-c', {LEAVE!r}])[1])"
)


@pytest.mark.skipif(sys.platform != "linux", reason="only there a process can adopt others")
def test_a_process_whose_parent_ends_before_it_is_counted() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    measured = subprocess.run([sys.executable, "-c", MEASURE], env=environment, check=True, capture_output=True)
    assert float(measured.stdout) > 0.5
