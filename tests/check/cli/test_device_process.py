"""An executor that ends the process of `kvproof device` is refuted, and the result of the run is kept."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kvproof.check.cli import own_process
from kvproof.check.cli.app import app
from kvproof.reports.document import write
from kvproof.reports.result import Check, Run
from kvproof.reports.result import Result as Document
from kvproof.spec.verdict import Verdict

ID = "data plane/swap-mapping/mover.py:move"
# The process until the executor is called; the planted faults before that take seconds.
PROCESS = """
import os, signal, sys, time
from kvproof.check.cli import own_process
assert sys.argv[2:] == ["device", "--device", "simulated", "--executor", "mover.py:move", "--seed", "1", "--out", "out"]
own_process.open_record(record := int(sys.argv[1]))
own_process.report_work("mover.py:move: nhd, float16, empty")
"""
Ending = Callable[[str], Result]


@pytest.fixture
def ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ending:
    """Runs the command with an executor that does this in its process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(own_process, "PROCESS", "ending")
    Path("out").mkdir()
    others = [Check("data plane/cow-copied/mover.py:move", "data plane", "cow-copied", Verdict.REFUTED, text="before")]
    mine = Check(ID, "data plane", "swap-mapping", Verdict.UNKNOWN, text="not run")
    write(Path("out/result.json"), Document(Run("0.1", "device", "a device", 1), [mine, *others]))

    def run(code: str) -> Result:
        Path("ending.py").write_text(PROCESS + code)
        words = "device --device simulated --executor mover.py:move --seed 1 --out out"
        return CliRunner().invoke(app, words.split())

    return run


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("os._exit(0)", "mover.py:move: nhd, float16, empty: the executor crashed: its process ended with exit code 0"),
        (
            "os.write(record, b'x' * 99); os.kill(os.getpid(), 9)",
            "its process was ended by signal 9 (SIGKILL)",
        ),
    ],
)
def test_an_executor_that_ends_the_process_is_refuted(ending: Ending, code: str, words: str) -> None:
    done = ending(code)
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert f"kvproof: refuted: {ID}: " in done.stderr
    assert f"{words}; what was decided before is in out/result.json" in done.stderr
    mine, other = json.loads(Path("out/result.json").read_text())["checks"]
    assert (mine["verdict"], other["verdict"], other["text"]) == ("refuted", "refuted", "before")
    assert mine["text"].endswith(words)


def test_the_exit_code_that_the_process_records_is_that_of_the_command(ending: Ending) -> None:
    done = ending("own_process.report_end(4); os._exit(7)")
    assert (done.exit_code, done.stderr) == (4, "")


def test_a_signal_is_passed_on_to_the_process(ending: Ending) -> None:
    assert ending(f"os.kill({os.getpid()}, signal.SIGTERM); time.sleep(60)").exit_code == 130
