"""The table of goals: a figure that misses its goal says so, and so does a goal without a figure."""

import pytest
from benchmarks.first_sight import FAULTS, sights
from benchmarks.searches import EXPLORED
from benchmarks.workers import OF_HUNTS

from benchmarks import summary


def test_goals_are_met_missed_or_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    first, *others = EXPLORED
    searches = {first: {"states/s": 120_000.0, "transitions/s": 499_999.0}}
    proofs = {"from nothing": (19.0, 40.0), "nothing changed": (2.5, 3.0), "one rule changed": (9.0, 9.0)}
    found = summary.goals({"host": {}, "proofs": proofs, "searches": searches})
    assert [goal.is_met for goal in found] == [True, False, *[None] * 2 * len(others), True, False, False]
    summary.report({"proofs": proofs, "searches": searches})
    head, *rows = capsys.readouterr().out.splitlines()
    assert head == f"goals: 2 of {len(found)} met"
    assert [row.split()[-1] for row in rows] == [
        "met",
        "missed",
        *["measured"] * 2 * len(others),
        "met",
        "missed",
        "missed",
    ]


def test_seconds_that_miss_a_goal_are_shown_as_on_the_host_of_the_goals(capsys: pytest.CaptureFixture[str]) -> None:
    proofs = {"from nothing": (59.0, 80.0), "nothing changed": (1.5, 3.0), "one rule changed": (15.1, 15.0)}
    searches = {next(iter(EXPLORED)): {"states/s": 34_000.0, "transitions/s": 100_000.0}}
    summary.report({"proofs": proofs, "searches": searches, "slowness": {"proofs": 3.0, "searches": 2.96}})
    head, host, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("goals: 1 of ")
    assert host.endswith(
        "fixed work takes 3.0 to 3.0 times as long as on the host of the goals; with seconds scaled to it, 3 are met"
    )
    states, transitions, *_, nothing, unchanged, changed = [row.rpartition("  ")[2] for row in rows]
    assert states == "missed; scaled 100,640: met"
    assert transitions == "missed; scaled 296,000: missed"
    assert nothing == "missed; scaled 19.7: met"
    assert unchanged == "met"
    assert changed == "missed; scaled 5.03: missed"


def test_a_goal_that_only_a_fast_host_meets_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    proofs = {"from nothing": (19.0, 40.0), "nothing changed": (0.5, 1.0), "one rule changed": (1.0, 2.0)}
    summary.report({"proofs": proofs, "slowness": {"proofs": 0.5}})
    head, host, first, *others = capsys.readouterr().out.splitlines()
    assert head == "goals: 3 of 3 met"
    assert host.endswith("2 are met")
    assert first.endswith("met; scaled 38: missed")
    assert all(row.endswith("  met") for row in others)


def test_nothing_is_printed_of_benchmarks_that_have_no_goal(capsys: pytest.CaptureFixture[str]) -> None:
    summary.report({"host": {}, "specification": {"us": 1.0}})
    assert capsys.readouterr().out == ""


def test_the_goals_of_workers_are_about_two_of_them() -> None:
    rows = {"one process": (20.0, 20.0), "--workers 1": (21.0, 21.0), "--workers 2": (10.0, 22.0)}
    found = summary.goals({"workers": dict.fromkeys(OF_HUNTS, rows)})
    assert [(goal.measured, goal.is_met) for goal in found] == [("2", True), ("1.1", False)] * 2


def test_a_fault_of_a_release_that_is_not_here_is_left_out_and_says_why() -> None:
    answer = sights(FAULTS["F9"]._replace(subject="vllm-v1==0.0.0"), [1])
    assert isinstance(answer, str)
    assert "0.0.0" in answer


def test_the_goals_of_first_sights_are_scaled_to_the_host() -> None:
    found = summary.goals({"first_sight": {"slowness": 3.0, "F1": {"median s": FAULTS["F1"].seconds_before}}})
    assert [goal.is_met for goal in found] == [True, *[None] * (len(FAULTS) - 1)]
    found = summary.goals({"first_sight": {"slowness": 1.0, "F1": {"median s": FAULTS["F1"].seconds_before}}})
    assert [goal.is_met for goal in found] == [False, *[None] * (len(FAULTS) - 1)]
