"""The KV cache engine moves exactly the bytes of the mapped blocks, and refuses a bad mapping before it moves any."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch

from kvproof.impl import (
    BlockOutOfRangeError,
    ChainedCopyError,
    DuplicateTargetError,
    KVBlockShape,
    KVCacheEngine,
    KVLayout,
    MappingFormError,
    Moved,
    kv_cache_engine,
)

DTYPES = [
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.int8,
    torch.uint8,
]
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_cuda)]
LAYERS, GPU_BLOCKS, CPU_BLOCKS = 2, 24, 17
# Runs of three and two blocks among single ones, in no order; block 2 goes to two places.
PAIRS = [(7, 1), (2, 9), (5, 14), (3, 10), (11, 3), (4, 11), (2, 0), (6, 15)]
NUM_RUNS = 5  # 2-4 -> 9-11, 5-6 -> 14-15, 7 -> 1, 11 -> 3, 2 -> 0
DISJOINT = [(source, target) for source, target in PAIRS if target not in {3, 11}]
Pairs = list[tuple[int, int]]


def shape_of(layout: KVLayout, dtype: torch.dtype, head_size: int = 6) -> KVBlockShape:
    return KVBlockShape(4, 1 if layout is KVLayout.LATENT else 3, head_size, dtype, layout)


def filled(layout: KVLayout, dtype: torch.dtype, device: str = "cpu", head_size: int = 6) -> KVCacheEngine:
    """Return an engine with random bytes, so that all NaN patterns of the small types occur."""
    engine = KVCacheEngine(shape_of(layout, dtype, head_size), LAYERS, GPU_BLOCKS, CPU_BLOCKS, device)
    generator = torch.Generator().manual_seed(1)
    for memory in engine.gpu_memory + engine.cpu_memory:
        memory.copy_(torch.randint(256, memory.shape, dtype=torch.uint8, generator=generator))
    return engine


def in_bytes(engine: KVCacheEngine) -> tuple[list[bytes], list[bytes]]:
    """Return the bytes of both pools, layer by layer."""
    gpu, cpu = ([memory.cpu().numpy().tobytes() for memory in pool] for pool in (engine.gpu_memory, engine.cpu_memory))
    return gpu, cpu


def moved_one_by_one(layout: KVLayout, row: int, source: bytes, target: bytes, pairs: Pairs) -> bytes:
    """The reference: return `target` after each pair was moved; `row` is the bytes of a block of one layer."""
    parts = 2 if layout is KVLayout.TWO_PLANES else 1
    row //= parts
    after = bytearray(target)
    for part in range(parts):
        source_start, target_start = part * len(source) // parts, part * len(target) // parts
        for here, there in pairs:
            start = source_start + here * row
            after[target_start + there * row : target_start + (there + 1) * row] = source[start : start + row]
    return bytes(after)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", KVLayout, ids=lambda layout: layout.name)
@pytest.mark.parametrize("call", ["swap_in", "swap_out", "copy"])
def test_a_call_moves_the_mapped_blocks_and_no_other_byte(
    call: str, layout: KVLayout, dtype: torch.dtype, device: str
) -> None:
    check_moved(filled(layout, dtype, device), call)


@needs_cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
@pytest.mark.parametrize("layout", KVLayout, ids=lambda layout: layout.name)
@pytest.mark.parametrize("call", ["swap_in", "swap_out", "copy"])
def test_many_blocks_are_moved_by_the_kernel_of_cuda(
    call: str, layout: KVLayout, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv_cache_engine, "_MANY_COPIES", 0)
    monkeypatch.setattr(kv_cache_engine, "_MANY_COPIES_OVER_THE_BUS", 0)
    engine = filled(layout, dtype, "cuda", head_size=8)
    assert all(route.copier is not None for route in (engine._in, engine._out, engine._within))
    check_moved(engine, call)


def check_moved(engine: KVCacheEngine, call: str) -> None:
    """Make the call, and compare every byte of both pools."""
    layout, gpu, cpu = engine.shape.layout, *in_bytes(engine)
    row = engine.shape.bytes_per_layer()
    pairs = DISJOINT if call == "copy" else PAIRS

    def expected(source: list[bytes], target: list[bytes]) -> list[bytes]:
        return [moved_one_by_one(layout, row, *layer, pairs) for layer in zip(source, target, strict=True)]

    moved = getattr(engine, call)(pairs)

    assert (moved.num_blocks, moved.num_bytes) == (len(pairs), len(pairs) * LAYERS * row)
    assert (
        in_bytes(engine)
        == {
            "swap_in": lambda: (expected(cpu, gpu), cpu),
            "swap_out": lambda: (gpu, expected(gpu, cpu)),
            "copy": lambda: (expected(gpu, gpu), cpu),
        }[call]()
    )


@pytest.mark.parametrize("layout", KVLayout, ids=lambda layout: layout.name)
def test_blocks_of_the_typed_tensors_are_the_blocks_of_the_mapping(layout: KVLayout) -> None:
    engine = KVCacheEngine(shape_of(layout, torch.float32), LAYERS, GPU_BLOCKS, CPU_BLOCKS, "cpu")
    block = (slice(None), 5) if layout is KVLayout.TWO_PLANES else (5,)
    for cache in engine.gpu_cache:
        cache[block] = 1.0
    engine.swap_out([(5, 5)])
    for cache in engine.cpu_cache:
        assert (cache[block] == 1).all()
        assert int(cache.count_nonzero()) == cache[block].numel()


def test_neighbouring_pairs_form_one_run_in_whatever_order_they_come() -> None:
    engine = filled(KVLayout.NHD, torch.uint8)
    # One block: 4 tokens x 2 layers x (key + value) x 3 heads x 6 elements = 288 bytes.
    assert engine.block_bytes == 288
    assert engine.swap_out(PAIRS) == Moved(8, NUM_RUNS, 8 * 288)
    assert engine.swap_in([(block, block + 7) for block in reversed(range(17))]) == Moved(17, 1, 17 * 288)
    assert engine.swap_in([]) == Moved(0, 0, 0)


@pytest.mark.parametrize("head_size", [6, 1500])
@pytest.mark.parametrize("layout", KVLayout, ids=lambda layout: layout.name)
def test_runs_give_the_same_bytes_as_one_pair_after_the_other(layout: KVLayout, head_size: int) -> None:
    # A run of blocks with 1500 elements per head is too large for the method that small runs use.
    together, apart = (filled(layout, torch.float32, head_size=head_size) for _ in range(2))
    chosen = random.Random(3)
    for _ in range(3):
        pairs = list(zip(sorted(chosen.sample(range(24), 12)), sorted(chosen.sample(range(17), 12)), strict=True))
        back = [(cpu, gpu) for gpu, cpu in pairs]
        assert together.swap_out(torch.tensor(pairs)).num_runs < 12
        together.swap_in(torch.tensor(back)[torch.randperm(12)])
        for pair in pairs:
            apart.swap_out([pair])
        for pair in back:
            apart.swap_in([pair])
        assert all(map(torch.equal, together.gpu_memory, apart.gpu_memory))
        assert all(map(torch.equal, together.cpu_memory, apart.cpu_memory))


@pytest.mark.parametrize("head_size", [1, 2, 4, 8])
def test_rows_of_odd_length_move_whole(head_size: int) -> None:
    # A row of 3, 6, 12 or 24 bytes: the widest word that fits has 1, 2, 4 or 8.
    engine = KVCacheEngine(KVBlockShape(3, 1, head_size, torch.uint8, KVLayout.LATENT), 1, 6, 5, "cpu")
    engine.gpu_memory[0].copy_(torch.arange(18 * head_size))
    engine.swap_out([(1, 3), (2, 4), (5, 0)])
    row = 3 * head_size
    source = bytes(range(18 * head_size))
    assert bytes(engine.cpu_memory[0].tolist()) == source[5 * row :] + bytes(2 * row) + source[row : 3 * row]


@pytest.mark.parametrize("gathered_bytes", [1, 300, 10**6])
def test_gathering_and_scattering_gives_the_same_bytes_as_runs(
    gathered_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv_cache_engine, "_GATHERED_BYTES", gathered_bytes)
    runs, gathered = (filled(KVLayout.TWO_PLANES, torch.float16) for _ in range(2))
    runs.copy(DISJOINT)
    planes = [plane for memory in gathered.gpu_memory for plane in gathered.shape.planes(memory)]
    kv_cache_engine._gather_and_scatter(planes, torch.tensor(DISJOINT))
    assert in_bytes(gathered) == in_bytes(runs)


BAD: dict[str, tuple[str, object, type[Exception], str]] = {
    "source too large": ("swap_in", [(0, 0), (17, 1)], BlockOutOfRangeError, "block 17 .* 17 blocks of the CPU pool"),
    "target too large": ("swap_out", [(0, 0), (1, 17)], BlockOutOfRangeError, "block 17 .* the pair 1 -> 17"),
    "negative source": ("swap_in", [(0, 0), (-1, 1)], BlockOutOfRangeError, "block -1"),
    "negative target": ("copy", [(0, 1), (2, -1)], BlockOutOfRangeError, "block -1"),
    "target twice": ("swap_in", [(0, 4), (1, 5), (2, 4)], DuplicateTargetError, "block 4 .* target of blocks 0, 2"),
    "chain": ("copy", [(0, 1), (1, 2)], ChainedCopyError, "block 1 .* pair 0 -> 1 and read by the pair 1 -> 2"),
    "onto itself": ("copy", [(0, 1), (3, 3)], ChainedCopyError, "block 3"),
    "no list": ("copy", 5, MappingFormError, "5"),
    "triple": ("copy", [(0, 1, 2)], MappingFormError, r"\(0, 1, 2\)"),
    "not a number": ("copy", [(0, 1.5)], MappingFormError, "1.5"),
    "beyond 64 bits": ("copy", [(0, 2**64)], MappingFormError, "int64"),
    "int32": ("copy", torch.tensor([[0, 1]], dtype=torch.int32), MappingFormError, "int32"),
    "flat": ("copy", torch.tensor([0, 1]), MappingFormError, r"shape \[2\]"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_mapping_is_refused_and_nothing_has_moved(name: str) -> None:
    call, pairs, error, message = BAD[name]
    engine = filled(KVLayout.TWO_PLANES, torch.float16)
    before = in_bytes(engine)
    with pytest.raises(error, match=message):
        getattr(engine, call)(pairs)
    assert in_bytes(engine) == before


@pytest.mark.parametrize(
    ("dtype", "nans"), [(torch.float8_e4m3fn, [0x7F, 0xFF]), (torch.float8_e5m2, [0x7D, 0x7E, 0xFF])]
)
def test_the_bits_of_a_float8_nan_survive_every_move(dtype: torch.dtype, nans: list[int]) -> None:
    engine = KVCacheEngine(shape_of(KVLayout.LATENT, dtype), 1, 4, 4, "cpu")
    pattern = torch.tensor((nans * 24)[:24], dtype=torch.uint8)
    engine.gpu_memory[0][24:48] = pattern
    assert engine.gpu_cache[0][1].float().isnan().all()
    engine.swap_out([(1, 3)])
    engine.swap_in([(3, 0)])
    engine.copy([(0, 2)])
    assert engine.gpu_memory[0][48:72].tolist() == pattern.tolist()


@pytest.mark.parametrize(
    "make",
    [
        lambda: KVCacheEngine(shape_of(KVLayout.NHD, torch.uint8), 0, 1, 1),
        lambda: KVCacheEngine(shape_of(KVLayout.NHD, torch.uint8), 1, -1, 1),
        lambda: KVBlockShape(16, 0, 64, torch.uint8),
        lambda: KVBlockShape(16, 2, 64, torch.uint8, KVLayout.LATENT),
    ],
)
def test_an_impossible_engine_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="must be"):
        make()


def test_the_block_manager_comes_without_torch() -> None:
    script = "import sys, kvproof.impl, kvproof.check.cli; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
