"""What was admitted may be over before its step, and a step may fail: nothing of it was computed then."""

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.lawful.broken import CachesWhatWasAdmitted, CachesWhatWasScheduled
from tests.lawful.caching import (
    AnnouncesAtOnce,
    Caches,
    CachesAtOnce,
    CachesAtRelease,
    DatesBeforeTheStep,
    ExchangesTwins,
)
from tests.lawful.swapping import CachesAndSwaps

from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.oracle.manager.judge import SearchLimits
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config
from kvproof.check.search.manager_operations import ManagerOperations
from kvproof.check.subjects.registry import find
from kvproof.spec.trace import Operation

CACHED = Config(block_size=1, num_gpu_blocks=4, caching=True)
PLAIN_KEY = None, 0, None
OPENED: list[Operation] = [("new", 1, (1,), (0, 0), PLAIN_KEY, ()), ("admit", 1, 2)]


def judge_of(subject: Any, *operations: Operation, config: Config = CACHED) -> ManagerJudge:
    """A judge that has done these operations."""
    judge = ManagerJudge(subject, config)
    for operation in operations:
        assert judge.apply(operation), operation
    return judge


class CertainSteps(Caches):
    """It declares that its steps are certain."""

    capabilities = Capabilities(caching=True, steps_are_certain=True)


class SharesAndCaches(Caches):
    """Its groups may have several sequences when they are admitted."""

    capabilities = replace(Caches.capabilities, waiting_groups=True)


def test_a_step_is_over_when_all_that_it_was_for_is_released() -> None:
    judge = judge_of(Caches(), *OPENED, ("free", 1))
    assert not judge.worker.is_pending
    assert not judge.seqs
    assert not judge.worker.fresh
    assert "run" not in judge.enabled()


def test_the_others_of_the_step_are_computed() -> None:
    judge = judge_of(Caches(), *OPENED, ("new", 2, (2,), (1, 1), PLAIN_KEY, ()), ("admit", 2, 2), ("free", 1))
    assert [seq.id for seq, _, _ in judge.worker.writes] == [2]
    assert judge.apply(("run", 1))
    assert judge.apply(("new", 3, (3,), (1, 1), PLAIN_KEY, ()))
    assert judge.apply(("admit", 3, 2))
    assert judge.seqs[3].hit == 1


def test_what_is_preempted_before_its_step_waits_and_can_be_admitted_again() -> None:
    judge = judge_of(Caches(), *OPENED, ("preempt", 1))
    assert not judge.worker.is_pending
    assert judge.seqs[1].computed == 0
    assert judge.apply(("admit", 1, 2))
    assert judge.seqs[1].hit == 0


def test_all_members_of_a_group_end_with_a_step_that_fails() -> None:
    both: Operation = "new", 1, (1, 2), (0, 0), PLAIN_KEY, ()
    judge = judge_of(SharesAndCaches(), both, ("admit", 1, 2), config=replace(CACHED, group_size=2))
    assert "free" not in judge.enabled()  # the second one counts on what the first one computes
    assert judge.apply(("fail",))
    assert not judge.seqs
    assert not judge.groups
    assert judge.answer == "fails"
    assert judge.coverage["step failed"] == 1


@pytest.mark.parametrize("ending", [("free", 1), ("preempt", 1), ("fail",)])
def test_a_manager_that_caches_what_was_admitted_is_refuted(ending: Operation) -> None:
    judge = judge_of(CachesWhatWasAdmitted(), *OPENED, ending, ("new", 2, (2,), (0, 0), PLAIN_KEY, ()))
    with pytest.raises(Finding) as caught:
        judge.apply(("lookup", 2))
    assert caught.value.property == "hit-computed"


def test_a_manager_that_caches_what_was_scheduled_is_refuted_by_a_step_that_fails() -> None:
    judge = judge_of(CachesWhatWasScheduled(), *OPENED, ("fail",), ("new", 2, (2,), (0, 0), PLAIN_KEY, ()))
    with pytest.raises(Finding) as caught:
        judge.apply(("lookup", 2))
    assert caught.value.property == "hit-computed"


@pytest.mark.parametrize(
    ("subject", "config"),
    [
        (CertainSteps(), CACHED),
        (CachesAtOnce(), CACHED),  # who hits a block in its own step counts on the writer
        (Caches(), Config(block_size=1, num_gpu_blocks=4)),  # without a cache it does not learn of steps
        (find("kvproof")(), CACHED),
    ],
)
def test_steps_of_these_are_certain(subject: Any, config: Config) -> None:
    judge = judge_of(subject, *OPENED, config=config)
    assert not {"free", "preempt", "fail"} & judge.enabled().keys()
    assert not judge.apply(("fail",))
    assert not judge.apply(("free", 1))


def test_a_step_that_moves_blocks_is_certain() -> None:
    moves: list[Operation] = [*OPENED, ("run", 1), ("new", 2, (2,), (1,), PLAIN_KEY, ()), ("admit", 2, 1)]
    judge = judge_of(CachesAndSwaps(), *moves, config=replace(CACHED, num_host_blocks=4))
    assert {"free", "fail"} <= judge.enabled().keys()
    assert judge.apply(("swap_out", 1))
    assert not {"free", "fail"} & judge.enabled().keys()


def test_a_search_can_leave_it_out() -> None:
    judge = judge_of(Caches(), *OPENED)
    judge.limits = SearchLimits(loses_steps=False)
    assert not {"free", "fail"} & judge.enabled().keys()


@pytest.mark.parametrize("block_size", [1, 2])
@pytest.mark.parametrize(
    "manager", [Caches, AnnouncesAtOnce, CachesAtRelease, CachesAndSwaps, DatesBeforeTheStep, ExchangesTwins]
)
def test_a_lawful_manager_whose_steps_are_lost_is_not_refuted(manager: type[Caches], block_size: int) -> None:
    config, coverage = Config(block_size, num_gpu_blocks=6, caching=True), Counter[str]()
    for seed in range(16):
        driver = ManagerOperations(manager(), Random(seed), config)
        driver.judge.limits = driver.judge.limits._replace(loses_steps=True)
        driver.run([], 100)
        coverage.update(driver.judge.coverage)
    assert coverage["released before its step"] > 10
    assert coverage["step failed"] > 2
    assert coverage["hit"] > 20
