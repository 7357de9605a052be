"""What differs between two results."""

from dataclasses import replace

import pytest

from kvproof.reports.comparison import compare
from kvproof.reports.document import DocumentError
from kvproof.reports.result import Result, WitnessCount
from kvproof.spec.verdict import Exit, Verdict


def test_a_result_is_not_worse_than_itself(passed: Result) -> None:
    found = compare("A", passed, passed)
    assert (found.worse, found.better, found.exit_code) == ([], [], Exit.OK)


def test_new_findings_and_lost_coverage_are_worse_and_stronger_verdicts_are_better(refuted: Result) -> None:
    fixed = replace(refuted, checks=[replace(check) for check in refuted.checks])
    fixed.checks[1].verdict = Verdict.EXHAUSTED
    fixed.checks[2].verdict = Verdict.NOT_REFUTED
    fixed.witnesses = [*refuted.witnesses[:1], WitnessCount("three-holders", "walker", 5)]
    found = compare("A", refuted, fixed)
    assert (found.worse, found.exit_code) == ([], Exit.OK)
    assert found.better == [
        "fixed: refcount-exact: refcount of block 1: the specification says 1, the subject 2",
        "stronger: explorer: read-back: unknown before, now exhausted",
        "newly reached: walker: three-holders",
    ]
    back = compare("B", fixed, refuted)
    assert back.exit_code is Exit.WORSE_THAN_BASELINE
    assert [line.partition(":")[0] for line in back.worse] == ["new finding", "weaker"]


def test_the_speed_of_a_run_is_shown_and_decides_nothing(passed: Result) -> None:
    runs = [replace(passed, run=replace(passed.run, processor_seconds=seconds)) for seconds in (1.0, 10.0)]
    found = compare("A", *runs)
    assert found.exit_code is Exit.OK
    assert found.notes[-1].startswith("speed: 5,000 operations per processor second before, now 500 (-90.0%)")


def test_results_of_different_subjects_are_not_compared(passed: Result, refuted: Result) -> None:
    with pytest.raises(DocumentError, match="A is a result of kvproof, and the other one of vllm-v0=="):
        compare("A", passed, refuted)
