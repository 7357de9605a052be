"""Managers that choose otherwise where the specification leaves a choice open: none of them may be refuted.

The table has the small managers of this folder, and changes of kvproof's own. By default each does a thousand
operations. The long test does 200,000 of each:

    pytest -m long tests/lawful            # KVPROOF_LAWFUL=N for another number of operations
"""

import os
from collections.abc import Callable
from typing import Any

import pytest
from tests.lawful import caching, events, loads, plain, swapping
from tests.lawful.broken import BROKEN

from kvproof.audit.faults.catalogue import IMPL
from kvproof.audit.faults.edits import Edit, Fault
from kvproof.audit.faults.planting import planted
from kvproof.check.isolation.remote_search import walk as walk_elsewhere
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.search.exhaustive.manager import SHORT_SCOPES
from kvproof.check.search.exhaustive.subject import explore
from kvproof.check.search.random_walk import walk
from kvproof.check.search.result import SearchResult
from kvproof.check.search.strategies import MANAGERS, strategy_of

SHORT, LONG = 1_000, int(os.environ.get("KVPROOF_LAWFUL", "200000"))
SEED = 1

SMALL = [
    plain.Plain,
    plain.FirstFreed,
    plain.Lowest,
    plain.Middle,
    plain.SortsWhenAsked,
    plain.TurnsWhenAsked,
    plain.ShowsLittle,
    plain.CopiesFullBlocks,
    plain.CopiesFirstBlock,
    plain.CopiesWhatWasShared,
    plain.OneBlockAhead,
    plain.NextBlockWhenFull,
    plain.KeepsReserve,
    plain.KeepsReserveAndSaysSo,
    plain.KeepsReserveWithoutQuestion,
    plain.TurnsWhenRefusing,
    plain.CountsEveryWrite,
    plain.SharesAtAdmission,
    plain.InChunks,
    plain.LooksAhead,
    plain.LooksAheadLate,
    plain.HoldsBack,
    plain.Windowed,
    plain.LeavesWindowLate,
    swapping.Swaps,
    swapping.SwapsInReverse,
    swapping.SwapsFromHashMap,
    swapping.SwapsToLowestHostBlock,
    swapping.SwapsInLate,
    swapping.CachesAndSwaps,
    caching.Caches,
    caching.EvictsNewest,
    caching.EvictsLowest,
    caching.EvictsFirstCached,
    caching.DeclaresLru,
    caching.EvictsBeforeTakingFree,
    caching.LastTwinIsKnown,
    caching.CachesAtOnce,
    caching.ExchangesTwins,
    loads.Loads,
    caching.CachesPromptsOnly,
    caching.CachesFirstBlocks,
    caching.CachesAtRelease,
    caching.AnnouncesAtOnce,
    caching.DatesBeforeTheStep,
    caching.FindsOneBlock,
    caching.FindsAllButOne,
    caching.KeepsOneFree,
    caching.ResetsWhenIdle,
    caching.CopiesCachedBlocks,
    caching.HitsWithinBlocks,
    *events.LAWFUL,
]
# Changes of kvproof's own: what else they might do, the file and the function, the old text and the new one.
CHANGES = [
    Fault(sentence.replace(" ", "-"), (Edit(function, old, new, IMPL + file),), subject, "lawful", sentence=sentence)
    for sentence, subject, file, function, old, new in (
        (
            "freed ids are taken last",
            "kvproof",
            "device_blocks.py",
            "DeviceBlocks.release",
            "                free_ids.appendleft(block_id)",
            "                free_ids.append(block_id)",
        ),
        (
            "the last twin takes over",
            "kvproof",
            "cached_blocks.py",
            "CachedBlocks.forget",
            "content.block_id, *content.twins = content.twins\n",
            "*content.twins, content.block_id = content.twins\n",
        ),
        (
            "the ids of one take in reverse",
            "kvproof",
            "cached_blocks.py",
            "CachedBlocks.take",
            "taken = [popleft() for _ in range(num_blocks)]",
            "taken = [popleft() for _ in range(num_blocks)][::-1]",
        ),
        (
            "only every second block is exchanged for a cached one",
            "kvproof",
            "growth.py",
            "Growth._filled",
            "twin != NO_BLOCK\n                and cache",
            "twin != NO_BLOCK\n                and index % 2\n                and cache",
        ),
        (
            "evicted ids are taken before those that were free already",
            "kvproof",
            "cached_blocks.py",
            "CachedBlocks._evict",
            "self.free_ids.append(block_id)",
            "self.free_ids.appendleft(block_id)",
        ),
        (
            "the pairs of a swap-in in reverse",
            "kvproof-scheduler",
            "scheduler.py",
            "Scheduler._swap_in",
            "outputs.blocks_to_swap_in += manager.swap_in(group)",
            "outputs.blocks_to_swap_in += reversed(manager.swap_in(group))",
        ),
        (
            "the pairs of a swap-out in reverse",
            "kvproof-scheduler",
            "scheduler.py",
            "Scheduler._preempt",
            "outputs.blocks_to_swap_out += manager.swap_out(group)",
            "outputs.blocks_to_swap_out += reversed(manager.swap_out(group))",
        ),
    )
]
EXPECTED = {"admitted", "pool full"}
EXPECTED_BY_NAME = {
    "CopiesFullBlocks": {"copy of a full block"},
    "CopiesCachedBlocks": {"copy of a full block"},
    "HitsWithinBlocks": {"hit within a block"},
    "LooksAhead": {"reserve"},
    "LooksAheadLate": {"reserve"},
    "Windowed": {"slide"},
    "ExchangesTwins": {"exchange after a step"},
    "Loads": {"loaded from elsewhere", "hit"},
}


