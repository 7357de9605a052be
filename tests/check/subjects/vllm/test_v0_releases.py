"""Differences between releases of vLLM's V0 managers, by signatures and forms alone; nothing is downloaded."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvproof.check.subjects.loading import EngineError, partial_import
from kvproof.check.subjects.vllm.v0_fakes import FakeGroup, FakeSequence
from kvproof.check.subjects.vllm.v0_loader import import_manager
from kvproof.check.subjects.vllm.v0_manager import Calls
from kvproof.check.subjects.vllm.v0_observation import BlockPools, absolute_ids, pairs


class AsOf02:
    def __init__(self, block_size: int, num_gpu_blocks: int, num_cpu_blocks: int, watermark: float = 0.01) -> None: ...
    def append_slot(self, seq: Any) -> None: ...
    def can_swap_in(self, seq_group: Any) -> None: ...
    def swap_in(self, seq_group: Any) -> None: ...
    def swap_out(self, seq_group: Any) -> None: ...


class AsOf042:
    def __init__(self, block_size: int, num_gpu_blocks: int, enable_caching: bool = False) -> None: ...
    def access_all_blocks_in_seq(self, seq: Any, now: float) -> None: ...
    def append_slots(self, seq: Any, num_lookahead_slots: int) -> None: ...
    def can_swap_in(self, seq_group: Any, num_lookahead_slots: int) -> None: ...
    def mark_blocks_as_computed(self, seq_group: Any) -> None: ...
    def swap_in(self, seq_group: Any, num_lookahead_slots: int) -> None: ...
    def swap_out(self, seq_group: Any) -> None:
        raise NotImplementedError


class AsOf092(AsOf042):
    def get_cross_block_table(self, seq_group: Any) -> None: ...
    def get_num_cached_tokens(self, seq: Any) -> None: ...
    def mark_blocks_as_computed(self, seq_group: Any, token_chunk_size: int = 0) -> None: ...
    def reset_prefix_cache(self, device: Any = None) -> None: ...
    def swap_in(self, seq_group: Any) -> None: ...  # type: ignore[override]
    def swap_out(self, seq_group: Any) -> None: ...


def test_a_release_of_0_2_appends_one_slot_and_has_neither_cache_nor_lookahead() -> None:
    calls = Calls(AsOf02)
    assert (calls.append, calls.can_append, calls.can_swap) == ("append_slot", "can_append_slot", True)
    assert [calls.appends_lookahead, calls.accesses, calls.looks_up, calls.has_cross] == [False] * 4
    assert "enable_caching" not in calls.options


def test_a_manager_whose_swap_is_not_implemented_declares_no_swap() -> None:
    calls = Calls(AsOf042)
    assert (calls.can_swap, calls.marks_chunk, calls.maps_lookahead, calls.accesses) == (False, False, True, True)


def test_a_release_of_0_9_2_gets_the_chunk_and_looks_up_by_itself() -> None:
    calls = Calls(AsOf092)
    assert (calls.marks_chunk, calls.looks_up, calls.can_reset, calls.can_swap) == (True, True, True, True)
    assert (calls.swaps_in_lookahead, calls.maps_lookahead) == (True, False)


@pytest.mark.parametrize(
    ("emitted", "expected"),
    [
        (None, []),
        ([], []),
        ({}, []),
        ((3, 5), [(3, 5)]),
        ([(3, 5), (4, 6)], [(3, 5), (4, 6)]),
        ({3: 5}, [(3, 5)]),
        ({3: [5, 6]}, [(3, 5), (3, 6)]),
    ],
)
def test_copies_and_swaps_are_read_in_every_form_they_had(emitted: Any, expected: list[tuple[int, int]]) -> None:
    assert pairs(emitted) == expected


def block(number: int, refs: int = 0, device: str = "GPU") -> Any:
    return SimpleNamespace(block_number=number, ref_count=refs, device=SimpleNamespace(name=device))


def test_a_block_of_the_host_comes_after_those_of_the_gpu() -> None:
    assert absolute_ids([block(1), block(1, device="CPU")], 4) == [1, 5]


def test_with_a_cache_blocks_that_were_never_taken_are_free_and_evictable_ones_come_last() -> None:
    gpu = SimpleNamespace(
        current_num_blocks=2,
        evictor=SimpleNamespace(free_table={"x": block(0)}),
        cached_blocks={"y": block(1, refs=3)},
    )
    host = SimpleNamespace(current_num_blocks=0, evictor=SimpleNamespace(free_table={}), cached_blocks={})
    manager = SimpleNamespace(gpu_allocator=gpu, cpu_allocator=host)
    pools = BlockPools(manager, SimpleNamespace(num_gpu_blocks=3, num_host_blocks=1, caching=True))  # type: ignore[arg-type]
    assert (pools.refs(), pools.free_ids()) == ([0, 3, 0, 0], [2, 0, 3])


def fake(tokens: list[int], seq_id: int = 1, adapter: int = 0) -> FakeSequence:
    return FakeSequence(seq_id, FakeGroup(1), tokens, adapter, None, block_size=2)


def test_full_blocks_hash_by_tokens_and_adapter_and_a_partial_one_by_its_sequence_too() -> None:
    one, other, adapted = fake([5, 6, 7]), fake([5, 6, 7], seq_id=2), fake([5, 6, 7], seq_id=3, adapter=1)
    assert one.hash_of_block(0) == other.hash_of_block(0) != adapted.hash_of_block(0)
    assert one.hash_of_block(1) != other.hash_of_block(1)


def test_a_child_has_as_many_computed_tokens_as_its_parent() -> None:
    parent = fake([5, 6])
    parent.num_computed, parent.is_prompt = 2, False
    child = parent.forked(9, [5, 6, 7])
    assert (child.seq_id, child.num_computed, child.is_prompt, child.n_blocks) == (9, 2, False, 2)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    """A release that has both generations, and one that has neither."""

    for name, text in {
        "vllm-0.5.0/vllm/core/block_manager_v1.py": "class BlockSpaceManagerV1: pass",
        "vllm-0.5.0/vllm/core/block_manager_v2.py": "class BlockSpaceManagerV2: pass",
        "vllm-0.5.0/vllm/core/block/__init__.py": "",
        "vllm-0.4.0/vllm/core/block_manager_v1.py": "class BlockSpaceManagerV1: pass",
        "vllm-0.4.0/vllm/core/block_manager_v2.py": "import vllm.core.block",
        "vllm-0.7.0/vllm/core/interfaces.py": "class BlockSpaceManager: pass",
        "vllm-0.7.0/vllm/core/block_manager.py": "from vllm.core.interfaces import BlockSpaceManager",
        "vllm-0.12.0/vllm/v1/core/kv_cache_manager.py": "",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "vllm"}
    mounted = partial_import._mounted.pop("vllm", None)
    for name in before:
        del sys.modules[name]
    yield tmp_path
    partial_import._mounted.pop("vllm", None)
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        del sys.modules[name]
    sys.modules.update(before)
    if mounted is not None:
        partial_import._mounted["vllm"] = mounted


@pytest.mark.parametrize(("generation", "expected"), [(None, 2), (1, 1), (2, 2)])
def test_the_newest_generation_is_taken_unless_one_is_asked_for(
    cache: Path, generation: int | None, expected: int
) -> None:
    found = import_manager("0.5.0", cache, generation)
    assert (found.generation, found.make.__name__) == (expected, f"BlockSpaceManagerV{expected}")


def test_a_release_without_a_v0_manager_is_refused_with_the_subject_that_judges_it(cache: Path) -> None:
    with pytest.raises(EngineError, match=r"vllm-v1==0\.12\.0"):
        import_manager("0.12.0", cache)


def test_an_archive_that_lacks_half_of_its_second_generation_gives_its_first(cache: Path) -> None:
    assert import_manager("0.4.0", cache).generation == 1


def test_an_abstract_class_of_the_old_name_is_no_manager_of_the_first_generation(cache: Path) -> None:
    with pytest.raises(EngineError, match="no V0 block manager of generation 1"):
        import_manager("0.7.0", cache, 1)
