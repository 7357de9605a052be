"""The least recently used block is evicted first: the contract, run, and the evictor of kvproof."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from kvproof.impl.evictor import LRUEvictor
from kvproof.spec.contract_texts import CONTRACTS
from kvproof.spec.native import Machine
from kvproof.spec.sizes import Sizes
from kvproof.spec.text.operations import lowest_free
from kvproof.spec.text.state import FREE, GPU, State

NUM_BLOCKS = 5
MACHINE = Machine(Sizes(NUM_BLOCKS, 0, 1, 1, 1))
(CONTRACT,) = [contract for contract in CONTRACTS if contract.property == "eviction-order"]


def evictable() -> State:
    """A state in which every block is evictable."""
    state = MACHINE.first_state()
    for token in range(NUM_BLOCKS):
        block = lowest_free(state, range(NUM_BLOCKS))
        for rule, arguments in [
            ("admit", (0, 0)),
            ("append", (0, block, [token], 1)),
            ("compute", (0, 1)),
            ("promote", (0, 0)),
            ("mark_computed", (block,)),
            ("begin_free", (0,)),
            ("drop_last", (0,)),
            ("finish", (0,)),
        ]:
            assert MACHINE.rules[rule](state, *arguments) is None
    assert state.count[GPU][FREE] == 0
    return state


def evicted(last_used: list[int], prefix: list[int], num_wanted: int, first: Callable[[list[int]], int]) -> bool:
    """Evict the blocks that `first` selects; whether the contract held at each step and at the end."""
    start, left = evictable(), list(range(NUM_BLOCKS))
    state, given = (
        MACHINE.copy(start),
        {"pool": GPU, "num_wanted": num_wanted, "last_used": last_used, "prefix": prefix},
    )

    def of(name: str, **chosen: int) -> Any:
        return MACHINE.value(name, {"start": start, "state": state, **given, **chosen})

    assert of(CONTRACT.precondition)
    while of(CONTRACT.variant) > 0:
        block = first(left)
        assert CONTRACT.choice is not None
        if not of(CONTRACT.choice, block=block):
            return False
        assert MACHINE.rules["evict"](state, block) is None
        left.remove(block)
        assert of(CONTRACT.loop_invariant)
    return bool(of(CONTRACT.name))


@pytest.mark.parametrize("seed", range(5))
def test_taking_the_minimum_obeys_the_policy(seed: int) -> None:
    source = random.Random(seed)
    last_used, prefix = ([source.randrange(3) for _ in range(NUM_BLOCKS)] for _ in range(2))
    for num_wanted in range(NUM_BLOCKS + 1):
        assert evicted(last_used, prefix, num_wanted, lambda left: min(left, key=lambda b: (last_used[b], -prefix[b])))


def test_taking_the_lowest_block_does_not() -> None:
    assert not evicted([2, 1, 1, 1, 1], [1] * NUM_BLOCKS, 1, min)


def test_among_equals_taking_the_shortest_prefix_does_not() -> None:
    assert not evicted([1] * NUM_BLOCKS, [1, 2, 3, 4, 5], 1, min)
    assert evicted([1] * NUM_BLOCKS, [1, 2, 3, 4, 5], 1, max)


@pytest.mark.parametrize("seed", range(3))
def test_the_evictor_gives_up_none_before_another_that_should_have_gone(seed: int) -> None:
    source, evictor, goes_before = random.Random(seed), LRUEvictor(), MACHINE.function("goes_before")
    last_used, prefix = [0] * 20, [0] * 20
    given_up = 0
    for _ in range(500):
        block = source.randrange(20)
        if block not in evictor:
            last_used[block], prefix[block] = source.randrange(5), source.randrange(5)
            evictor.add(block, block, prefix[block], last_used[block])
        elif source.randrange(2):
            last_used[block] += source.randrange(3)
            evictor.update(block, last_used[block])
        if source.randrange(3) == 0 and evictor.num_blocks:
            victim, _ = evictor.evict()
            given_up += 1
            assert not any(goes_before(last_used, prefix, other, victim) for other in range(20) if other in evictor)
    assert given_up > 100
