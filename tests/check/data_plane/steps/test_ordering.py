"""Races are found on paper, and only where there are some."""

from __future__ import annotations

import pytest

from kvproof.check.data_plane.steps.ordering import HOST, LOGS, Cell, EventLog, LogCase, judge_races

A: Cell = ("the GPU pool", 1)
B: Cell = ("the CPU pool", 2)


@pytest.mark.parametrize("case", LOGS, ids=lambda case: case.name)
def test_every_log_is_judged_rightly(case: LogCase) -> None:
    log = EventLog()
    case.write(log)
    assert bool(log.races()) == case.has_race
    assert bool(log.replay(100, seed=1)) == case.has_race


def test_the_catalogue_is_understood_whole() -> None:
    results = judge_races(seed=0)
    assert len(results) == 14
    assert sum(result.has_race for result in results) == 9
    assert all(result.is_understood for result in results)


def test_a_race_names_both_accesses_and_the_cell() -> None:
    log = EventLog()
    log.work("main", "the model", [], [A])
    log.copy("store", "the store", A, B)
    assert [str(race) for race in log.races()] == [
        "nothing orders the model and the store, and one of them writes block 1 of the GPU pool"
    ]


def test_an_event_orders_only_what_it_was_recorded_after() -> None:
    log = EventLog()
    log.record("main", "too early")
    log.work("main", "the model", [], [A])
    log.wait("store", "too early")
    log.copy("store", "the store", A, B)
    assert len(log.races()) == 1


def test_an_event_of_one_stream_says_nothing_of_another() -> None:
    log = EventLog()
    log.work("main", "the model", [], [A])
    log.record("idle", "nothing")
    log.wait("store", "nothing")
    log.copy("store", "the store", A, B)
    assert len(log.races()) == 1


def test_order_goes_through_a_third_stream() -> None:
    log = EventLog()
    log.work("first", "write", [], [A])
    log.record("first", "1")
    log.wait("second", "1")
    log.record("second", "2")
    log.wait("third", "2")
    log.work("third", "read", [A], [])
    assert log.races() == []


def test_work_is_after_what_the_host_did_before_and_not_after_what_it_does_later() -> None:
    log = EventLog()
    log.work(HOST, "fill", [], [A])
    log.work("main", "read", [A], [])
    assert log.races() == []
    log.work(HOST, "fill again", [], [A])
    assert [(race.first, race.second) for race in log.races()] == [("read", "fill again")]


def test_two_reads_do_not_race() -> None:
    log = EventLog()
    log.work("first", "read", [A], [])
    log.work("second", "read", [A], [])
    assert log.races() == []