def judged(name: str, done: SearchResult) -> None:
    """Nothing is refuted, and what was to be shown was reached."""
    assert done.finding is None, (done.finding.text, done.counterexample and done.counterexample.operations)
    assert {one for one in EXPECTED | EXPECTED_BY_NAME.get(name, set()) if not done.coverage[one]} == set()


def walked(subject: Any, num_operations: int) -> SearchResult:
    return walk(strategy_of(subject), subject, SEED, max_operations=num_operations, seconds=1e6)


@pytest.mark.parametrize("manager", SMALL, ids=lambda manager: manager.__name__)
def test_a_lawful_manager_is_not_refuted(manager: Callable[[], Any]) -> None:
    judged(manager.__name__, walked(manager(), SHORT))


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("manager", SMALL, ids=lambda manager: manager.__name__)
def test_a_lawful_manager_is_not_refuted_by_a_long_walk(manager: Callable[[], Any]) -> None:
    judged(manager.__name__, walked(manager(), LONG))


@pytest.mark.long
@pytest.mark.parametrize("scope", SHORT_SCOPES)
@pytest.mark.parametrize("manager", SMALL, ids=lambda manager: manager.__name__)
def test_a_lawful_manager_is_not_refuted_in_a_small_scope(manager: Callable[[], Any], scope: str) -> None:
    try:
        done = explore(MANAGERS, manager(), SHORT_SCOPES[scope], seconds=10.0)
    except Unsupported:
        return
    assert done.finding is None, done.finding.text
    assert done.num_states > 100


def changed(change: Fault, num_operations: int) -> SearchResult:
    """The walk of a subject of kvproof's with the change, in a process of its own."""
    with planted(change) as make:
        subject = make()
        return walk_elsewhere(strategy_of(subject), subject, SEED, max_operations=num_operations, seconds=1e6)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.id)
def test_a_lawful_change_of_a_manager_is_not_refuted(change: Fault) -> None:
    judged("", changed(change, SHORT))


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.id)
def test_a_lawful_change_of_a_manager_is_not_refuted_by_a_long_walk(change: Fault) -> None:
    judged("", changed(change, LONG))


@pytest.mark.parametrize("manager", BROKEN, ids=lambda manager: manager.__name__)
def test_a_broken_neighbour_of_a_lawful_manager_is_refuted(manager: type[plain.Plain]) -> None:
    finding = walked(manager(), 20_000).finding
    assert finding is not None
    assert finding.property in BROKEN[manager]


def test_a_swap_that_leaves_shared_blocks_is_not_judged() -> None:
    with pytest.raises(AdapterError, match=r"left block \d+, which other sequences hold too, on the GPU; a swap moves"):
        walked(swapping.LeavesSharedBlocks(), 20_000)
