"""kvproof's own executors: its KV cache engine, two plain ways to copy, as references for the others, and its store.

With the store, every block that moves goes through host memory and a disk. The blocks that a list reads are saved under
new keys, looked up, and then loaded to the blocks that the list writes. In every second step all of them are written to
the disk and read back; in the others they are saved twice, which changes nothing, and those for which host memory has
no slot come from the disk. The file has no name any more, so nothing is left when the process ends. A block that does
not come back raises LostBlock, and so does a wrong answer of a look-up.
"""

import hashlib
import weakref
import zlib
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from kvproof.check.data_plane.executors.base import Executor, MoveBlocks
from kvproof.check.data_plane.executors.store_life import LostBlock, use_a_small_store
from kvproof.check.data_plane.memory.world import Caches
from kvproof.check.data_plane.steps.moves import Moves, PoolId
from kvproof.impl.kv_cache_engine import BlockMover
from kvproof.impl.kv_store import TieredStore
from kvproof.impl.kv_store.device import DeviceBlocks
from kvproof.impl.kv_store.memory import Planes

NUM_HOST_SLOTS = 3
UNKNOWN = hashlib.sha256(b"never saved").digest()


def move_by_engine(caches: Caches) -> MoveBlocks:
    """The mover of kvproof's KV cache engine, which moves adjacent blocks with one copy."""
    mover = BlockMover(caches.gpu_planes, caches.cpu_planes)

    def move(moves: Moves) -> None:
        mover.swap_in(moves.swap_in)
        mover.swap_out(moves.swap_out)
        mover.copy(moves.copy)

    return move


def copy_blocks(caches: Caches) -> MoveBlocks:
    """One tensor copy for each pair and layer: the simplest executor."""
    planes = {PoolId.GPU: caches.gpu_planes, PoolId.CPU: caches.cpu_planes}

    def move(moves: Moves) -> None:
        for _, source_pool, target_pool, pairs in moves.lists():
            for here, there in zip(planes[source_pool], planes[target_pool], strict=True):
                for source, target in pairs:
                    there[target].copy_(here[source])

    return move


def copy_by_index(caches: Caches) -> MoveBlocks:
    """The index operations of torch: gather all sources of a list, then scatter them to their targets."""
    planes = {PoolId.GPU: caches.gpu_planes, PoolId.CPU: caches.cpu_planes}

    def move(moves: Moves) -> None:
        for _, source_pool, target_pool, pairs in moves.lists():
            if not pairs:
                continue
            sources, targets = torch.tensor(pairs, dtype=torch.int64).unbind(1)
            for here, there in zip(planes[source_pool], planes[target_pool], strict=True):
                gathered = here.index_select(0, sources.to(here.device))
                there.index_copy_(0, targets.to(there.device), gathered.to(there.device))

    return move


EXECUTORS = (
    Executor("engine", move_by_engine),
    Executor("block-copy", copy_blocks),
    Executor("index-copy", copy_by_index),
)


def move_through_store(caches: Caches) -> MoveBlocks:
    """The store in front of both pools."""
    is_pinned = caches.gpu_planes[0].device.type == "cuda"
    rows = [(NUM_HOST_SLOTS, plane.shape[1]) for plane in caches.gpu_planes]
    host = Planes([torch.zeros(shape, dtype=torch.int64, pin_memory=is_pinned) for shape in rows])
    num_disk_slots = caches.geometry.num_gpu_blocks + caches.geometry.num_cpu_blocks
    with TemporaryDirectory() as folder:
        store = TieredStore(host.slot_bytes, NUM_HOST_SLOTS, Path(folder), num_disk_slots, memory=host)
    pools = {
        PoolId.GPU: DeviceBlocks(caches.gpu_planes, host, store),
        PoolId.CPU: DeviceBlocks(caches.cpu_planes, host, store),
    }
    numbers, steps = count(), count()

    def move(moves: Moves) -> None:
        is_through_disk = next(steps) % 2 == 0
        for _, source_pool, target_pool, pairs in moves.lists():
            keys = {source: hashlib.sha256(b"%d" % next(numbers)).digest() for source, _ in pairs}
            for _ in range(1 if is_through_disk else 2):
                pools[source_pool].save([(key, source) for source, key in keys.items()])
            if is_through_disk:
                store.spill()
            _look_up(pools[target_pool], list(keys.values()))
            wanted = [(keys[source], target) for source, target in pairs]
            if len(pools[target_pool].load(wanted)) != len(wanted):
                raise LostBlock(f"of {len(wanted)} blocks that were saved, not all came back")
        use_a_small_store(zlib.crc32(repr(moves).encode()))

    weakref.finalize(move, store.close)
    return move


def _look_up(blocks: DeviceBlocks, keys: list[bytes]) -> None:
    found = blocks.find([*keys, UNKNOWN, *keys])
    if found != len(keys):
        raise LostBlock(f"a look-up finds a prefix of {found} blocks, and {len(keys)} were saved")


EXECUTOR = Executor(
    "kv-store", move_through_store, untimed="it writes to a disk; `python -m benchmarks kv_cache` measures the store"
)
