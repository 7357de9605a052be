"""Faults of one line each, planted in the built-in manager: every one is found, named, made short and replayed.

The kinds are those of released managers. For each the walker finds it, the shortest run has at most eight operations
(or as many as the fault needs), and the saved file says FAILED while the fault is there and FIXED when it is not.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kvproof.check.counterexample.replay import ReplayStatus
from kvproof.check.counterexample.store import make_trace, save
from kvproof.check.oracle.repetition import confirm
from kvproof.check.runs.replay import replay
from kvproof.check.search.random_walk import walk
from kvproof.check.search.shrinking import shortest
from kvproof.check.search.strategies import MANAGERS
from kvproof.check.subjects.registry import find

FIND_SECONDS_MAX = 20.0
SHORTEN_SECONDS_MAX = 40.0  # ends at the length wanted
NUM_OPERATIONS_MAX = 8

make = find("kvproof")

MANAGER = "kvproof.impl.block_manager", "SelfAttnBlockSpaceManager."
STATE = "kvproof.impl.manager_state", "ManagerState."
GROWTH = "kvproof.impl.growth", "Growth."
BLOCKS = "kvproof.impl.device_blocks", "DeviceBlocks."
CACHE = "kvproof.impl.cached_blocks", "CachedBlocks."
TABLE = "kvproof.impl.table", ""
SWAP = "kvproof.impl.swapping", ""
ADMISSION = "kvproof.impl.admission", ""
SUBJECT = "kvproof.check.subjects.builtin.manager", ""


class Fault(NamedTuple):
    """What is wrong, where, which line becomes which, and the properties that name it rightly."""

    name: str
    where: tuple[str, str]
    function: str
    line: str
    replacement: str
    properties: set[str]
    config: dict[str, Any] | None = None  # what the walk keeps to, where the fault is rare in any configuration
    num_operations: int = NUM_OPERATIONS_MAX
    seed: int = 0  # of the walk: one that finds the fault soon


CACHED: dict[str, Any] = {"caching": True, "num_host_blocks": 0, "lookahead": 0, "watermark": 0.0, "group_size": 1}

FAULTS = [
    # References
    Fault(
        "fork takes no reference",
        MANAGER,
        "_fork_table",
        "blocks.share(table.held_ids())",
        "pass",
        {"refcount-exact"},
        seed=0,
    ),
    Fault(
        "fork skips the last block",
        MANAGER,
        "_fork_table",
        "table.held_ids()",
        "table.held_ids()[:-1]",
        {"refcount-exact"},
    ),
    Fault(
        "free keeps the last reference",
        MANAGER,
        "_give_up",
        "release(table.held_ids())",
        "release(table.held_ids()[:-1])",
        {"refcount-exact", "no-leak-at-rest"},
    ),
    Fault(
        "free releases every block twice",
        MANAGER,
        "_give_up",
        "release(table.held_ids())",
        "release(table.held_ids() * 2)",
        {"refcount-exact", "no-double-free", "lists-agree"},
    ),
    Fault(
        "a block is free while one reference is left",
        BLOCKS,
        "release",
        "if not left:",
        "if left < 2:",
        {"no-use-after-free", "lists-agree"},
    ),
    Fault(
        "exchange without release",
        GROWTH,
        "append",
        "elif index in twins:\n                given_up.append(ids[index])",
        "elif index in twins:\n                pass",
        {"refcount-exact"},
        seed=3,
    ),
    Fault(
        "the cross-attention table is not given back",
        MANAGER,
        "free_cross",
        "if table is not None:",
        "if False:",
        {"refcount-exact", "no-leak-at-rest"},
        seed=2,
    ),
    # Copy-on-write
    Fault(
        "no copy-on-write",
        GROWTH,
        "append",
        "copied = [index for index in shared if index not in twins]",
        "copied = []",
        {"cow-copied"},
        seed=1,
    ),
    Fault(
        "no copy is emitted",
        GROWTH,
        "append",
        "pairs.append((given_up[-1], ids[index]))",
        "pass",
        {"cow-copied"},
        seed=13,
    ),
    Fault(
        "the copy goes the other way",
        GROWTH,
        "append",
        "pairs.append((given_up[-1], ids[index]))",
        "pairs.append((ids[index], given_up[-1]))",
        {"cow-copied"},
        seed=1,
    ),
    Fault(
        "the parent of a fork writes on", TABLE, "Table.fork", "self.writable_slots = 0", "pass", {"cow-copied"}, seed=1
    ),
    Fault(
        "lookahead slots in a shared block",
        GROWTH,
        "append",
        "range(first, min(stop, len(ids)))",
        "range(first, min(-(-known // size), len(ids)))",
        {"exclusive-writer", "read-back", "cow-copied"},
        num_operations=14,  # junk beside junk does no harm: a token has to follow
    ),
    # Swap
    Fault(
        "swap-out pairs with absolute ids",
        MANAGER,
        "swap_out",
        "(source, target - base)",
        "(source, target)",
        {"swap-mapping"},
    ),
    Fault(
        "swap-in pairs with absolute ids",
        MANAGER,
        "swap_in",
        "(source - base, target)",
        "(source, target)",
        {"swap-mapping"},
    ),
    Fault(
        "every block is swapped to the same one",
        SWAP,
        "move",
        "dict(zip(old_ids, new_ids, strict=True))",
        "dict(zip(old_ids, new_ids[:1] * len(old_ids), strict=True))",
        {"swap-mapping"},
        seed=9,
    ),
    Fault(
        "a shared block is swapped once for each holder",
        SWAP,
        "distinct_ids",
        "list(dict.fromkeys(chain.from_iterable(map(Table.held_ids, tables))))",
        "[block_id for table in tables for block_id in table.held_ids()]",
        {"admission-exact"},  # the same ids are counted when it is asked whether the blocks have room on the host
        seed=6,
    ),
    # Questions
    Fault(
        "can_allocate is off by one",
        ADMISSION,
        "admission",
        "num_free - num_required >= watermark_blocks",
        "num_free - num_required >= watermark_blocks - 1",
        {"admission-sound"},
        seed=9,
    ),
    Fault(
        "can_allocate makes an idle pool wait",
        ADMISSION,
        "admission",
        "num_free - num_required >= watermark_blocks",
        "num_free - num_required > watermark_blocks",
        {"admission-exact"},
    ),
    Fault(
        "can_allocate says later where the watermark forbids for ever",
        ADMISSION,
        "admission",
        "if num_usable - num_required < watermark_blocks:",
        "if num_usable < num_required:",
        {"admission-final"},
    ),
    Fault(
        "can_append is off by one",
        MANAGER,
        "can_append_slots",
        "<= self._gpu.num_free",
        "<= self._gpu.num_free + 1",
        {"admission-sound"},
        seed=2,
    ),
    Fault(
        "can_append forgets copy-on-write",
        GROWTH,
        "num_needed",
        "num_copies += 1",
        "pass",
        {"admission-sound"},
        seed=3,
    ),
    Fault(
        "can_swap_in forgets the append",
        MANAGER,
        "can_swap_in",
        " + self._growth.num_needed(members, num_lookahead_slots)",
        "",
        {"admission-sound"},
        seed=10,
    ),
    Fault(
        "can_swap_out is off by one",
        MANAGER,
        "can_swap_out",
        "<= self._host.num_free",
        "<= self._host.num_free + 1",
        {"admission-sound"},
        seed=3,
    ),
    # Prefix cache
    Fault(
        "a hit on blocks that are not computed",
        ADMISSION,
        "num_leading_computed",
        "if content.block_id == NO_BLOCK or not cache.computed[content.block_id]:",
        "if content.block_id == NO_BLOCK:",
        {"hit-computed"},
        seed=2,
    ),
    Fault(
        "a chunk makes the whole prompt computed",
        STATE,
        "mark_blocks_as_computed",
        "seq.data.get_num_computed_tokens() + token_chunk_size",
        "len(seq.get_token_ids())",
        {"hit-computed", "sharing-equal"},
        seed=0,
    ),
    Fault(
        "identity without adapter and salt",
        TABLE,
        "contents_of",
        "tuple(tokens[low:high]), extra, beside",
        "tuple(tokens[low:high]), None, beside",
        {"hit-computed"},  # the look-up before the admission is judged first
        CACHED | {"block_size": 1, "num_gpu_blocks": 3},
    ),
    Fault(
        "identity without salt",
        SUBJECT,
        "extra_of",
        "(key.adapter_id, key.salt)",
        "(key.adapter_id,)",
        {"hit-computed"},  # the look-up before the admission is judged first
    ),
    Fault(
        "identity without images",
        TABLE,
        "contents_of",
        "tuple(tokens[low:high]), extra, beside",
        "tuple(tokens[low:high]), extra, None",
        {"hit-computed"},  # the look-up before the admission is judged first
        seed=3,
    ),
    Fault(
        "identity without the position of an image",
        SUBJECT,
        "images_in_block",
        "(i.name, i.start - first)",
        "(i.name, 0)",
        {"hit-computed"},  # the look-up before the admission is judged first
        CACHED | {"images": True, "keys": 1, "block_size": 2, "num_gpu_blocks": 6},
    ),
    Fault(
        "identity without what is before",
        TABLE,
        "contents_of",
        "intern((before,",
        "intern((None,",
        {"hit-computed"},  # the look-up before the admission is judged first
        seed=1,
    ),
    Fault(
        "a hit block stays in the evictor",
        CACHE,
        "pin",
        "self.evictor.remove(block_id)",
        "pass",
        {"no-use-after-free", "lists-agree"},
        seed=13,
    ),
    Fault(
        "an evicted block stays in the cache map",
        CACHE,
        "_evict",
        "self.forget(block_id)",
        "pass",
        {"sharing-equal", "hit-computed", "no-use-after-free", "eviction-order"},
        CACHED | {"block_size": 2, "num_gpu_blocks": 2},
        num_operations=9,  # one content is cached, evicted by another, and asked for again
        seed=10,
    ),
    Fault(
        "an evicted block stays computed",
        CACHE,
        "forget",
        "self.computed[block_id] = 0",
        "pass",
        {"hit-computed", "sharing-equal"},
        CACHED | {"block_size": 1, "num_gpu_blocks": 3},
        num_operations=12,  # two tenants of one block, the second asked for before it is computed
        seed=2,
    ),
    Fault(
        "exchange for a block that is not computed",
        GROWTH,
        "_filled",
        "and cache.computed[twin]",
        "",
        {"hit-computed"},
        # Room for a prompt in chunks beside a sequence that appends the same tokens; nothing else tells them apart.
        CACHED | {"block_size": 2, "num_gpu_blocks": 6, "chunked": True, "images": False, "keys": 1, "window": None},
        num_operations=8,  # both are admitted, one is computed, and appends while a chunk of the other is not
        seed=5,
    ),
    Fault(
        "the cache is reset while in use",
        STATE,
        "reset_prefix_cache",
        "if not (self._gpu.is_idle and self._host.is_idle):",
        "if False:",
        {"evict-unreferenced"},
        seed=10,
    ),
    # Window
    Fault(
        "the window drops a block that is read",
        GROWTH,
        "first_kept",
        "- self.max_block_sliding_window",
        "- self.max_block_sliding_window + 3",
        {"window-kept"},
        seed=11,
    ),
    Fault(
        "the window keeps a block too many",
        GROWTH,
        "first_kept",
        "- self.max_block_sliding_window",
        "- self.max_block_sliding_window - 1",
        {"window-kept"},
        seed=11,
    ),
    Fault(
        "the null block is freed",
        TABLE,
        "Table.held_ids",
        "return self.ids[self.num_dropped :] if self.num_dropped else self.ids",
        "return self.ids",
        {"refcount-exact", "conservation", "lists-agree", "no-use-after-free", "no-leak-at-rest", "swap-mapping"},
        seed=2,
    ),
]

Plant = Callable[[str, str, str, str], AbstractContextManager[None]]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_planted_fault_is_found_named_shortened_and_replayed(fault: Fault, plant: Plant, tmp_path: Path) -> None:
    module, prefix = fault.where
    with plant(module, prefix + fault.function, fault.line, fault.replacement):
        done = walk(
            MANAGERS, make(), fault.seed, max_operations=10_000_000, seconds=FIND_SECONDS_MAX, fixed=fault.config
        )
        assert done.counterexample is not None, "not found"
        believed, long = confirm(make, done.counterexample), fault.num_operations
        short = shortest(MANAGERS, make, believed, seconds=SHORTEN_SECONDS_MAX, seed=fault.seed, long=long)
        trace = make_trace("kvproof", short, "walker", fault.seed, make=make)
        path = save(tmp_path, trace)
        broken = replay(path)
    fixed = replay(path)

    assert short.finding.property in fault.properties, short.finding.text
    assert len(short.operations) <= fault.num_operations, "\n".join(trace.steps)
    assert broken.status is ReplayStatus.FAILED, broken.text
    assert fixed.status is ReplayStatus.FIXED, fixed.text


def test_a_fault_whose_line_is_gone_is_an_error(plant: Plant) -> None:
    with pytest.raises(AssertionError, match="0 times, not once"), plant(*BLOCKS[:1], "DeviceBlocks.share", "gone", ""):
        pass
