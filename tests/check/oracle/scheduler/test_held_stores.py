"""Blocks that a connector holds for its stores: in use from the decision to store until the store is over."""

from collections import Counter

import pytest

from kvproof.check.oracle.firing import SpecRunner
from kvproof.check.oracle.ghost_worker import Worker
from kvproof.check.oracle.scheduler.held_stores import HeldStores
from kvproof.check.oracle.scheduler.host_memory import HostMemory
from kvproof.check.oracle.scheduler.pending import Pending
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.scheduler import HostStore, ScheduledStep
from kvproof.spec.text.identity import Identities
from kvproof.spec.text.state import EVICTABLE, USED

NUM_FLIGHTS = 4
CACHED = 1  # a block that is cached, and that no table names


def holding() -> tuple[HeldStores, HostMemory]:
    """The flights of a device of three blocks, one of which is cached."""
    worker, coverage = Worker(3, 1), Counter[str]()
    runner = SpecRunner(Config(num_gpu_blocks=3, block_size=1, caching=True), Identities(), coverage, NUM_FLIGHTS)
    row = [1]
    program: list[tuple[str, tuple[object, ...]]] = [
        *(("admit", (0, 0)), ("append", (0, CACHED, row, 1)), ("compute", (0, 1)), ("promote", (0, 0))),
        *(("mark_computed", (CACHED,)), ("begin_free", (0,)), ("drop_last", (0,)), ("finish", (0,))),
    ]
    runner.run(iter(program), "a request that is over")
    host = HostMemory(worker, coverage)
    return HeldStores(host, Pending(runner, NUM_FLIGHTS)), host


def test_a_store_holds_its_block_until_it_is_over() -> None:
    held, host = holding()
    state = held.pending.explainer.state
    assert state.status[CACHED] == EVICTABLE
    host.schedule(ScheduledStep(stores=[HostStore(1, [(CACHED, 0)])]))
    held.look([], "schedule()")
    assert (state.status[CACHED], state.pins[CACHED]) == (USED, 1)
    host.copies.clear()
    held.look([], "complete()")
    assert (state.status[CACHED], state.pins[CACHED], len(held.pending.idle)) == (EVICTABLE, 0, NUM_FLIGHTS)


def test_a_store_to_come_holds_its_block_until_a_step_names_it_and_then_the_step_does() -> None:
    held, host = holding()
    state = held.pending.explainer.state
    held.look([[CACHED]], "complete()")
    held.look([[CACHED]], "abort()")
    assert (state.status[CACHED], state.pins[CACHED]) == (USED, 1)
    with pytest.raises(Finding, match="for a store that the step does not name"):
        held.judge_named("schedule()")
    host.schedule(ScheduledStep(stores=[HostStore(1, [(CACHED, 0)])]))
    held.look([], "schedule()")
    held.judge_named("schedule()")
    assert (state.status[CACHED], state.pins[CACHED]) == (USED, 1)


def test_a_store_of_a_block_that_is_not_cached_is_refuted() -> None:
    held, _ = holding()
    with pytest.raises(Finding, match="the block that is copied is cached") as caught:
        held.look([[2]], "complete()")
    assert caught.value.property == "no-use-after-free"


def test_an_adapter_that_names_more_blocks_than_can_be_in_use_is_told_so() -> None:
    held, _ = holding()
    with pytest.raises(AdapterError, match="read more blocks than stores_to_come may name"):
        held.look([[CACHED]] * (NUM_FLIGHTS + 1), "complete()")
    with pytest.raises(AdapterError, match="must be a list of ints"):
        held.look([["1"]], "complete()")  # type: ignore[list-item]
