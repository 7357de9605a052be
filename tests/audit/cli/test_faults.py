"""`kvproof faults` as its users call it."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.golden_files import Command, Run
from typer.testing import CliRunner

from kvproof.audit.cli import faults_run
from kvproof.audit.faults.catalogue import EXPLORER, PROVER
from kvproof.audit.faults.edits import Fault
from kvproof.audit.faults.running import FaultOutcome, Judge
from kvproof.audit.mutation.mutation_score import ALIVE
from kvproof.audit.mutation.operators import changes, deletions
from kvproof.check.cli.app import app


@pytest.fixture
def faults(command: Command) -> Run:
    return partial(command, "faults")


def test_every_fault_of_a_rule_is_noticed_and_the_matrix_says_by_whom(tmp_path: Path, faults: Run) -> None:
    file = tmp_path / "faults.json"
    assert faults("--only", "begin_free", "--jobs", "1", "--judge", "prover", "--json", file).exit_code == 0
    document = json.loads(file.read_text())
    assert {check["verdict"] for check in document["checks"]} == {"not refuted"}
    assert all(check["text"].startswith("prover: specification/begin_free/") for check in document["checks"])
    assert len(document["checks"]) == document["totals"]["not refuted"] > 2


def test_a_fault_that_nobody_notices_fails_the_run_and_is_named(monkeypatch: pytest.MonkeyPatch, faults: Run) -> None:
    first, second, third = list(deletions())[:3]
    found = [
        FaultOutcome(first, PROVER, "an obligation"),
        FaultOutcome(second, EXPLORER, "a state less"),
        FaultOutcome(third, ALIVE),
    ]
    monkeypatch.setattr(faults_run, "judge_all", lambda *_: iter(found))
    assert faults("--only", "begin_free").exit_code == 1


def test_the_kind_rules_selects_every_mutant_and_no_other_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    planted: list[object] = []

    def judge_none(workers: str, judge: Judge, faults: list[object]) -> list[FaultOutcome]:
        planted.extend(faults)
        return []

    monkeypatch.setattr(faults_run, "judge_all", judge_none)
    CliRunner().invoke(app, ["faults", "--only", "rules"])
    assert planted == [*deletions(), *changes()]


def test_a_run_goes_on_where_an_earlier_one_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: Run
) -> None:
    file, selected = tmp_path / "faults.sqlite", [one for one in deletions() if one.row == "send_entry"]
    judged: list[str] = []

    def judge_two(workers: str, judge: Judge, faults: list[Fault]) -> Iterator[FaultOutcome]:
        for number, fault in enumerate(faults):
            if number == 2:
                raise KeyboardInterrupt
            judged.append(fault.id)
            yield FaultOutcome(fault, ALIVE if number else PROVER, "evidence")

    monkeypatch.setattr(faults_run, "judge_all", judge_two)
    arguments = ["--deletions", "--only", "send_entry", "--out", file]
    done = faults(*arguments)
    assert (done.exit_code, len(judged)) == (1, 2)
    done = faults(*arguments, "--resume")
    assert judged == [one.id for one in selected][:4]
    assert faults(*arguments).exit_code == 2
