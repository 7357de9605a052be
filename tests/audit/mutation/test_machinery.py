"""Faults of the machinery: each can be planted, and is noticed; a machinery without a fault is not."""

import ast
import subprocess
from dataclasses import replace
from subprocess import CompletedProcess

import pytest

from kvproof.audit.mutation import planting
from kvproof.audit.mutation.machinery import PLANTS, Plant
from kvproof.audit.mutation.mutation_score import ALIVE, PIN, judged
from kvproof.audit.mutation.planting import ROOT, pin_notices, planted, suite_notices

BY_NAME = {one.name: one for one in PLANTS}
TEST_OF_THE_PIN = ("tests/models/test_pin.py",)


def test_each_fault_changes_one_place_of_a_file_that_stays_python() -> None:
    assert len(BY_NAME) == len(PLANTS) > 80
    for one in PLANTS:
        assert ast.parse(one.changed(ROOT))
        assert one.old != one.new, one.name
        for file, _, name in (test.partition("::") for test in one.tests):
            assert f"def {name}(" in (ROOT / file).read_text() if name else (ROOT / file).is_file(), one.name


def test_a_fault_is_noticed_by_a_test_and_only_where_it_is_planted() -> None:
    fault = BY_NAME["what vanishes is not reported"]
    assert suite_notices(fault, TEST_OF_THE_PIN).startswith(
        "FAILED tests/models/test_pin.py::test_an_obligation_that_van"
    )
    assert fault.old in (ROOT / fault.file).read_text()


def test_a_fault_that_cannot_be_planted_is_an_error() -> None:
    with pytest.raises(LookupError, match="0 times 'no such line'"), planted(replace(PLANTS[0], old="no such line")):
        pass


@pytest.mark.parametrize(
    ("code", "output", "reason"),
    [
        (2, "ERROR tests/x.py - ImportError: no such name", "the tests do not run with the fault: ERROR tests/x.py"),
        (4, "ERROR: not found: tests/x.py::y", "the tests do not run with the fault: ERROR: not found"),
        (1, "", "the tests do not run with the fault: no output"),
    ],
)
def test_a_test_that_does_not_run_notices_nothing(
    code: int, output: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = BY_NAME["what vanishes is not reported"]
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: CompletedProcess([], code, output, ""))
    assert judged(fault).by == ALIVE
    assert judged(fault).evidence.startswith(reason)


def test_a_machinery_that_cannot_be_imported_or_does_not_end_notices_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = BY_NAME["no first state"]
    errors = {"ImportError: no such name": ALIVE, "AssertionError: b is bound within": PIN}
    for error, by in errors.items():
        monkeypatch.setattr(subprocess, "run", lambda *_, **__: CompletedProcess([], 1, "", error))  # noqa: B023
        assert judged(fault).by == by
    monkeypatch.undo()
    monkeypatch.setattr(planting, "CPU_SECONDS_MAX", 0)
    assert (judged(fault).by, judged(fault).evidence) == (ALIVE, "no end within 0 s of processor time")
    monkeypatch.undo()
    monkeypatch.setattr(planting, "SECONDS_MAX", 0.001)
    assert (judged(fault).by, judged(fault).evidence) == (ALIVE, "no end within 0 s")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_machinery_without_a_fault_is_not_noticed() -> None:
    none = Plant("nothing", "models/kvproof/models/pin.py", "class Pin:\n", "class Pin:\n\n")
    assert suite_notices(none, TEST_OF_THE_PIN) == ""
    assert pin_notices(none) == ""
