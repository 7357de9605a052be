"""A run of stages: what was found is stored at once, and nothing undecided ever looks like success."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from kvproof.check.hosts.interrupt import uninterrupted
from kvproof.check.protocol.finding import AdapterError, OutsideTable
from kvproof.check.runs.errors import error_boundary
from kvproof.check.runs.session import Session, Stage, StageBudget, StageOutput
from kvproof.check.runs.store import Store
from kvproof.check.subjects import SubjectNotReady, UnknownSubject
from kvproof.reports.document import read
from kvproof.reports.result import Check, Result, Run, WitnessCount
from kvproof.spec.verdict import Exit, Verdict


class RecordedProgress:
    """Progress that records what is reported to it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def begin(self, stage: str, seconds: float, total: int) -> None:
        self.lines.append(f"begin {stage}")

    def advance(self, count: int) -> None:
        self.lines.append(f"advance {count}")

    def end(self) -> None:
        self.lines.append("end")

    def say(self, message: str) -> None:
        self.lines.append(message)


def check(judge: str, verdict: Verdict = Verdict.UNKNOWN, text: str = "not run") -> Check:
    return Check(f"{judge}/read-back", judge, "read-back", verdict, text=text)


def stage(judge: str, *said: StageOutput | BaseException, share: float = 1.0) -> Stage:
    def run(budget: StageBudget) -> Iterator[StageOutput]:
        for one in said:
            budget.advance(1000)
            if isinstance(one, BaseException):
                raise one
            yield one

    return Stage(judge, share, [check(judge)], run)


def session(folder: Path, *stages: Stage, seconds: float = 10.0) -> Session:
    return Session(Result(Run("0.1.0", "verify", "s", 7)), Store(folder), list(stages), seconds, RecordedProgress())


def stored(folder: Path) -> Result:
    return read(folder / "result.json", Result)


def verdicts(result: Result) -> list[tuple[str, Verdict, str]]:
    return [(one.id, one.verdict, one.text) for one in result.checks]


def passed(judge: str) -> Check:
    return check(judge, Verdict.NOT_REFUTED, "")


def test_what_the_stages_say_takes_the_place_of_what_they_promised(tmp_path: Path) -> None:
    run = session(tmp_path, stage("a", passed("a"), WitnessCount("w", "a", 3)), stage("b", passed("b")))
    assert run.run() is Exit.OK
    result = stored(tmp_path)
    assert verdicts(result) == [("a/read-back", Verdict.NOT_REFUTED, ""), ("b/read-back", Verdict.NOT_REFUTED, "")]
    assert result.witnesses == [WitnessCount("w", "a", 3)]
    assert result.run.is_complete
    assert result.totals["not refuted"] == 2


def test_a_promise_that_was_not_kept_is_inconclusive(tmp_path: Path) -> None:
    assert session(tmp_path, stage("a"), stage("b", passed("b"))).run() is Exit.INCONCLUSIVE
    assert verdicts(stored(tmp_path))[0] == ("a/read-back", Verdict.UNKNOWN, "a did not decide it")


def test_each_check_is_on_disk_before_the_stage_goes_on(tmp_path: Path) -> None:
    seen: list[list[tuple[str, Verdict, str]]] = []

    def run(budget: StageBudget) -> Iterator[StageOutput]:
        seen.append(verdicts(stored(tmp_path)))
        yield passed("a")
        seen.append(verdicts(stored(tmp_path)))

    session(tmp_path, Stage("a", 1.0, [check("a")], run)).run()
    assert seen == [[("a/read-back", Verdict.UNKNOWN, "not run")], [("a/read-back", Verdict.NOT_REFUTED, "")]]


def test_a_refutation_exits_with_one_and_is_printed_at_once(tmp_path: Path) -> None:
    run = session(tmp_path, stage("a", check("a", Verdict.REFUTED, "block 1")), stage("b", passed("b")))
    assert run.run() is Exit.REFUTED
    assert run.progress.lines[:3] == ["begin a (1 of 2)", "advance 1000", "refuted: a/read-back: block 1"]  # type: ignore[attr-defined]


