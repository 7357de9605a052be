"""Findings over time, flaky ones, and speeds; the table and the page of a history."""

import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kvproof.reports.baseline import difference
from kvproof.reports.history import FIXED, FLAKY, GONE, OPEN, histories
from kvproof.reports.history_page import as_data, chart, history_lines, history_page
from kvproof.reports.recorded_run import (
    RecordedRun,
    RecordedVerdict,
    RecordedWork,
    as_result,
    finding_of,
    recorded,
)
from kvproof.reports.result import Result, WitnessCount
from kvproof.spec.verdict import Exit, Verdict

SIGNATURE = "fork: refcount of block: the specification says the subject, too small"
FOUND = finding_of("walker", "refcount-exact", SIGNATURE, text="refcount of block <0>")


def run(number: int, is_found: bool = False, **fields: Any) -> RecordedRun:
    """A complete run of vllm-v0==0.6.3, 1,000 operations in a second of processor time; number: its place in time."""
    verdict = Verdict.REFUTED if is_found else Verdict.NOT_REFUTED
    one = RecordedRun(
        id=f"{number:010x}",
        subject="vllm-v0==0.6.3",
        command="hunt",
        seed=1,
        effort="quick",
        budget_seconds=None,
        revision="",
        version="0.2.0",
        host="alpha",
        facts={},
        started=f"2026-11-{number:02d}T10:00:00Z",
        seconds=2.0,
        processor_seconds=1.0,
        exit_code=Exit.REFUTED if is_found else Exit.OK,
        is_complete=True,
        verdicts=[RecordedVerdict("walker", "refcount-exact", verdict)],
        findings=[FOUND] if is_found else [],
        work=[RecordedWork("walker", "operations", 1000), RecordedWork("walker", "runs", 40)],
        reached=[WitnessCount("pool-full", "walker", 12)],
    )
    return replace(one, **fields)


def test_a_run_of_an_older_kvproof_has_the_finding_by_its_former_signature() -> None:
    one = replace(FOUND, signature=f"{SIGNATURE} (window)", former="fork: refcount")
    old = replace(FOUND, signature="fork: refcount")
    assert states(run(1, True, findings=[old]), run(2, True, findings=[one])) == [(OPEN, 2, 2)]
    assert len(states(run(1, True, findings=[old]), run(2, True, findings=[replace(one, former="")]))) == 2


def states(*runs: RecordedRun) -> list[tuple[str, int, int]]:
    (subject,) = histories(runs)
    return [(one.state, one.num_seen, one.num_judged) for one in subject.findings]


def test_a_finding_is_open_until_a_run_with_the_same_inputs_does_not_find_it() -> None:
    new = "vllm-v0==0.7.0"
    assert states(run(1), run(2, True, subject=new)) == [(OPEN, 1, 2)]
    assert states(run(1, True), run(2, subject=new)) == [(FIXED, 1, 2)]
    assert states(run(1, True), run(2, subject=new, seed=2)) == [(GONE, 1, 2)]


def test_a_run_that_did_not_judge_the_property_or_did_not_finish_says_nothing_about_a_finding() -> None:
    undecided = [RecordedVerdict("walker", "refcount-exact", Verdict.UNKNOWN)]
    assert states(run(1, True), run(2, verdicts=undecided), run(3, is_complete=False)) == [(OPEN, 1, 1)]


def test_a_run_that_met_a_new_finding_that_may_hide_another_says_nothing_about_that_one() -> None:
    new, elsewhere = replace(FOUND, property="frame-kept"), replace(FOUND, property="frame-kept", signature="x (swap)")
    hides, hides_not = (run(2, findings=[one], subject="vllm-v0==0.7.0") for one in (new, elsewhere))
    assert (OPEN, 1, 1) in states(run(1, True), hides)
    assert (OPEN, 2, 2) in states(run(1, True), hides, run(3, True))  # not flaky
    assert (FIXED, 1, 2) in states(run(1, True), hides_not)
    assert (FIXED, 1, 2) in states(run(1, findings=[FOUND, new]), hides)  # they were met together before


def test_a_finding_of_some_runs_of_the_same_code_seed_and_effort_is_flaky() -> None:
    (subject,) = histories([run(1, True), run(2), run(3)])
    assert [one.why for one in subject.flaky] == [
        "1 of 3 runs of hunt with seed 1, effort quick found it, all with the same code (0.6.3)"
    ]
    mine: dict[str, Any] = {"subject": "adapter.py:Adapter"}
    assert states(run(1, True, **mine, revision="a" * 40), run(2, **mine, revision="a" * 40)) == [(FLAKY, 1, 2)]
    for revision in ("", "a" * 40 + "-dirty"):  # the code may have changed between the two
        assert states(run(1, True, **mine, revision=revision), run(2, **mine, revision=revision)) == [(FIXED, 1, 2)]


