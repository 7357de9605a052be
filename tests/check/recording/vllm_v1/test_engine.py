"""vLLM's V1 schedulers and managers are recorded and judged, each release in a process of its own."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.engine
Record = Callable[..., Any]


# With priorities, 0.12.0 passes over requests that run (F19 of docs/findings.md); with drafts it caches null blocks
# (F23).
WITHOUT_FAULTS: dict[str, Any] = {"policy": "fcfs", "speculative_tokens": 0, "events": False, "async_steps": 0}


@pytest.mark.parametrize(("release", "async_steps"), [("0.12.0", 0), ("0.33.0", 0), ("0.33.0", 1)])
def test_the_v1_scheduler_with_its_manager_is_consistent(release: str, async_steps: int, record_engine: Record) -> None:
    fixed: dict[str, Any] = {"keys": 1} | WITHOUT_FAULTS
    if release == "0.33.0":  # what it reports of copies is a finding of its own (F20)
        fixed = {"transfers": False, "async_steps": async_steps, "events": False}
    found, num_lines, witnesses = record_engine(release, "vllm-v1-scheduler", fixed, 12)
    assert [one for one in found if one[0] or one[2] or "cannot be judged" not in one[1]] == []  # states
    assert num_lines > 2_000
    assert {"hit", "evict", "window left an entry"} <= set(witnesses)


LOCAL: dict[str, Any] = WITHOUT_FAULTS | {
    "kv_groups": ["full", "local"],
    "local_chunk": 4,
    "block_size": 2,
    "keys": 1,
    "transfers": False,
}


@pytest.mark.parametrize("release", ["0.12.0", "0.33.0"])
def test_local_attention_beside_full_attention_is_consistent(release: str, record_engine: Record) -> None:
    found, num_lines, witnesses = record_engine(release, "vllm-v1-scheduler", LOCAL, 8)
    assert found == []
    assert num_lines > 1_000
    assert {"hit", "evict", "local attention left an entry"} <= set(witnesses)


def test_local_attention_that_leaves_a_block_too_early_diverges(record_engine: Record) -> None:
    fault = (
        "make()\nkind = sys.modules['vllm.v1.core.single_type_kv_cache_manager'].ChunkedLocalAttentionManager\n"
        "skipped = kind.get_num_skipped_tokens\n"
        "kind.get_num_skipped_tokens = lambda self, num: skipped(self, num) + self.block_size"
    )
    found, _, _ = record_engine("0.33.0", "vllm-v1-scheduler", LOCAL, 3, fault)
    assert {finding[0] for finding, _, _ in found if finding} & {"window-kept", "no-use-after-free"}


def test_the_v1_manager_with_every_key_is_consistent(record_engine: Record) -> None:
    found, num_lines, witnesses = record_engine("0.33.0", "vllm-v1", {"caching": True}, 25)
    assert [one for one in found if one[0] or "cannot be judged" not in one[1]] == []  # states, blocks of several sizes
    assert num_lines > 1_000
    assert {"hit", "reset"} <= set(witnesses)


V1_FAULTS = {
    "a request leaks its first block": (
        "free = pool.free_blocks\npool.free_blocks = lambda self, blocks, *more: free(self, list(blocks)[:-1], *more)",
        {"no-leak-at-rest", "conservation"},
        {"free", "allocate_slots"},  # which gives back what a window left
    ),
    "a block that is hit stays in the free queue": (
        "def touch(self, blocks):\n    for block in blocks: block.ref_cnt += 1\npool.touch = touch",
        {"conservation", "admission-sound"},
        {"allocate_slots"},
    ),
    "a block keeps its hash when it is taken": (
        "pool._maybe_evict_cached_block = lambda self, block: False",
        {"admission-sound", "no-use-after-free", "hit-computed"},
        {"allocate_slots", "recording ended"},  # at the latest where what was read is compared
    ),
}


@pytest.mark.parametrize("name", V1_FAULTS)
def test_a_fault_planted_in_the_v1_manager_diverges_at_its_line(name: str, record_engine: Record) -> None:
    code, properties, calls = V1_FAULTS[name]
    fault = f"make()\npool = sys.modules['vllm.v1.core.block_pool'].BlockPool\n{code}"
    fixed = {"transfers": False, "async_steps": 0, "caching": True, "window": None, "keys": 1}
    found, _, _ = record_engine("0.33.0", "vllm-v1-scheduler", fixed, 3, fault)
    assert found
    assert {finding[0] for finding, _, _ in found if finding} <= properties
    diverged = {finding[1] for finding, _, _ in found if finding}
    assert diverged
    assert diverged <= calls


def test_windows_beside_steps_that_the_release_does_not_count_are_not_judged(record_engine: Record) -> None:
    fixed = LOCAL | {"async_steps": 1}
    found, _, _ = record_engine("0.12.0", "vllm-v1-scheduler", fixed, 2)
    assert {reason for _, reason, _ in found} == {
        "allocate_slots with steps under way that it does not count cannot be judged from a recording"
    }
