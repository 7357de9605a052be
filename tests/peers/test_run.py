"""The complaints of `make peers`. The run itself needs a package index; these tests do not."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def run() -> Any:
    """The script, imported by its path, since it is in no package."""
    spec = importlib.util.spec_from_file_location("peers_run", HERE / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def all_passed(run: Any, num_tests: int) -> dict[str, Any]:
    return {f"file.py::test[{number}]": run.Outcome(True, "") for number in range(num_tests)}


def reason(run: Any, *tests: str) -> Any:
    return run.Reason("a kind", "a sentence", frozenset(tests))


def test_a_run_in_which_exactly_the_named_tests_fail_is_good(run: Any) -> None:
    vllm = all_passed(run, 931)
    ours = {**vllm, "file.py::test[0]": run.Outcome(False, "no")}
    assert run.complaints(vllm, ours, [reason(run, "file.py::test[0]")]) == []


def test_a_failure_without_a_reason_is_reported_with_its_message(run: Any) -> None:
    vllm = all_passed(run, 931)
    ours = {**vllm, "file.py::test[0]": run.Outcome(False, "1 == 2")}
    assert run.complaints(vllm, ours, []) == ["fails, and no reason is given: file.py::test[0] (1 == 2)"]


def test_a_named_test_that_passes_or_does_not_exist_must_leave_the_list(run: Any) -> None:
    vllm = all_passed(run, 931)
    assert run.complaints(vllm, vllm, [reason(run, "file.py::test[0]", "gone")]) == [
        "passes; take it out of expected.toml: file.py::test[0]",
        "in expected.toml, but there is no such test: gone",
    ]


def test_a_test_that_ran_on_one_side_only_is_reported(run: Any) -> None:
    vllm, ours = all_passed(run, 932), all_passed(run, 931)
    assert run.complaints(vllm, ours, []) == ["ran on vLLM only: file.py::test[931]"]
    assert run.complaints(ours, vllm, []) == ["ran on kvproof only: file.py::test[931]"]


def test_a_test_that_fails_on_vllm_itself_is_a_fault_of_the_harness(run: Any) -> None:
    ours = all_passed(run, 930)
    vllm = {**ours, "file.py::test[0]": run.Outcome(False, "no module")}
    assert run.complaints(vllm, ours, []) == ["fails on vLLM itself: file.py::test[0] (no module)"]


def test_fewer_passes_than_the_minimum_are_too_few_whatever_the_reasons(run: Any) -> None:
    vllm = all_passed(run, 930)
    ours = {**vllm, "file.py::test[0]": run.Outcome(False, "no")}
    assert run.complaints(vllm, ours, [reason(run, "file.py::test[0]")]) == ["929 tests pass; at least 930 must"]
    assert run.complaints({}, {}, []) == ["0 tests pass; at least 930 must"]


def test_each_of_the_twelve_expected_failures_has_one_reason(run: Any) -> None:
    named = [test for entry in run.read_expected(HERE / "expected.toml") for test in entry.tests]
    assert len(named) == len(set(named)) == 12
