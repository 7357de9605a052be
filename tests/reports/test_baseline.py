"""A result compared with an earlier one."""

from copy import deepcopy

import pytest

from kvproof.reports.baseline import ACCEPTED, Comparison, accepted, difference
from kvproof.reports.result import Check, Result, WitnessCount
from kvproof.spec.verdict import Exit, Verdict


@pytest.fixture
def before(passed: Result) -> Result:
    passed.run.effort = "quick"
    passed.checks = [check for check in passed.checks if check.property != "swap-mapping"]
    passed.checks.append(Check("walker/swap-mapping", "walker", "swap-mapping", Verdict.NOT_REFUTED))
    passed.witnesses = [WitnessCount("pool-full", "walker", 1200), WitnessCount("reset", "walker", 3, False)]
    return passed


def refuting(result: Result, signature: str, excused: str = "") -> Result:
    found = Check("walker/frame-kept/x", "walker", "frame-kept", Verdict.REFUTED, text="it moved", signature=signature)
    found.excused = excused
    result.checks.append(found)
    return result


def test_the_same_result_is_not_worse(before: Result) -> None:
    now = deepcopy(before)
    now.difference = Comparison("b.json", accepted(before))(now)
    assert (now.difference.worse, now.difference.better) == ([], [])
    assert now.exit_code() is before.exit_code() is Exit.OK


def test_a_new_finding_is_worse_and_one_of_the_baseline_is_not(before: Result) -> None:
    now = refuting(deepcopy(before), "free: raises")
    assert now.exit_code() is Exit.REFUTED
    now.difference = Comparison("b.json", accepted(before))(now)
    assert now.difference.worse == ["new finding: walker/frame-kept/x: free: raises"]
    assert now.exit_code() is Exit.WORSE_THAN_BASELINE
    old = accepted(refuting(deepcopy(before), "free: raises"))
    assert difference("b.json", old, refuting(deepcopy(before), "free: raises", ACCEPTED)).worse == []
    other = difference("b.json", old, refuting(deepcopy(before), "fork: raises"))
    assert other.worse == ["new finding: walker/frame-kept/x: fork: raises"]
    assert other.better == ["fixed: frame-kept: free: raises"]


def test_a_finding_that_is_gone_is_better(before: Result) -> None:
    found = difference("b.json", refuting(deepcopy(before), "free: raises"), before)
    assert (found.worse, found.better) == ([], ["fixed: frame-kept: free: raises"])


def test_a_weaker_verdict_and_a_capability_that_is_gone_are_worse(before: Result) -> None:
    now = deepcopy(before)
    for check in now.checks:
        if check.id == "explorer/read-back/small":
            check.verdict = Verdict.UNKNOWN
        if check.property == "swap-mapping":
            check.verdict = Verdict.UNSUPPORTED
    assert difference("b.json", before, now).worse == [
        "weaker: explorer: read-back: exhausted in the baseline, now unknown",
        "weaker: walker: swap-mapping: not refuted in the baseline, now unsupported",
    ]


def test_a_judge_that_does_not_run_is_worse(before: Result) -> None:
    now = deepcopy(before)
    now.checks = [check for check in now.checks if check.judge != "explorer"]
    assert difference("b.json", before, now).worse == ["no longer run: explorer"]


@pytest.mark.parametrize(("seed", "lost"), [(7, "pool-full, reset"), (8, "pool-full")])
def test_what_is_no_longer_reached_is_worse_and_rare_things_only_with_the_same_seed(
    before: Result, seed: int, lost: str
) -> None:
    now = deepcopy(before)
    now.run.seed = seed
    now.witnesses = [WitnessCount(one.name, one.judge, 0, False) for one in now.witnesses]
    assert difference("b.json", before, now).worse == [f"no longer reached: walker: {lost}"]


def test_less_work_with_the_same_effort_is_worse(before: Result) -> None:
    now = deepcopy(before)
    for check in now.checks:
        if check.judge == "walker":
            check.counts = {"operations": 4000}
    assert difference("b.json", before, now).worse == ["less work: walker: 4,000 operations, 5,000 in the baseline"]
    now.run.effort = "2000"
    assert difference("b.json", before, now).worse == []


def test_what_a_baseline_with_findings_did_not_reach_is_not_expected(before: Result) -> None:
    before.witnesses.append(WitnessCount("three-holders", "walker", 0))
    now = refuting(deepcopy(before), "free: raises", ACCEPTED)
    now.difference = Comparison("b.json", refuting(before, "free: raises"))(now)
    assert now.exit_code() is Exit.OK