def test_an_interrupt_keeps_what_was_found_and_is_inconclusive(tmp_path: Path) -> None:
    run = session(tmp_path, stage("a", passed("a")), stage("b", KeyboardInterrupt()), stage("c", passed("c")))
    assert run.run() is Exit.INCONCLUSIVE
    result = stored(tmp_path)
    assert verdicts(result) == [
        ("a/read-back", Verdict.NOT_REFUTED, ""),
        ("b/read-back", Verdict.UNKNOWN, "interrupted after 1,000"),
        ("c/read-back", Verdict.UNKNOWN, "not run"),
    ]
    assert not result.run.is_complete
    assert result.messages == ["interrupted: the checks that were not decided are unknown"]


def test_an_interrupt_does_not_hide_a_refutation(tmp_path: Path) -> None:
    run = session(tmp_path, stage("a", check("a", Verdict.REFUTED)), stage("b", KeyboardInterrupt()))
    assert run.run() is Exit.REFUTED


@pytest.mark.parametrize("error", [ZeroDivisionError("by\nzero"), SystemExit(0), RecursionError()])
def test_an_internal_error_is_reported_with_its_stage_and_the_other_stages_continue(
    tmp_path: Path, error: BaseException
) -> None:
    assert session(tmp_path, stage("a", error), stage("b", passed("b"))).run() is Exit.INTERNAL
    result = stored(tmp_path)
    assert verdicts(result) == [
        ("a/read-back", Verdict.UNKNOWN, "a did not finish"),
        ("b/read-back", Verdict.NOT_REFUTED, ""),
    ]
    (message,) = result.messages
    assert message.startswith(f"a failed by a fault of kvproof, not of the subject: {type(error).__name__}")
    assert message.endswith(f"please report {tmp_path}/fault.log")
    assert "\n" not in message
    assert "Traceback" in (tmp_path / "fault.log").read_text()
    assert not result.run.is_complete


def test_an_adapter_that_breaks_the_protocol_is_the_users_to_mend(tmp_path: Path) -> None:
    assert session(tmp_path, stage("a", AdapterError("admit must return Admitted")), stage("b")).run() is Exit.USAGE
    assert stored(tmp_path).messages == ["the adapter of s breaks the protocol: admit must return Admitted"]


@pytest.mark.parametrize(("error", "code"), [(UnknownSubject, Exit.USAGE), (SubjectNotReady, Exit.INCONCLUSIVE)])
def test_a_subject_that_can_be_made_at_first_and_then_not_is_no_fault_of_kvproof(
    error: type[UnknownSubject], code: Exit, tmp_path: Path
) -> None:
    assert session(tmp_path, stage("a", error("pipe:x: two lines")), stage("b")).run() is code
    reason = "the subject could be made when the run began, and cannot any more: pipe:x: two lines"
    assert stored(tmp_path).messages == [reason]


def test_a_release_outside_the_table_is_no_fault_of_kvproof_and_none_of_the_users(tmp_path: Path) -> None:
    assert session(tmp_path, stage("a", OutsideTable("it does not fit")), stage("b")).run() is Exit.USAGE
    assert stored(tmp_path).messages == ["it does not fit"]


def test_the_time_left_is_shared_by_the_remaining_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, given = [1000.0], []
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def taking(seconds: float) -> Callable[[StageBudget], Iterator[StageOutput]]:
        def run(budget: StageBudget) -> Iterator[StageOutput]:
            given.append(budget.seconds)
            clock[0] += seconds
            return iter(())

        return run

    # 100 s: a may take 1/4 and takes 10; b may take 1/3 of 90 and takes 60; all the rest, 30, is left to c.
    stages = [Stage("a", 1.0, [], taking(10)), Stage("b", 1.0, [], taking(60)), Stage("c", 2.0, [], taking(0))]
    session(tmp_path, *stages, seconds=100.0).run()
    assert given == [25.0, 30.0, 30.0]


