"""A whole scheduler from the command line: verified, refuted, reported, replayed."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.reports.document import write
from kvproof.spec.trace import Trace

BROKEN = """
import os

from kvproof.check.subjects.builtin.scheduler import BuiltInScheduler
from kvproof.impl.scheduler import Scheduler


class Forgets(Scheduler):
    def _preempt(self, group, outputs):
        super()._preempt(group, outputs)
        self._leave_queue(self._requests[group.request_id][0])


def make():
    return BuiltInScheduler(Scheduler if "FIXED" in os.environ else Forgets)
"""


def kvproof(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.output


def test_a_counterexample_of_a_scheduler_is_reported_saved_and_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.py").write_text(BROKEN, encoding="utf-8")
    options = ("--property", "progress", "--stop-at-first", "--effort", "20000", "--seed", "1")
    code, output = kvproof("hunt", "--subject", "broken.py:make", *options)
    assert code == 1
    assert "progress is refuted for broken.py:make" in output
    assert "8  complete(samples 0)" in output
    (saved,) = Path(".kvproof/crashes").glob("progress-*.json")
    again = ("replay", str(saved), "--subject", "broken.py:make")
    code, output = kvproof(*again)
    assert (code, output.split()[0]) == (1, "FAILED")
    monkeypatch.setenv("FIXED", "1")
    code, output = kvproof(*again)
    assert (code, output.split()[0]) == (0, "FIXED")


def test_a_trace_of_the_loop_with_a_foreign_operation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    operations = [["add", 1, [1], [0], 1], ["run", 0]]
    write(path, Trace("kvproof-scheduler", "progress", "", {"block_size": 1, "max_num_seqs": 2}, operations))
    code, output = kvproof("replay", str(path))
    assert code == 2
    assert "operation 2 is 'run'; there are add, abort, stop, schedule, launch, complete" in " ".join(output.split())


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_built_in_scheduler_is_verified(tmp_path: Path) -> None:
    code, output = kvproof("verify", "--subject", "kvproof-scheduler", "--out", str(tmp_path))
    assert code == 0, output
    assert "unmet" not in output


def test_a_walk_of_a_scheduler_decides_whether_it_repeats_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _ = kvproof("hunt", "--subject", "kvproof-scheduler", "--effort", "500", "--seed", "1")
    assert code in (0, 4)
    report = Path(".kvproof", "report.txt").read_text(encoding="utf-8")
    row = next(line for line in report.splitlines() if line.strip().startswith("nondeterministic"))
    assert "not refuted" in row
