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
from kvproof.spec.text.eviction_policy import BLOCK_LRU, EMPTY_FIRST_LRU, RELEASE_LRU, SEQUENCE_LRU
from kvproof.spec.text.state import EVICTABLE, FREE, USED


def order_of(policy: str, statuses: list[Any]) -> EvictionOrder:
    """The judge of a policy. Each evictable block b is cached under the identity 10 + b, and was released in call b."""
    judge = ManagerJudge(BuiltIn(), Config(block_size=1, num_gpu_blocks=len(statuses), caching=True))
    state, goes_before = judge.state, judge.explainer.machine.function("goes_before")
    order = EvictionOrder(policy, state, len(statuses), goes_before, Counter(), set())
    order.num_calls, order.times = 100, list(range(100))
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


def take_all(order: EvictionOrder, *blocks: int) -> None:
    """One call evicts these blocks and takes them, in this order."""
    for _, (block,) in order.watched(iter([("evict", (block,)) for block in blocks])):
        order.state.status[block], order.state.cached[block] = USED, False
    order.judge("the call")


def with_twins(policy: str, *twins: int) -> EvictionOrder:
    """The judge of four evictable blocks, the last ones of which were used last; these have the content of block 0."""
    order = order_of(policy, [EVICTABLE] * 4)
    for block in twins:
        order.state.content[block] = order.state.content[0]
    return order


POLICIES = (BLOCK_LRU, SEQUENCE_LRU, EMPTY_FIRST_LRU)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_call_may_evict_a_block_and_then_take_its_free_twin(policy: str) -> None:
    take_all(with_twins(policy, 3), 0, 3)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_twin_stays_free_after_the_other_block_was_evicted(policy: str) -> None:
    order = with_twins(policy, 3)
    take_all(order, 0)
    take_all(order, 3)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_twin_that_was_in_use_when_the_other_block_was_evicted_may_be_free_when_it_is_released(policy: str) -> None:
    order = with_twins(policy, 3)
    order.state.status[3] = USED
    take_all(order, 0)
    order.state.status[3] = EVICTABLE
    take_all(order, 3)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_call_that_evicts_a_newer_block_after_the_oldest_is_found(policy: str) -> None:
    with pytest.raises(Finding, match=r"block 3 was evicted .* and block 1 was not"):
        take_all(with_twins(policy), 0, 3)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_block_that_had_a_twin_is_judged_again_when_it_was_hit(policy: str) -> None:
    order = with_twins(policy, 3)
    take_all(order, 0)
    list(order.watched(iter([("hit", (0, 3))])))
    with pytest.raises(Finding, match=r"block 3 was evicted .* and block 1 was not"):
        take_all(order, 3)


def test_of_two_steps_at_one_time_the_earlier_one_goes_first_if_its_prefix_is_longer() -> None:
    order = order_of(BLOCK_LRU, [EVICTABLE, EVICTABLE])
    order.times, order.last_used, order.prefix = [7, 7], [0, 1], [2, 1]
    with pytest.raises(Finding, match=r"block 1 was evicted \(last used at 7, .* and block 0 was not \(last used at 7"):
        take_all(order, 1)


def test_of_two_steps_at_one_time_either_may_go_first_if_the_later_one_has_the_longer_prefix() -> None:
    for victim in (0, 1):
        order = order_of(BLOCK_LRU, [EVICTABLE, EVICTABLE])
        order.times, order.last_used, order.prefix = [7, 7], [0, 1], [1, 2]
        take_all(order, victim)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_manager_that_finds_whatever_is_cached_knows_the_twin_that_is_left(policy: str) -> None:
    order = with_twins(policy, 3)
    order.finds_all = True
    take_all(order, 0)
    with pytest.raises(Finding, match=r"block 3 was evicted .* and block 1 was not"):
        take_all(order, 3)

    order = with_twins(policy, 3)
    order.finds_all = True
    take_all(order, 0, 3)


@pytest.mark.parametrize(("moved", "is_refuted"), [(12, False), (99, True)])
def test_a_block_whose_content_a_swap_of_the_call_has_moved_to_another_one_may_go_first(
    moved: int, is_refuted: bool
) -> None:
    order = order_of(BLOCK_LRU, [EVICTABLE, EVICTABLE, EVICTABLE, USED])
    state, order.last_used = order.state, [0, 1, 2, 3]
    state.table[0][0], state.num_blocks[0], state.content[3], state.moving[0] = 3, 1, [moved], 0

    def swap() -> Iterator[tuple[str, tuple[int, ...]]]:
        for name, arguments in (("evict", (0,)), ("move_entry", (0, 0)), ("evict", (2,))):
            yield name, arguments
            if name == "evict":
                state.status[arguments[0]], state.cached[arguments[0]] = USED, False

    list(order.watched(swap()))
    if is_refuted:
        with pytest.raises(Finding, match=r"block 2 was evicted .* and block 1 was not"):
            order.judge("the call")
    else:
        order.judge("the call")
