"""vLLM's SimpleCPUOffloadConnector: what a store takes, what a load reads, and a block that a store evicts itself."""

from typing import Any

import pytest

from kvproof.check.oracle.store.judge import StoreJudge
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.store import StoreConfig
from kvproof.check.subjects.loading import download
from kvproof.check.subjects.registry import find

pytestmark = pytest.mark.engine
RELEASE = "0.33.0"
STORED = (("begin_store", 1, 1, (0, 1)), ("land", 1), ("report", 1))
LOADING = ("begin_load", 2, 2, (0, 1))


def judged(num_slots: int, *operations: tuple[Any, ...], lazy_stores: bool = False) -> StoreJudge:
    """The judge after a run with so many slots. Raises Finding."""
    download.add(f"vllm=={RELEASE}")
    subject: Any = find(f"vllm-simple-offload=={RELEASE}")()
    judge = StoreJudge(subject, StoreConfig(num_gpu_blocks=num_slots, lazy_stores=lazy_stores))
    for operation in operations:
        assert judge.apply(operation), operation
    return judge


def test_a_store_holds_its_slots_and_then_nobody_does_until_a_load() -> None:
    judge = judged(3, STORED[0])
    assert (judge.observed.refs, judge.observed.free) == ({0: -1, 1: -1}, 1)
    assert all(judge.apply(operation) for operation in (*STORED[1:], LOADING))
    assert judge.observed.refs == {0: 1, 1: 1}
    assert all(judge.apply(operation) for operation in (("land", 2), ("report", 2)))
    assert (judge.observed.refs, judge.observed.free) == ({0: 0, 1: 0}, 1)


@pytest.mark.parametrize("lazy_stores", [False, True])
def test_a_reset_beside_a_load_and_a_store_leaves_every_slot_free(lazy_stores: bool) -> None:
    judge = judged(4, *STORED, LOADING, ("begin_store", 3, 1, (7,)), ("clear",), lazy_stores=lazy_stores)
    assert (judge.observed.entries, judge.observed.free) == ({}, 4)
    assert judge.apply(("begin_store", 4, 1, (8,)))
    assert judge.observed.entries.keys() == {8}, "what was stored before is not stored once more"


@pytest.mark.parametrize("lazy_stores", [False, True])
def test_a_store_evicts_a_key_that_it_skipped_because_it_is_there(lazy_stores: bool) -> None:
    with pytest.raises(Finding, match="which this very call names") as caught:
        judged(2, *STORED, ("begin_store", 3, 1, (0, 2)), lazy_stores=lazy_stores)
    assert caught.value.property == "evict-unreferenced"


def test_the_lazy_mode_stores_what_a_request_that_is_over_left_on_the_device() -> None:
    judge = judged(3, STORED[0], lazy_stores=True)
    manager: Any = judge.subject
    assert manager._manager._reqs_to_store == {}, "no request is registered, as it is for an eager store"
    assert (judge.observed.refs, judge.observed.free) == ({0: -1, 1: -1}, 1)
    assert all(judge.apply(operation) for operation in (*STORED[1:], LOADING, ("begin_store", 3, 1, (1, 2))))
    assert judge.observed.refs == {0: 1, 1: 1, 2: -1}
    assert all(judge.apply(operation) for operation in (("land", 2), ("report", 2), ("land", 3), ("report", 3)))
    assert judge.observed.refs == {0: 0, 1: 0, 2: 0}
    assert judge.apply(("clear",))
    assert (judge.observed.entries, judge.observed.free) == ({}, 3)


def test_the_cursor_of_the_lazy_mode_comes_to_every_new_block() -> None:
    judge = judged(4, lazy_stores=True)
    for number in range(1, 40):  # the block at the cursor comes back to the end of the queue, with and without a hash
        assert judge.apply(("begin_store", number, 1, (number * 3 % 7,)))
        assert judge.answer.startswith("writes"), number
        assert all(judge.apply(operation) for operation in (("land", number), ("report", number)))
