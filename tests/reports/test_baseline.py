"""A result compared with an earlier one.

What differs between two results.
"""

from copy import deepcopy
from dataclasses import replace

import pytest

from kvproof.reports.baseline import ACCEPTED, BaselineComparison, accepted, compare, difference, is_same_subject
from kvproof.reports.data_plane_result import Bandwidth, DataPlane, Speed, Spread
from kvproof.reports.document import DocumentError
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
    now.difference = BaselineComparison("b.json", accepted(before))(now)
    assert (now.difference.worse, now.difference.better) == ([], [])
    assert now.exit_code() is before.exit_code() is Exit.OK


def test_a_new_finding_is_worse_and_one_of_the_baseline_is_not(before: Result) -> None:
    now = refuting(deepcopy(before), "free: raises")
    assert now.exit_code() is Exit.REFUTED
    now.difference = BaselineComparison("b.json", accepted(before))(now)
    assert now.difference.worse == ["new finding: walker/frame-kept/x: free: raises"]
    assert now.exit_code() is Exit.WORSE_THAN_BASELINE
    old = accepted(refuting(deepcopy(before), "free: raises"))
    assert difference("b.json", old, refuting(deepcopy(before), "free: raises", ACCEPTED)).worse == []
    other = difference("b.json", old, refuting(deepcopy(before), "fork: raises"))
    assert other.worse == ["new finding: walker/frame-kept/x: fork: raises"]
    assert other.better == ["not found, and perhaps hidden by a new finding: frame-kept: free: raises"]


def test_a_baseline_of_an_older_kvproof_has_a_finding_by_its_former_signature(before: Result) -> None:
    old = accepted(refuting(deepcopy(before), "free NoRoom: free raised NoRoom"))
    now = refuting(deepcopy(before), "free NoRoom: raised in take of pool.py (window)", ACCEPTED)
    now.checks[-1].former = "free NoRoom: free raised NoRoom"
    for one, other in ((old, now), (accepted(now), old)):
        changes = difference("b.json", one, other)
        assert (changes.worse, changes.better) == ([], [])
    now.checks[-1].former = "free NoRoom: too few"
    assert len(difference("b.json", old, now).worse) == 1


def test_a_baseline_keeps_the_former_signature(before: Result) -> None:
    now = refuting(deepcopy(before), "free NoRoom: raised in take of pool.py")
    now.checks[-1].former = "free NoRoom: free raised NoRoom"
    assert accepted(now).checks[-1].former == now.checks[-1].former


def test_a_fault_that_now_shows_without_a_feature_is_new(before: Result) -> None:
    old = accepted(refuting(deepcopy(before), "free: raises (window)"))
    assert difference("b.json", old, refuting(deepcopy(before), "free: raises (chunked, window)", ACCEPTED)).worse == []
    worse = difference("b.json", old, refuting(deepcopy(before), "free: raises")).worse
    assert worse == ["new finding: walker/frame-kept/x: free: raises"]


def test_what_is_no_failure_is_no_new_finding(before: Result) -> None:
    now = refuting(deepcopy(before), "free: raises", "known until 2027-01-31: fixed upstream")
    now.checks.append(Check("walker/hit-complete/x", "walker", "hit-complete", Verdict.REFUTED, text="missed"))
    assert difference("b.json", before, now).worse == []
    assert difference("b.json", now, before).worse == ["no longer judged: frame-kept: free: raises"]


def test_a_finding_that_another_baseline_excuses_is_new(before: Result) -> None:
    now = refuting(deepcopy(before), "free: raises", ACCEPTED)
    assert difference("b.json", before, now).worse == ["new finding: walker/frame-kept/x: free: raises"]


def test_a_finding_without_signature_is_not_one_that_has_no_former_signature(before: Result) -> None:
    old = accepted(refuting(deepcopy(before), "free: raises"))
    assert difference("b.json", old, refuting(deepcopy(before), "")).worse == [
        "new finding: walker/frame-kept/x: it moved"
    ]


def test_a_finding_without_signature_and_text_is_compared(before: Result) -> None:
    silent = refuting(deepcopy(before), "")
    silent.checks[-1].text = ""
    assert difference("b.json", before, silent).worse == ["new finding: walker/frame-kept/x: without a text"]
    assert difference("b.json", silent, before).worse == ["no longer judged: frame-kept: without a text"]


def test_a_finding_that_is_gone_is_better(before: Result) -> None:
    now = deepcopy(before)
    now.checks.append(Check("walker/frame-kept", "walker", "frame-kept", Verdict.NOT_REFUTED))
    found = difference("b.json", refuting(deepcopy(before), "free: raises"), now)
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


def test_an_open_check_of_the_baseline_may_turn_out_to_be_of_what_the_subject_does_not_have(before: Result) -> None:
    for check in before.checks:
        if check.id == "explorer/read-back/small":
            check.verdict = Verdict.UNKNOWN
    now = deepcopy(before)
    for check in now.checks:
        if check.id == "explorer/read-back/small":
            check.verdict = Verdict.UNSUPPORTED
    assert difference("b.json", before, now).worse == []


