"""`kvproof faults --of impl` as its users call it."""

import json
import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.golden_files import Command, Run
from typer.testing import CliRunner

from kvproof.audit.cli import faults_impl_run
from kvproof.audit.cli.fault_store import FaultStore
from kvproof.audit.faults.catalogue import catalogue, fresh
from kvproof.audit.faults.edits import Fault
from kvproof.audit.faults.judging import NOBODY, NOT_JUDGED, WALK
from kvproof.audit.faults.running import FaultOutcome, Judge
from kvproof.check.cli.app import app
from kvproof.check.runs.store import StoreError

LEAK = "kvproof-pool/pool-loses-blocks-in-a-reset"
DOUBLE = "kvproof-pool/pool-evicts-after-a-reset"


@pytest.fixture
def faults(command: Command) -> Run:
    return partial(command, "faults", "--of", "impl")


def answer(monkeypatch: pytest.MonkeyPatch, by: str) -> list[str]:
    """Let every fault be judged alike. Returns the list of faults that were judged, which grows."""
    asked: list[str] = []

    def judge_all(workers: str, judge: Judge, faults: Iterable[Fault]) -> Iterator[FaultOutcome]:
        for fault in faults:
            asked.append(fault.id)
            yield FaultOutcome(fault, by, "a block | is lost", 0.5, "conservation" if by == WALK else "", 12)

    monkeypatch.setattr(faults_impl_run, "judge_all", judge_all)
    return asked


def test_a_fault_that_is_found_is_reported_with_judge_property_and_operations(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, faults: Run
) -> None:
    answer(monkeypatch, WALK)
    file = tmp_path / "faults.json"
    assert faults("--only", LEAK, "--json", file).exit_code == 0
    (check,) = json.loads(file.read_text())["checks"]
    assert (check["id"], check["verdict"], check["counts"]) == (f"faults/{LEAK}", "not refuted", {"operations": 12})
    found = "walk: conservation after 12 operations: a block | is lost"
    assert check["text"] == f"A reset of a pool loses its cached blocks. {found}"


@pytest.mark.long
def test_every_fault_of_the_pool_is_found_or_has_a_reason() -> None:
    done = CliRunner().invoke(app, ["faults", "--of", "impl", "--only", "kvproof-pool"])
    assert done.exit_code == 0, done.output


def test_a_fault_that_nobody_finds_and_that_has_no_reason_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, faults: Run
) -> None:
    answer(monkeypatch, NOBODY)
    assert faults("--only", LEAK).exit_code == 1


def test_a_fault_of_an_engine_that_is_not_here_is_not_judged(monkeypatch: pytest.MonkeyPatch, faults: Run) -> None:
    answer(monkeypatch, NOT_JUDGED)
    assert faults("--only", LEAK).exit_code == 4


def test_a_resumed_run_judges_what_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, faults: Run) -> None:
    asked, file = answer(monkeypatch, WALK), tmp_path / "results.sqlite"
    assert faults("--only", LEAK, "--out", file).exit_code == 0
    assert faults("--only", LEAK, "--only", DOUBLE, "--out", file, "--resume").exit_code == 0
    assert asked == [LEAK, DOUBLE]


def test_a_pattern_selects_a_subject_a_kind_or_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answer(monkeypatch, WALK)
    CliRunner().invoke(app, ["faults", "--of", "impl", "--only", "kvproof-pool"])
    assert asked == [fault.id for fault in catalogue() if fault.subject == "kvproof-pool"]
    asked.clear()
    CliRunner().invoke(app, ["faults", "--of", "impl", "--only", "look-up"])
    assert asked == [fault.id for fault in catalogue() if fault.kind == "look-up"]


def test_the_fresh_faults_are_a_catalogue_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answer(monkeypatch, WALK)
    done = CliRunner().invoke(app, ["faults", "--of", "fresh", "--only", "kvproof-pool"])
    assert done.exit_code == 0, done.output
    assert asked == [fault.id for fault in fresh() if fault.subject == "kvproof-pool"]
    assert f"faults --of fresh, {len(asked)} faults" in done.output
    done = CliRunner().invoke(app, ["faults", "--of", "fresh", "--only", LEAK])
    assert f"no subject, kind or fault is named {LEAK}" in done.stderr


def test_a_run_that_is_interrupted_before_its_first_result_decides_nothing(
    monkeypatch: pytest.MonkeyPatch, faults: Run
) -> None:
    def judge_all(workers: str, judge: Judge, faults: Iterable[Fault]) -> Iterator[FaultOutcome]:
        raise KeyboardInterrupt

    monkeypatch.setattr(faults_impl_run, "judge_all", judge_all)
    assert faults("--only", LEAK).exit_code == 130


def test_a_store_that_cannot_be_written_ends_after_its_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, faults: Run
) -> None:
    def full(*_: object) -> None:
        raise StoreError("no space is left")

    answer(monkeypatch, WALK)
    monkeypatch.setattr(FaultStore, "add", full)
    assert faults("--only", LEAK, "--out", tmp_path / "results.sqlite").exit_code == 3


@pytest.mark.parametrize("name", ["/dev/full", "pipe"])
def test_a_store_is_a_regular_file(name: str, tmp_path: Path, faults: Run) -> None:
    if not name.startswith("/"):
        os.mkfifo(tmp_path / name)
    assert faults("--only", LEAK, "--out", tmp_path / name).exit_code == 2
