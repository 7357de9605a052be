"""Faults of the machinery: each can be planted, and is noticed; a machinery without a fault is not."""

import ast
import subprocess
from subprocess import CompletedProcess

import pytest
from tests.audit.faults.altering import altered

from kvproof.audit.faults.catalogue import PIN, machinery
from kvproof.audit.faults.edits import Edit, Fault, NotPlanted
from kvproof.audit.faults.planting import ROOT, environment, sources
from kvproof.audit.mutation import process_judges
from kvproof.audit.mutation.mutation_score import ALIVE, judged
from kvproof.audit.mutation.process_judges import pin_notices, suite_notices

BY_NAME = {one.id.removeprefix("machinery/"): one for one in machinery()}
TEST_OF_THE_PIN = ("tests/models/test_pin.py",)


def test_each_fault_changes_one_place_of_a_file_that_stays_python() -> None:
    assert len(BY_NAME) == len(machinery()) > 80
    for one in machinery():
        assert [ast.parse(text) for text in sources(one).values()]
        for file, _, name in (test.partition("::") for test in one.found_by if "/" in test):
            assert f"def {name}(" in (ROOT / file).read_text() if name else (ROOT / file).is_file(), one.id


def test_a_fault_is_noticed_by_a_test_and_only_where_it_is_planted() -> None:
    fault = BY_NAME["what vanishes is not reported"]
    assert suite_notices(fault, TEST_OF_THE_PIN).startswith(
        "FAILED tests/models/test_pin.py::test_an_obligation_that_van"
    )
    assert fault.plant[0].old in (ROOT / fault.plant[0].file).read_text()


def test_a_fault_that_cannot_be_planted_is_an_error() -> None:
    fault = BY_NAME["no first state"]
    with (
        pytest.raises(NotPlanted, match="has 'no such line' 0 times"),
        environment(altered(fault, old="no such line")),
    ):
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
    assert judged(fault).text.startswith(reason)


def test_a_machinery_that_cannot_be_imported_or_does_not_end_notices_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = BY_NAME["no first state"]
    errors = {"ImportError: no such name": ALIVE, "AssertionError: b is bound within": PIN}
    for error, by in errors.items():
        monkeypatch.setattr(subprocess, "run", lambda *_, **__: CompletedProcess([], 1, "", error))  # noqa: B023
        assert judged(fault).by == by
    monkeypatch.undo()
    monkeypatch.setattr(process_judges, "CPU_SECONDS_MAX", 0)
    assert (judged(fault).by, judged(fault).text) == (ALIVE, "no end within 0 s of processor time")
    monkeypatch.undo()
    monkeypatch.setattr(process_judges, "SECONDS_MAX", 0.001)
    assert (judged(fault).by, judged(fault).text) == (ALIVE, "no end within 0 s")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_machinery_without_a_fault_is_not_noticed() -> None:
    named = Edit("", "class Pin:\n", "class Pin:\n    NAME = 0\n\n", "models/kvproof/models/pin.py")
    none = Fault("nothing", (named,), "specification")
    assert suite_notices(none, TEST_OF_THE_PIN) == ""
    assert pin_notices(none) == ""
