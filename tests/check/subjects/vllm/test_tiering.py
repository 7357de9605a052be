"""vLLM's tiered offloading manager: what promotions and cascades do in the host."""

from typing import Any

import pytest

from kvproof.check.oracle.store.judge import StoreJudge
from kvproof.check.protocol.store import StoreConfig
from kvproof.check.subjects.loading import download
from kvproof.check.subjects.registry import find

pytestmark = pytest.mark.engine
RELEASE = "0.33.0"
STORED = (("begin_store", 1, 1, (0,)), ("land", 1), ("report", 1))
PROMOTED = (("begin_store", 2, 1, (1, 2)), ("land", 2), ("report", 2))


def judged(*operations: tuple[Any, ...]) -> Any:
    """The subject and the judge of a run with two slots. Raises Finding."""
    download.add(f"vllm=={RELEASE}")
    subject: Any = find(f"vllm-tiering=={RELEASE}")()
    judge = StoreJudge(subject, StoreConfig(num_gpu_blocks=2))
    assert all(judge.apply(operation) for operation in operations)
    return subject, judge


def test_a_promotion_is_a_job_of_the_second_tier_that_takes_chunks_of_the_host() -> None:
    subject, judge = judged(PROMOTED[0])
    assert [list(job.chunk_ids) for job in subject._tier.loads] == [[0, 1]]
    assert (judge.observed.refs, judge.observed.free) == ({1: -1, 2: -1}, 0)
    assert all(judge.apply(operation) for operation in PROMOTED[1:])
    assert (judge.observed.refs, subject._tier.loads) == ({1: 0, 2: 0}, [])


def test_a_promotion_that_fails_leaves_nothing() -> None:
    _, judge = judged(PROMOTED[0], ("land", 2, (1,)), PROMOTED[2])
    assert (judge.observed.entries, judge.observed.free) == ({}, 2)


def test_what_came_from_the_device_is_copied_to_the_second_tier_and_then_held_by_nobody() -> None:
    subject, judge = judged(*STORED)
    assert judge.observed.refs == {0: 0}
    assert (subject._manager._job_id_counter, subject._manager.has_pending_work()) == (1, False)


def test_a_reset_gives_up_the_promotions_under_way() -> None:
    subject, judge = judged(PROMOTED[0], ("clear",))
    assert (subject._tier.loads, judge.observed.free) == ([], 2)
    assert judge.apply(PROMOTED[0])
    assert judge.answer == "writes keys 1, 2 to slots 0, 1"
