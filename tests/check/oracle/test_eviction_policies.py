"""The eviction policies that are judged by release: blocks without content first, and look-ups that count as uses."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kvproof.check.oracle.eviction_policy import EvictionOrder
from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.spec.text.eviction_policy import EMPTY_FIRST_LRU, RELEASE_LRU
from kvproof.spec.text.state import EVICTABLE, FREE, USED


def order_of(policy: str, statuses: list[Any]) -> EvictionOrder:
    """The judge of a policy. Each evictable block b is cached under the identity 10 + b, and was released in call b."""
    judge = ManagerJudge(BuiltIn(), Config(block_size=1, num_gpu_blocks=len(statuses), caching=True))
    state, goes_before = judge.state, judge.explainer.machine.function("goes_before")
    order = EvictionOrder(policy, state, len(statuses), goes_before, Counter(), set())
    order.num_calls = 100
    for block, status in enumerate(statuses):
        state.status[block], state.content[block] = status, [10 + block]
        state.cached[block] = status == EVICTABLE
        order.last_used[block] = block
    return order


def take(order: EvictionOrder, block: int) -> None:
    """The call evicts the block and takes it."""
    for _ in order.watched(iter([("evict", (block,))])):
        order.state.status[block], order.state.cached[block] = USED, False
    order.judge("the call")


def test_no_block_is_evicted_while_one_without_content_is_free() -> None:
    with pytest.raises(Finding, match=r"block 0 was evicted .* block 2 without content was free"):
        take(order_of(EMPTY_FIRST_LRU, [EVICTABLE, EVICTABLE, FREE]), 0)


@pytest.mark.parametrize(
    ("released_in", "words"), [(98, "2 calls before"), (99, "1 call before"), (100, "in this call"), (-1, "")]
)
def test_a_finding_says_how_many_calls_ago_a_block_was_released(released_in: int, words: str) -> None:
    order = order_of(EMPTY_FIRST_LRU, [EVICTABLE, FREE])
    order.last_used[0] = released_in
    with pytest.raises(Finding, match=rf"block 0 was evicted \((last|never) released ?{words}, prefix of"):
        take(order, 0)


def test_a_block_that_became_free_in_the_same_call_need_not_be_taken_first() -> None:
    order = order_of(EMPTY_FIRST_LRU, [EVICTABLE, EVICTABLE, FREE])
    order.last_used[2] = order.num_calls
    take(order, 0)


def test_a_reset_takes_no_block() -> None:
    order = order_of(EMPTY_FIRST_LRU, [EVICTABLE, FREE])

    def reset() -> Iterator[tuple[str, tuple[int]]]:
        yield "evict", (0,)
        order.state.status[0] = FREE

    assert [name for name, _ in order.watched(reset())] == ["evict"]
    order.judge("reset")


def test_an_older_block_that_is_found_after_a_newer_one_was_evicted_is_a_finding() -> None:
    order = order_of(RELEASE_LRU, [EVICTABLE, EVICTABLE, EVICTABLE])
    order.looked_up([11])  # block 1 is cached for certain, and dated again
    take(order, 1)  # block 0 may have been evicted too, and not been taken
    with pytest.raises(Finding, match=r"block 1 was evicted .* block 0 was not"):
        order.looked_up([10])


def test_a_block_that_was_never_found_may_be_taken_as_if_it_were_free() -> None:
    order = order_of(RELEASE_LRU, [EVICTABLE, EVICTABLE])
    take(order, 1)
    order.looked_up([10])


def test_a_block_that_was_filled_again_is_not_found_although_it_should_have_been_evicted() -> None:
    order = order_of(RELEASE_LRU, [EVICTABLE, EVICTABLE, EVICTABLE])
    order.looked_up([11])
    take(order, 1)
    list(order.watched(iter([("share", (0, 0))])))  # a prompt got block 0 without a hit
    order.looked_up([10])


def test_of_two_look_ups_the_earlier_one_is_older() -> None:
    order = order_of(RELEASE_LRU, [EVICTABLE, EVICTABLE, EVICTABLE])
    order.looked_up([11])
    order.looked_up([12, 10])  # block 0 has the longer prefix, and was found later
    take(order, 1)
    order.looked_up([10])