def test_a_finding_that_comes_back_in_a_later_release_is_flaky() -> None:
    runs = [run(1, True), run(2, subject="vllm-v0==0.7.0"), run(3, True, subject="vllm-v0==0.8.0")]
    assert states(*runs[:2]) == [(FIXED, 1, 2)]
    assert states(*runs) == [(FLAKY, 2, 3)]


def test_one_adapter_named_from_two_folders_is_one_subject() -> None:
    names = [one.name for one in histories([run(1, subject="../a/b.py:A"), run(2, subject="a/b.py:A"), run(3)])]
    assert names == ["a/b.py:A", "vllm-v0"]


def test_a_speed_is_slow_if_it_is_out_of_line_with_earlier_runs_of_the_same_host() -> None:
    earlier = [
        run(number, processor_seconds=seconds) for number, seconds in enumerate((1.0, 1.02, 0.99, 1.01), start=1)
    ]
    (subject,) = histories([*earlier, run(5, processor_seconds=1.25), run(6, processor_seconds=1.08)])
    assert [speed.run.id for speed in subject.slow] == [run(5).id]
    assert subject.slow[0].sentence == (
        "800 operations per processor second: -19.6% against the median 995 of 4 earlier runs on alpha; noise is ±10.0%"
    )
    for other in ({"host": "beta"}, {"effort": "long"}, {"findings": [FOUND]}, {"is_complete": False}):
        (subject,) = histories([*earlier, run(5, processor_seconds=9.0, **other)])
        assert subject.slow == []


def test_the_table_fits_into_80_columns_and_has_each_release_and_finding() -> None:
    subjects = histories([*(run(number) for number in range(1, 5)), run(5, True, processor_seconds=2.0)])
    lines = [line for line, _ in history_lines(subjects, last=2)]
    assert lines[:5] == [
        "vllm-v0: 5 runs, on alpha",
        " run        started (UTC)    command outcome      found   operations      op/s",
        " release 0.6.3",
        " 0000000004 2026-11-04 10:00 hunt    ok               0        1,000    1,000",
        " 0000000005 2026-11-05 10:00 hunt    refuted          1        1,000      500",
    ]
    assert f" flaky: refcount-exact: {SIGNATURE}" in lines
    assert all(len(line) <= 80 for line in lines[:5])


def test_the_json_has_the_runs_findings_and_speeds() -> None:
    data = as_data(histories([run(1, True)]), last=5)
    ((subject,), finding) = data["subjects"], data["subjects"][0]["findings"][0]
    assert (subject["name"], subject["runs"][0]["operations_per_processor_second"]) == ("vllm-v0", 1000)
    assert (finding["state"], finding["first_run"], finding["signature"]) == (OPEN, run(1).id, SIGNATURE)
    assert msgspec.json.encode(data)


def test_the_page_makes_no_request_escapes_what_it_shows_and_marks_a_slow_run() -> None:
    hostile = replace(FOUND, signature="</title><script>alert(1)</script>")
    runs = [*(run(number) for number in range(1, 5)), run(5, processor_seconds=3.0), run(6, findings=[hostile])]
    page = history_page(histories(runs))
    assert not re.search(r"<link (?!rel=.icon. href=.data:)|<iframe|src=|url\((?!#)|@import|https?://(?!www.w3)", page)
    assert len(re.findall("<script", page)) == 1
    assert "&lt;script&gt;alert(1)" in page
    assert page.count('class="marked"') == 1
    assert "prefers-color-scheme: dark" in page
    assert page.count("<svg") == page.count('role="img"') == 4


def test_a_run_without_a_number_is_a_gap_in_the_chart_and_no_zero() -> None:
    drawn = chart("speed", [run(1), run(2), run(3, processor_seconds=None), run(4), run(5)], _speed)
    assert (len(drawn.lines), len(drawn.marks)) == (2, 4)
    assert chart("speed", [run(1, processor_seconds=None)], _speed).marks == ()


def _speed(one: RecordedRun) -> float | None:
    return one.operations_per_second


def test_a_result_is_the_same_for_a_baseline_after_it_was_recorded(refuted: Result, passed: Result) -> None:
    for result in (refuted, passed):
        again = as_result(recorded(result, Exit.OK, "0123456789", "alpha", ""))
        for before, now in ((result, again), (again, result)):
            found = difference("it", before, now)
            assert (found.worse, found.better) == ([], [])
    lost = difference(
        "it", as_result(recorded(passed, Exit.OK, "0", "alpha", "")), replace(passed, checks=passed.checks[:3])
    )
    assert lost.worse == ["no longer run: walker"]


@pytest.mark.parametrize(("code", "word"), [(0, "ok"), (6, "worse than baseline"), (99, "unknown")])
def test_the_exit_code_of_a_run_in_words(code: int, word: str) -> None:
    assert run(1, exit_code=code).outcome == word
