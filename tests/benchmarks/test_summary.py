"""The table of goals: a figure that misses its goal says so, and so does a goal without a figure."""

import msgspec
import pytest
from benchmarks.first_sight import GOALS, numbered, sights
from benchmarks.searches import EXPLORED
from benchmarks.workers import OF_HUNTS

from benchmarks import judges, summary


def test_goals_are_met_missed_or_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    first, *others = EXPLORED
    searches = {first: {"states/s": 120_000.0, "transitions/s": 499_999.0}}
    proofs = {"from nothing": (19.0, 40.0), "nothing changed": (2.5, 3.0)}
    found = summary.goals({"host": {}, "proofs": proofs, "searches": searches})
    assert [goal.is_met for goal in found] == [True, False, *[None] * 2 * len(others), True, False]
    summary.report({"proofs": proofs, "searches": searches})
    head, *rows = capsys.readouterr().out.splitlines()
    assert head == f"goals: 2 of {len(found)} met"
    assert [row.split()[-1] for row in rows] == [
        "met",
        "missed",
        *["measured"] * 2 * len(others),
        "met",
        "missed",
    ]


def test_what_python_does_in_a_second_is_shown_as_on_the_host_of_the_goals(capsys: pytest.CaptureFixture[str]) -> None:
    rates = dict(zip(judges.GOALS, (20_100.0, 13_000.0, 43_000.0, None), strict=True))
    summary.report({"judges": rates | {"start s": 4.4, "plugin s": 0.07}, "slowness": {"judges": 3.0}})
    head, host, *rows = capsys.readouterr().out.splitlines()
    assert head == "goals: 1 of 6 met"
    assert host.strip().startswith("fixed work takes 3.0 to 3.0 times as long as on the host of the goals; ")
    assert host.endswith("with seconds scaled to it, 3 are met")
    assert [row.rpartition("  ")[2] for row in rows] == [
        "missed; scaled 60,300: met",
        "missed; scaled 39,000: missed",
        "met",
        "not measured",
        "missed; scaled 1.47: met",
        "missed; scaled 0.0233: missed",
    ]


def test_a_goal_that_only_a_fast_host_meets_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    rates = dict.fromkeys(judges.GOALS, 200_000.0)
    summary.report({"judges": rates | {"start s": 0.3, "plugin s": 0.015}, "slowness": {"judges": 0.5}})
    head, host, *rows = capsys.readouterr().out.splitlines()
    assert head == "goals: 6 of 6 met"
    assert host.endswith("5 are met")
    assert [row.rpartition("  ")[2] for row in rows] == [*["met"] * 5, "met; scaled 0.03: missed"]


def test_what_is_no_python_is_not_scaled() -> None:
    proofs = {"from nothing": (19.0, 40.0), "nothing changed": (2.5, 3.0)}
    searches = {next(iter(EXPLORED)): {"states/s": 120_000.0, "transitions/s": 499_999.0}}
    found = summary.goals({"proofs": proofs, "searches": searches, "slowness": {"proofs": 3.0, "searches": 3.0}})
    assert not any(goal.scaled for goal in found)


def test_nothing_is_printed_of_benchmarks_that_have_no_goal(capsys: pytest.CaptureFixture[str]) -> None:
    summary.report({"host": {}, "specification": {"us": 1.0}})
    assert capsys.readouterr().out == ""


def test_the_goals_of_workers_are_about_two_of_them() -> None:
    rows = {"one process": (20.0, 20.0), "--workers 1": (21.0, 21.0), "--workers 2": (10.0, 22.0)}
    found = summary.goals({"workers": dict.fromkeys(OF_HUNTS, rows)})
    assert [(goal.measured, goal.is_met) for goal in found] == [("2", True), ("1.1", False)] * 2


def test_a_fault_of_a_release_that_is_not_here_is_left_out_and_says_why() -> None:
    answer = sights(msgspec.structs.replace(numbered()["F9"], bad=["0.0.0"]), [1])
    assert isinstance(answer, str)
    assert "0.0.0" in answer


def test_the_goals_of_first_sights_are_scaled_to_the_host() -> None:
    found = summary.goals({"first_sight": {"slowness": 3.0, "F1": {"median s": GOALS["F1"].seconds_before}}})
    assert [goal.is_met for goal in found] == [True, *[None] * 8]
    found = summary.goals({"first_sight": {"slowness": 1.0, "F1": {"median s": GOALS["F1"].seconds_before}}})
    assert [goal.is_met for goal in found] == [False, *[None] * 8]