def test_a_scope_that_only_the_later_run_came_to_and_that_does_not_exist_is_no_loss(before: Result) -> None:
    beyond = Check("explorer/read-back/cached", "explorer", "read-back", Verdict.UNSUPPORTED, text="no prefix cache")
    now = deepcopy(before)
    now.checks.append(beyond)
    assert difference("b.json", before, now).worse == []
    for check in now.checks:
        if check.id == "explorer/read-back/small":
            check.verdict = Verdict.UNKNOWN
    assert difference("b.json", before, now).worse == [
        "weaker: explorer: read-back: exhausted in the baseline, now unknown"
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


def test_clearly_less_work_with_the_same_effort_is_worse_and_fewer_runs_are_not(before: Result) -> None:
    now = deepcopy(before)
    for result, num_operations, num_runs in ((before, 5000, 40), (now, 4600, 4)):
        for check in result.checks:
            if check.judge == "walker":
                check.counts = {"operations": num_operations, "runs": num_runs}
    assert difference("b.json", before, now).worse == []
    for check in now.checks:
        if check.judge == "walker":
            check.counts = {"operations": 4000}
    assert difference("b.json", before, now).worse == ["less work: walker: 4,000 operations, 5,000 in the baseline"]


@pytest.mark.parametrize("effort", ["2000", "normal", ""])
def test_less_effort_is_worse_and_what_a_budget_allows_is_compared_by_its_work(before: Result, effort: str) -> None:
    now = deepcopy(before)
    now.run.effort = effort
    for check in now.checks:
        if check.judge == "walker":
            check.counts = {"operations": {"2000": 2000, "normal": 50_000, "": 4000}[effort]}
    lost = {
        "2000": [
            "less effort: 2000, in the baseline quick",
            "less work: walker: 2,000 operations, 5,000 in the baseline",
        ],
        "normal": [],
        "": ["less work: walker: 4,000 operations, 5,000 in the baseline"],
    }
    assert difference("b.json", before, now).worse == lost[effort]
    before.run.effort = ""
    assert difference("b.json", before, now).worse == []


def test_a_finding_whose_property_is_no_longer_judged_is_not_fixed(before: Result) -> None:
    now = deepcopy(before)
    found = Check("walker/swap-mapping/x", "walker", "swap-mapping", Verdict.REFUTED, text="lost", signature="swap_in")
    before.checks.append(found)
    for verdict, worse, better in (
        (Verdict.UNSUPPORTED, ["no longer judged: swap-mapping: swap_in"], []),
        (Verdict.UNKNOWN, [], ["not found, and not decided: swap-mapping: swap_in"]),
        (Verdict.NOT_REFUTED, [], ["fixed: swap-mapping: swap_in"]),
    ):
        now.checks = [replace(one, verdict=verdict) if one.property == "swap-mapping" else one for one in now.checks]
        found_now = difference("b.json", before, now)
        assert (found_now.worse, found_now.better) == (worse, better)


@pytest.mark.parametrize(
    ("new", "is_hidden"), [("fork: too small", True), ("fork: too small (window)", True), ("swap: lost (swap)", False)]
)
def test_a_finding_that_a_new_one_may_hide_is_not_fixed(before: Result, new: str, is_hidden: bool) -> None:
    """Runs with all features of the new finding mostly end there."""
    gone = "hit: not there (caching, window)"
    now = refuting(deepcopy(before), new)
    refuting(before, gone)
    found = difference("b.json", before, now)
    assert found.worse[0].startswith("new finding: ")
    assert f"not found, and perhaps hidden by a new finding: frame-kept: {gone}" in found.better or not is_hidden
    assert f"fixed: frame-kept: {gone}" in found.better or is_hidden


@pytest.mark.parametrize("change", ["seed", "effort", "budget", "version", "capability", "witness"])
def test_a_finding_is_fixed_only_if_the_run_did_what_the_one_of_the_baseline_did(before: Result, change: str) -> None:
    """Another run may not draw what shows it, and a subject without forks shows no fault of its forks."""
    now, decided = deepcopy(before), Check("walker/frame-kept", "walker", "frame-kept", Verdict.NOT_REFUTED)
    now.checks.append(decided)
    refuting(before, "fork: raises")
    assert difference("b.json", before, now).better == ["fixed: frame-kept: fork: raises"]
    newer = replace(now, run=replace(now.run, subject=f"{now.run.subject.partition('==')[0]}==9.9"))
    assert difference("b.json", before, newer).better == ["fixed: frame-kept: fork: raises"]
    match change:
        case "seed":
            now.run.seed += 1
        case "effort":
            now.run.effort = "normal"
        case "budget":
            before.run.effort = now.run.effort = ""
        case "version":
            now.run.version = "9"
        case "capability":
            now.checks = [
                replace(one, verdict=Verdict.UNSUPPORTED) if one is not decided else one for one in now.checks
            ]
        case "witness":
            now.witnesses = [replace(one, count=0) for one in now.witnesses]
    assert difference("b.json", before, now).better == ["not found again: frame-kept: fork: raises"]


def test_another_seed_or_effort_than_that_of_the_baseline_is_reported(before: Result) -> None:
    now = deepcopy(before)
    BaselineComparison("b.json", accepted(before))(now)
    assert now.messages == before.messages
    now.run.seed, now.run.effort = 8, "normal"
    BaselineComparison("b.json", accepted(before))(now)
    assert now.messages[-1] == (
        "b.json is the result of another run (seed 7 there and 8 here, effort quick there and normal here); only what "
        "the baseline reached 20 times or more must be reached again"
    )


def test_only_the_findings_of_another_command_are_compared(before: Result) -> None:
    refuting(before, "free: raises")
    now = deepcopy(before)
    now.run.command = "hunt"
    now.checks = [check for check in now.checks if check.judge == "walker" and check.verdict is not Verdict.REFUTED]
    now.witnesses, now.checks[0].counts = [], {"operations": 1}
    now.difference = BaselineComparison("b.json", accepted(before))(now)
    assert now.difference.worse == []
    assert now.messages == [
        "b.json is the result of another run (command verify there and hunt here); only findings are compared, since "
        "the commands have different judges"
    ]
    found = refuting(now, "fork: raises")
    assert difference("b.json", accepted(before), found).worse == ["new finding: walker/frame-kept/x: fork: raises"]


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("kvproof", "kvproof", True),
        ("kvproof", "vllm-v0", False),
        ("vllm-v0==0.6.3", "vllm-v0", True),
        ("vllm-v0==0.6.3", "vllm-v1==0.9.0", False),
        ("tests/adapter.py:Adapter", "../tests/adapter.py:Adapter", True),
        ("tests/adapter.py:Adapter", "/srv/tests/adapter.py:Adapter", True),
        ("../adapter.py:Adapter", "/srv/adapter.py:Adapter", True),
        ("tests/adapter.py:Adapter", "tests/adapter.py:Other", False),
        ("tests/adapter.py:Adapter", "other/adapter.py:Adapter", False),
        ("package.module:make", "package.other:make", False),
        ("pipe:node manager.js", "pipe:node other.js", False),
    ],
)
def test_results_of_one_subject_are_compared_however_it_is_named(one: str, other: str, is_same: bool) -> None:
    assert is_same_subject(one, other) is is_same


