"""kvproof's store as an executor: every block that moves goes through host memory and a disk.

The blocks that a list reads are saved under new keys, looked up, and then loaded to the blocks that the list writes. In
every second step all of them are written to the disk and read back; in the others they are saved twice, which changes
nothing, and those for which host memory has no slot come from the disk. The file has no name any more, so nothing is
left when the process ends. A block that does not come back raises LostBlock, and so does a wrong answer of a look-up.
"""

import hashlib
import weakref
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from kvproof.check.data_plane.executors.base import Executor, MoveBlocks
from kvproof.check.data_plane.memory.world import Caches
from kvproof.check.data_plane.steps.moves import Moves, PoolId
from kvproof.impl.kv_store import TieredStore
from kvproof.impl.kv_store.device import DeviceBlocks
from kvproof.impl.kv_store.memory import Planes

NUM_HOST_SLOTS = 3
UNKNOWN = hashlib.sha256(b"never saved").digest()


class LostBlock(Exception):
    """The store does not have what was saved."""


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

    weakref.finalize(move, store.close)
    return move


def _look_up(blocks: DeviceBlocks, keys: list[bytes]) -> None:
    found = blocks.find([*keys, UNKNOWN, *keys])
    if found != len(keys):
        raise LostBlock(f"a look-up finds a prefix of {found} blocks, and {len(keys)} were saved")


EXECUTOR = Executor(
    "kv-store", move_through_store, untimed="it writes to a disk; `python -m benchmarks kv_cache` measures the store"
)
