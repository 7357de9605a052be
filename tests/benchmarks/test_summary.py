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