LONG_RUN = """
import signal, sys, time
from dataclasses import replace
from pathlib import Path
from kvproof.check.runs.errors import error_boundary
from kvproof.check.runs.run import RunOptions, run_stages
from kvproof.check.runs.errors import error_boundary
from kvproof.check.runs.session import Stage
from kvproof.reports.result import Check
from kvproof.spec.verdict import Verdict
import typer

signal.signal(signal.SIGINT, signal.default_int_handler)

def quick(budget):
    yield Check("a/read-back", "a", "read-back", Verdict.NOT_REFUTED)

def long(budget):
    for count in range(10**9):
        budget.advance(count)
        time.sleep(0.01)
        if count == 3:
            Path(sys.argv[1], "begun").touch()
    yield

def main():
    with error_boundary():
        stages = [Stage(n, 1.0, [Check(f"{n}/read-back", n, "read-back", Verdict.UNKNOWN, text="not run")], run)
                  for n, run in (("a", quick), ("b", long))]
        request = RunOptions("verify", "s", 7, 600.0, Path(sys.argv[1]), None)
        raise typer.Exit(run_stages(request, stages, None))

app = typer.Typer()
app.command()(main)
app([])
"""


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_readable_result_and_exit_code_4(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", LONG_RUN, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for(tmp_path / "begun", process)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (4, "")
    result = stored(tmp_path)
    assert [one.verdict for one in result.checks] == [Verdict.NOT_REFUTED, Verdict.UNKNOWN]
    assert result.checks[1].text.startswith("interrupted after ")
    assert not result.run.is_complete
    assert out.splitlines()[0].endswith("seed 7, budget 600 s")
    assert out.splitlines()[-1].startswith("Inconclusive for s: 1 check is unknown; the run did not finish. ")
    assert out.splitlines()[-1].endswith(" s, seed 7.")
    assert f"Every property under every judge: {tmp_path / 'report.txt'}" in out.splitlines()
    assert (tmp_path / "report.txt").read_text().endswith(f"\n{out.splitlines()[-1]}\n")


def test_a_killed_run_leaves_a_readable_unfinished_result(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LONG_RUN, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, text=True) as process:
        wait_for(tmp_path / "begun", process)
        process.kill()
    result = stored(tmp_path)
    assert verdicts(result) == [
        ("a/read-back", Verdict.NOT_REFUTED, ""),
        ("b/read-back", Verdict.UNKNOWN, "not run"),
    ]
    assert (result.run.is_complete, result.exit_code()) == (False, Exit.INCONCLUSIVE)


def test_a_reader_that_goes_away_does_not_end_the_run(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LONG_RUN, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.close()
        wait_for(tmp_path / "begun", process)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
        assert process.stderr is not None
        assert (process.returncode, process.stderr.read()) == (4, "")
    assert not stored(tmp_path).run.is_complete
    assert os.path.getsize(tmp_path / "report.txt") > 0


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "too many files are open in this process; raise its limit"),
        (BlockingIOError(errno.EAGAIN, "Try again"), "no more processes can be started; raise the limit"),
        (RuntimeError("can't start new thread"), "no more processes can be started; raise the limit"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "no memory is left for another process"),
    ],
)
def test_what_the_machine_does_not_give_is_no_fault_of_kvproof(
    tmp_path: Path, error: Exception, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert session(tmp_path, stage("a", error)).run() is Exit.INTERNAL
    (note,) = stored(tmp_path).messages
    assert note.startswith(f"a could not be done: {message}")
    with pytest.raises(typer.Exit) as done, error_boundary():
        raise error
    assert done.value.exit_code == Exit.INTERNAL
    assert capsys.readouterr().err.startswith(f"kvproof: {message}")


def test_a_mechanism_is_printed_at_once_when_it_is_found_first(tmp_path: Path) -> None:
    one, other = (replace(check(judge, Verdict.REFUTED, "block 1"), signature="fork: block") for judge in "ab")
    run = session(tmp_path, stage("a", one), stage("b", other))
    assert run.run() is Exit.REFUTED
    printed = [line for line in run.progress.lines if line.startswith("refuted: ")]  # type: ignore[attr-defined]
    assert printed == ["refuted: a/read-back: block 1"]


def test_an_interrupt_waits_for_the_end_of_an_import_of_native_code() -> None:
    done: list[str] = []

    def imported() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append("imported")

    with pytest.raises(KeyboardInterrupt):
        imported()
    assert done == ["imported"]
