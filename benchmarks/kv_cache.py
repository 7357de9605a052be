"""Measure how fast the KV cache engine moves blocks, compared with torch's own ways to move as many bytes.

One thread on the CPU, 32 KiB per block and layer. The reference (1.00) is one `copy_` of as many contiguous bytes.
*gather* is the simplest implementation: `index_copy_` of an `index_select`. Every figure is the best of several rounds,
in which the three take turns; that of the engine includes reading, checking and coalescing the mapping.

The store behind the engine (`kvproof.impl.kv_store`) is measured in blocks of 64 KiB per second of processor time: to
host memory; to host memory, which evicts as many blocks to the disk; from host memory; and from the disk. The disk is
the folder for temporary files; its bytes stay in the page cache of the system.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from kvproof.impl import KVBlockShape, KVCacheEngine, KVLayout
from kvproof.impl.kv_store import TieredStore
from kvproof.impl.kv_store.device import DeviceBlocks, KeyedBlock
from kvproof.impl.kv_store.memory import Planes

NUM_BLOCKS, NUM_MOVED, NUM_STORED, NUM_LAYERS, ROUNDS = 4096, 2048, 512, 2, 7
NUMBERS = range(NUM_STORED), range(NUM_STORED, 2 * NUM_STORED)  # of the keys in the store
# 16 tokens x (key + value) x 4 heads x 128 elements x 2 bytes
SHAPE = KVBlockShape(16, 4, 128, torch.bfloat16, KVLayout.NHD)
Figures = dict[str, dict[str, float]]


def mappings() -> dict[str, torch.Tensor]:
    """Pairs with sources in the lower half and targets in the upper half, so that they are also valid for copies."""
    generator = torch.Generator().manual_seed(0)
    lower = torch.arange(NUM_MOVED)
    starts = torch.randperm(NUM_MOVED // 16, generator=generator)[:, None] * 16
    runs_of_16 = (starts + torch.arange(16)).flatten()
    anywhere = [torch.randperm(NUM_MOVED, generator=generator) for _ in range(2)]
    return {
        "one run": torch.stack((lower, lower + NUM_MOVED), 1),
        "runs of 16": torch.stack((lower, runs_of_16 + NUM_MOVED), 1),
        "random blocks": torch.stack((anywhere[0], anywhere[1] + NUM_MOVED), 1),
    }


def seconds(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The best time of each call. The first round, which touches all memory, does not count."""
    best = dict.fromkeys(calls, float("inf"))
    for round_number in range(ROUNDS + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if round_number:
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def measure() -> Figures:
    """Speed relative to `copy_`, by operation and mapping."""
    engine = KVCacheEngine(SHAPE, NUM_LAYERS, NUM_BLOCKS, NUM_BLOCKS, "cpu")
    for memory in engine.gpu_memory + engine.cpu_memory:
        memory.fill_(1)
    # The gather also gets the widest words, as it would be several times slower with bytes.
    gpu, cpu = (
        [memory.view(torch.int64).view(NUM_BLOCKS, -1) for memory in pool]
        for pool in (engine.gpu_memory, engine.cpu_memory)
    )
    figures: Figures = {}
    for operation, call, target in (("swap_out", engine.swap_out, cpu), ("copy", engine.copy, gpu)):
        for name, pairs in mappings().items():
            sources, targets = pairs.unbind(1)

            def contiguous(target: list[torch.Tensor] = target) -> None:
                for here, there in zip(gpu, target, strict=True):
                    there[NUM_MOVED:].copy_(here[:NUM_MOVED])

            def gather(
                target: list[torch.Tensor] = target,
                sources: torch.Tensor = sources,
                targets: torch.Tensor = targets,
            ) -> None:
                for here, there in zip(gpu, target, strict=True):
                    there.index_copy_(0, targets, here.index_select(0, sources))

            def engine_call(call: Callable[[torch.Tensor], object] = call, pairs: torch.Tensor = pairs) -> object:
                return call(pairs)

            took = seconds({"copy_": contiguous, "engine": engine_call, "gather": gather})
            figures[f"{operation}, {name}"] = {
                "engine / copy_": round(took["copy_"] / took["engine"], 3),
                "gather / copy_": round(took["copy_"] / took["gather"], 3),
                "engine / gather": round(took["gather"] / took["engine"], 2),
            }
    return figures


def measure_store() -> dict[str, float]:
    """Blocks per second of processor time that the store moves, by the way that they take; the best of all rounds."""
    engine = KVCacheEngine(SHAPE, NUM_LAYERS, NUM_STORED, NUM_STORED, "cpu")
    gpu, cpu = (
        [memory.view(-1, SHAPE.bytes_per_layer()) for memory in pool] for pool in (engine.gpu_memory, engine.cpu_memory)
    )
    for memory in gpu:
        memory.fill_(1)
    first, second = ([(number.to_bytes(32, "big"), number % NUM_STORED) for number in numbers] for numbers in NUMBERS)
    rounds = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            host = Planes(cpu)
            store = TieredStore(host.slot_bytes, NUM_STORED, Path(folder), 2 * NUM_STORED, memory=host)
            blocks = DeviceBlocks(gpu, host, store)
            speeds = {
                "to host memory": _per_second(blocks.save, first),
                "to host memory, which evicts to the disk": _per_second(blocks.save, second),
                "from host memory": _per_second(blocks.load, second),
            }
            store.spill()
            rounds.append({**speeds, "from the disk": _per_second(blocks.load, first)})
            store.close()
    return {name: max(one[name] for one in rounds) for name in rounds[0]}


def _per_second(move: Callable[[list[KeyedBlock]], list[bytes]], blocks: list[KeyedBlock]) -> float:
    start = time.process_time()
    moved = move(blocks)
    seconds = time.process_time() - start
    assert len(moved) == len(blocks)
    return len(blocks) / seconds


def main() -> dict[str, object]:
    """Print the ratios and speeds. Returns them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        figures = measure()
        stored = measure_store()
    finally:
        torch.set_num_threads(threads)
    print(f"kv cache: {NUM_MOVED} blocks of 32 KiB, {NUM_LAYERS} layers, one thread; speed relative to one copy_")
    for name, ratios in figures.items():
        print(f"  {name:24}" + "   ".join(f"{ratio}: {value:.2f}" for ratio, value in ratios.items()))
    for name, speed in stored.items():
        gigabytes = speed * SHAPE.bytes_per_layer() * NUM_LAYERS / 1e9
        print(f"  store, {name}: {speed:,.0f} blocks a second, {gigabytes:.2f} GB/s")
    return {**figures, "store": stored}


if __name__ == "__main__":
    main()