def test_what_a_baseline_with_findings_did_not_reach_is_not_expected(before: Result) -> None:
    before.witnesses.append(WitnessCount("three-holders", "walker", 0))
    now = refuting(deepcopy(before), "free: raises", ACCEPTED)
    now.difference = BaselineComparison("b.json", refuting(before, "free: raises"))(now)
    assert now.exit_code() is Exit.OK
    now = deepcopy(before)
    now.checks = [check for check in now.checks if check.verdict is not Verdict.REFUTED]
    BaselineComparison("b.json", before)(now)
    assert [witness.name for witness in now.unmet_witnesses()] == ["three-holders"]  # nothing was avoided in this run


def test_a_result_is_not_worse_than_itself(passed: Result) -> None:
    found = compare("A", passed, passed)
    assert (found.worse, found.better, found.exit_code) == ([], [], Exit.OK)


def test_new_findings_and_lost_coverage_are_worse_and_stronger_verdicts_are_better(refuted: Result) -> None:
    refuted.run.effort = "quick"
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


def test_a_speed_that_is_no_longer_measured_is_worse(passed: Result) -> None:
    once = Spread(1.0, 1.0, 1.0)
    moves = [Speed("engine", name, "plain", 4, 1024, 2048, once, once, 0.01) for name in ("copy", "swap in")]
    speeds = Bandwidth("cpu", "here", "nhd", "int8", 64, 9, [], moves, [], [], 1.0, 0.0)
    check = Check("data plane/swap-mapping/engine", "data plane", "swap-mapping", Verdict.NOT_REFUTED)
    timed = replace(passed, checks=[*passed.checks, check], data_plane=DataPlane("cpu", bandwidth=speeds))
    partly = replace(timed, data_plane=DataPlane("cpu", bandwidth=replace(speeds, moves=moves[:1])))
    assert compare("A", timed, timed).worse == []
    assert compare("A", timed, partly).worse == ["no longer timed: engine: swap in"]
    without = replace(timed, data_plane=DataPlane("cpu"))
    assert compare("A", timed, without).worse == ["no longer timed: engine: copy; swap in"]
    assert compare("A", timed, replace(without, run=replace(passed.run, command="device"))).worse == []
    assert compare("A", without, timed).worse == []


def test_results_of_different_subjects_are_not_compared(passed: Result, refuted: Result) -> None:
    with pytest.raises(DocumentError, match="A is a result of kvproof, and the other one of vllm-v0=="):
        compare("A", passed, refuted)
