"""A subject without a process of its own can end the process of the run; then the command is no success."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kvproof.check.cli import own_process
from kvproof.check.cli.app import app, main

WORDS = ["hunt", "--subject", "mine.py:Adapter", "--no-isolation"]
PROCESS = f"""
import os, signal, sys, time
from kvproof.check.cli import own_process
assert sys.argv[2:] == {WORDS}
own_process.open_record(record := int(sys.argv[1]))
"""
Ending = Callable[[str], Result]


@pytest.fixture
def ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ending:
    """Runs the command of a user with a subject that does this in the process of the run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(own_process, "PROCESS", "ending")

    def run(code: str) -> Result:
        Path("ending.py").write_text(PROCESS + code)
        with own_process.of_the_user(WORDS):
            return CliRunner().invoke(app, WORDS)

    return run


@pytest.mark.parametrize("code", ["os._exit(0)", "os.write(record, b'x' * 99); os._exit(0)"])
def test_a_process_that_ends_before_the_run_decides_nothing(ending: Ending, code: str) -> None:
    done = ending(code)
    assert done.exit_code == 4
    assert "in which the subject was called, ended with exit code 0. Leave --no-isolation out" in done.stderr


@pytest.mark.parametrize("code", [0, 1, 4])
def test_the_exit_code_of_the_run_is_that_of_the_command(ending: Ending, code: int) -> None:
    done = ending(f"own_process.report_end({code}); os._exit(7)")
    assert (done.exit_code, done.stderr) == (code, "")


def test_a_signal_is_passed_on_to_the_run(ending: Ending) -> None:
    assert ending(f"os.kill({os.getpid()}, signal.SIGTERM); time.sleep(60)").exit_code == 130


def test_a_command_that_a_test_has_run_is_over_for_the_next_test(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["kvproof", "--version"])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().out.startswith("kvproof ")
    assert own_process.run_apart_without_isolation(isolation=False) is False
