"""The Hypothesis machine drives the other levels too: faults are found and shrunk, and right subjects pass."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from tests.check.oracle import test_pool as pools
from tests.lawful.pushing_pair import WritesBackwards

from kvproof.check.oracle.replay import finding_of
from kvproof.check.search import hypothesis_machine
from kvproof.check.search.hypothesis_machine import drive
from kvproof.check.search.result import SearchResult
from kvproof.check.subjects.builtin.pool import OwnPool
from kvproof.check.subjects.builtin.scheduler import BuiltInScheduler
from kvproof.check.subjects.registry import find

OURS = {  # with some of the situations that a short drive reaches
    "kvproof-pool": {"evict", "hit", "refused"},
    "kvproof-store": {"commit", "end_load", "abort"},
    "kvproof-scheduler": {"finished", "preempted", "copy-on-write"},
    "kvproof-pair": {"offered", "keep", "rest"},
}
EXAMPLE = "examples/forty_line_store_broken.py:Store"
Plant = Callable[[str, str, str, str], AbstractContextManager[None]]


def driven(make: Callable[[], Any], *seeds: int) -> SearchResult:
    """The first of these rounds that refutes, or the last one."""
    for seed in seeds:
        found = drive(make(), seed, examples=50, steps=50)
        if found.counterexample is not None:
            break
    return found


@pytest.mark.parametrize("name", OURS)
def test_our_own_subjects_of_every_level_are_not_refuted_and_a_seed_repeats(name: str) -> None:
    first, again = (drive(find(name)(), 5, examples=20, steps=40) for _ in range(2))
    assert first.finding is None
    assert (first.num_operations, first.num_runs, first.coverage) == (
        again.num_operations,
        again.num_runs,
        again.coverage,
    )
    assert OURS[name] <= (+first.coverage).keys()


@pytest.mark.parametrize("faulty", [pools.ForgetsAReference, pools.FindsByLastPage, pools.TakesBackTwice])
def test_the_faults_of_a_pool_are_found_and_shrunk(faulty: type[OwnPool]) -> None:
    one = driven(faulty, 0, 1, 2).counterexample
    assert one is not None
    assert one.finding.property in dict(pools.FAULTS)[faulty]
    assert len(one.operations) <= 6
    again = finding_of(faulty(), one.config, one.operations)
    assert again is not None
    assert again.kind == one.finding.kind


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding is hardly shrunk."""
    monkeypatch.setattr(hypothesis_machine, "SHRINK_STEPS_MAX", 500)


@pytest.mark.usefixtures("short")
def test_the_fault_of_the_broken_store_is_found() -> None:
    one = driven(find(EXAMPLE), 0, 1, 2, 3).counterexample
    assert one is not None
    assert one.finding.property == "evict-unreferenced"


@pytest.mark.usefixtures("short")
def test_the_fault_of_a_pair_that_writes_blocks_in_another_order_is_found() -> None:
    one = drive(WritesBackwards(), 0, examples=40, steps=120).counterexample
    assert one is not None
    assert one.finding.property == "arrived-whole"


@pytest.mark.usefixtures("short")
def test_a_request_that_never_ends_is_found_since_a_run_stops_the_arrivals(plant: Plant) -> None:
    with plant("kvproof.impl.scheduler_queues", "SchedulerQueues._end", "self._free(group)", "pass"):
        one = driven(BuiltInScheduler, 0, 1, 2).counterexample
    assert one is not None
    assert one.finding.property == "no-leak-at-rest"
