"""LMCache's L1 manager: its lock with the clock of the judge, and what a run shows of the released managers."""

from typing import Any

import pytest

from kvproof.check.oracle.store.judge import StoreJudge
from kvproof.check.protocol.store import StoreConfig
from kvproof.check.subjects.lmcache import Clock, LeaseLock
from kvproof.check.subjects.loading import download
from kvproof.check.subjects.registry import find

RELEASE = "0.5.6"
LEASE = StoreConfig(num_gpu_blocks=2, lease_seconds=5)
WRITTEN = (("begin_store", 1, 1, (0,)), ("land", 1), ("report", 1))


def test_a_lock_counts_until_its_time_is_over_and_each_lock_sets_the_time_again() -> None:
    clock = Clock()
    lock = LeaseLock(clock, 5)
    seen = []
    for seconds, call in ((0, lock.lock), (4, lock.lock), (4, lock.unlock), (1, lock.lock), (0, lock.unlock)):
        clock.now += seconds
        call()
        seen.append((lock.is_locked(), lock.count))
    assert seen == [(True, 1), (True, 2), (True, 1), (True, 1), (False, 0)]
    lock.unlock()
    assert lock.count == 0


def judged(*operations: tuple[Any, ...]) -> Any:
    """The judge of a run. Raises Finding."""
    download.add(f"lmcache=={RELEASE}")
    subject: Any = find(f"lmcache-l1=={RELEASE}")()
    judge = StoreJudge(subject, LEASE)
    assert [judge.apply(operation) for operation in operations] == [True] * len(operations)
    return judge


@pytest.mark.engine
def test_a_manager_gives_and_evicts_what_nobody_holds() -> None:
    judge = judged(*WRITTEN, ("begin_load", 2, 1, (0, 7)), ("evict", (0,)), ("land", 2), ("report", 2))
    assert (judge.memory, judge.observed.entries) == ({0: 0}, {0: 0})
    assert judge.apply(("evict", (0,)))
    assert (judge.answer, judge.observed.free) == ("evicted key 0", 2)


@pytest.mark.engine
def test_a_reservation_whose_time_is_over_is_no_hit() -> None:
    run = (("begin_store", 1, 1, (0,)), ("wait", 5), ("look_up", 1, (0,)))
    assert judged(*run).answer == "key 0 miss"
