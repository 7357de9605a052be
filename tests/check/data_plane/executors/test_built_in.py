"""The store as an executor: its bytes are right in each tier, torn writes are noticed, and faults have an origin."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from kvproof.check.data_plane.executors import built_in, named
from kvproof.check.data_plane.mappings import scenario
from kvproof.check.data_plane.memory.layouts import Geometry, Layout
from kvproof.check.data_plane.run.harness import DEFAULT_STREAM, NO_STREAM, run_case
from kvproof.check.data_plane.run.results import CaseResult, FindingKind
from kvproof.check.data_plane.simulated_cuda import simulated_cuda
from kvproof.impl.kv_cache_engine import BlockMover, Pair, runs_of
from kvproof.impl.kv_store import DiskSlots, TieredStore, disk
from kvproof.impl.kv_store.device import DeviceBlocks
from kvproof.impl.kv_store.memory import Planes

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


def case_of(layout: Layout = Layout.NHD, device: torch.device = CPU, kind: str = "mixed") -> CaseResult:
    geometry = Geometry(layout, "float16", 4, 1 if layout is Layout.LATENT else 2, 16, 2, 12, 9)
    stream = NO_STREAM if device is CPU else DEFAULT_STREAM
    return run_case(named("kv-store"), geometry, scenario(kind, 1, 12, 9, 4), device, stream)


@pytest.mark.parametrize("layout", Layout)
def test_every_block_comes_back_through_the_disk(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    num_read, read = 0, DiskSlots.read

    def counted(self: DiskSlots, slot: int, key: bytes) -> bytes | None:
        nonlocal num_read
        num_read += 1
        return read(self, slot, key)

    monkeypatch.setattr(DiskSlots, "read", counted)
    case = case_of(layout)
    assert case.finding is None
    assert num_read > case.num_pairs // 4


def test_the_copies_are_ordered_on_a_simulated_device() -> None:
    with simulated_cuda():
        assert case_of(device=CUDA, kind="one").finding is None


def test_a_copy_that_is_not_waited_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def move_out(self: BlockMover, pairs: Iterable[Pair]) -> None:
        if read := list(pairs):
            self._out.move(runs_of(read, self.gpu_pool, self.cpu_pool))

    monkeypatch.setattr(BlockMover, "swap_out", move_out)
    with simulated_cuda():
        finding = case_of(device=CUDA, kind="one").finding
    assert finding is not None
    assert finding.kind in (FindingKind.RACE, FindingKind.WRONG_BYTES)


def plant_torn_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first half of a place arrives, as if the process had been killed, when the slot was used before."""
    write, used = os.pwrite, set[int]()

    def pwrite(file: int, data: memoryview, begin: int) -> int:
        write(file, data[: len(data) // 2] if begin in used else data, begin)
        used.add(begin)
        return len(data)

    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr(built_in, "use_a_small_store", lambda seed: None)


def test_a_torn_write_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_torn_writes(monkeypatch)
    finding = case_of().finding
    assert finding is not None
    assert (finding.kind, "LostBlock" in finding.text) == (FindingKind.RAISED, True)


def test_without_the_checksum_a_torn_write_has_the_origin_of_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_torn_writes(monkeypatch)
    monkeypatch.setattr(disk, "_checksum", lambda key, data: bytes(disk.CHECKSUM_BYTES))
    finding = case_of().finding
    assert finding is not None
    assert finding.kind is FindingKind.WRONG_BYTES
    assert all(row.origin is not None for row in finding.wrong)


def test_a_copy_that_raises_leaves_its_slots_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planes = [torch.zeros((4, 2), dtype=torch.int64)]
    host = Planes([torch.zeros((2, 2), dtype=torch.int64)])
    store = TieredStore(host.slot_bytes, 2, tmp_path, 2, memory=host)
    blocks = DeviceBlocks(planes, host, store)
    keys = [bytes([number]) * 32 for number in range(2)]

    def failing(self: BlockMover, pairs: Iterable[Pair]) -> None:
        raise RuntimeError("the device is gone")

    with monkeypatch.context() as patched:
        patched.setattr(BlockMover, "swap_out", failing)
        with pytest.raises(RuntimeError, match="the device is gone"):
            blocks.save([(key, 0) for key in keys])
    assert (store.host.entries, len(store.host.free)) == ({}, 2)
    assert blocks.save([(key, 0) for key in keys]) == keys
    store.close()


def test_blocks_are_kept_by_key_and_come_back_after_a_restart(tmp_path: Path) -> None:
    memory = [torch.arange(24, dtype=torch.int64).view(6, 4), torch.arange(24, 36, dtype=torch.int64).view(6, 2)]
    keys = [bytes([number]) * 32 for number in range(5)]
    before = [plane.clone() for plane in memory]

    def opened() -> tuple[TieredStore, DeviceBlocks]:
        host = Planes([torch.zeros((2, plane.shape[1]), dtype=torch.int64) for plane in memory])
        store = TieredStore(host.slot_bytes, 2, tmp_path, 8, memory=host)
        return store, DeviceBlocks(memory, host, store)

    store, blocks = opened()
    assert blocks.save((key, number) for number, key in enumerate(keys)) == keys
    assert (blocks.find([*keys, b"?" * 32]), blocks.find([b"?" * 32, *keys])) == (5, 0)
    store.flush()
    store.close()
    store, blocks = opened()
    for plane in memory:
        plane.zero_()
    assert blocks.load([(keys[4], 0), (b"?" * 32, 1), (keys[1], 2), (keys[0], 3), (keys[1], 4)]) == [
        keys[4], keys[1], keys[0], keys[1],
    ]  # fmt: skip
    for plane, old in zip(memory, before, strict=True):
        assert plane.tolist() == [
            old[4].tolist(),
            [0] * len(old[0]),
            *(old[at].tolist() for at in (1, 0, 1)),
            [0] * len(old[0]),
        ]
    store.close()
