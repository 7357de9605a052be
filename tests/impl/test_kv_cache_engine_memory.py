"""Bytes of a block, numbers of blocks, and the profile from which they are computed."""

from __future__ import annotations

import pytest
import torch

from kvproof.impl import (
    BlockManagerError,
    Decoder,
    ModelGeometry,
    block_bytes,
    cache_dtype,
    free_bytes,
    num_blocks,
    num_cpu_blocks,
    num_gpu_blocks,
    profile_num_available_blocks,
)
from kvproof.impl.kv_memory import SMALL, measure

GIB = 1024**3
MIB = 1024**2
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        # 16 tokens x 32 layers x (key + value) x 8 heads x 128 elements = 1,048,576 elements
        (torch.float32, 4 * MIB),
        (torch.float16, 2 * MIB),
        ("half", 2 * MIB),
        ("bfloat16", 2 * MIB),
        ("auto", 2 * MIB),
        (torch.float8_e4m3fn, MIB),
        ("float8_e5m2", MIB),
        ("fp8", MIB),
        ("int8", MIB),
        ("uint8", MIB),
    ],
)
def test_bytes_of_a_block_over_all_layers(dtype: str | torch.dtype, expected: int) -> None:
    assert block_bytes(16, 32, 8, 128, dtype, model_dtype=torch.bfloat16) == expected


def test_a_latent_cache_has_no_values() -> None:
    # 64 tokens x 61 layers x 1 head x (512 + 64) elements x 2 bytes
    assert block_bytes(64, 61, 1, 576, "bfloat16", latent=True) == 4_497_408


@pytest.mark.parametrize("sizes", [(0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 0, 1), (1, 1, 1, 0), (True, 1, 1, 1)])
def test_a_size_below_one_is_refused(sizes: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        block_bytes(*sizes, torch.float16)


@pytest.mark.parametrize("dtype", ["float64", "auto", torch.int64])
def test_a_dtype_no_cache_is_stored_in_is_refused(dtype: str | torch.dtype) -> None:
    with pytest.raises(BlockManagerError, match="dtype is"):
        cache_dtype(dtype)


@pytest.mark.parametrize(
    ("total", "utilization", "peak", "size", "expected"),
    [
        (80 * GIB, 0.9, 20 * GIB, 2 * MIB, 26_624),  # 52 GiB / 2 MiB
        (1000, 0.9, 200, 100, 7),
        (999, 0.9, 200, 100, 6),  # 899.1 - 200 = 699.1
        (1000, 0.9, 950, 100, 0),  # less than 0
        (10, 0.7, 0, 7, 1),  # in binary fractions 0.7 is less than seven tenths
        (100, 0.29, 0, 29, 1),
        (10**24, 1.0, 1, 1, 10**24 - 1),
    ],
)
def test_gpu_blocks_are_what_utilization_leaves_beside_the_peak(
    total: int, utilization: float, peak: int, size: int, expected: int
) -> None:
    assert num_gpu_blocks(total, utilization, peak, size) == expected


def test_cpu_blocks_are_what_the_swap_space_holds() -> None:
    assert [num_cpu_blocks(space, 2 * MIB) for space in (4 * GIB, 2 * MIB - 1, 0, -GIB)] == [2048, 0, 0, 0]


@pytest.mark.parametrize("utilization", [0, -0.5, 1.01, float("nan")])
def test_a_utilization_that_is_no_share_is_refused(utilization: float) -> None:
    with pytest.raises(ValueError, match="utilization is"):
        num_gpu_blocks(1000, utilization, 0, 1)


def test_the_number_of_blocks_follows_from_the_free_memory() -> None:
    # Other processes take and release memory at the same time, so a tenth more or less is accepted.
    assert num_blocks(MIB, 0.5, "cpu") == pytest.approx(free_bytes("cpu") / 2 / MIB, rel=0.1)
    assert num_blocks(10**18, 1.0, "cpu") == 0


def test_the_default_decoder_is_profiled_on_the_cpu() -> None:
    # 16 tokens x 2 layers x (key + value) x 2 heads x 32 elements x 4 bytes = 16 KiB; 64 MiB hold 4096 of them.
    gpu, cpu = profile_num_available_blocks(16, 0.5, 64 * MIB, "auto", device="cpu")
    assert 0 < gpu <= free_bytes("cpu") // (16 * 1024)
    assert cpu == 4096


def test_the_model_is_run_once_on_dummy_tokens_of_256_sequences() -> None:
    seen: list[torch.Tensor] = []
    geometry = ModelGeometry(num_layers=4, num_kv_heads=1, head_size=576, dtype=torch.bfloat16, latent=True)
    # 64 tokens x 4 layers x 576 elements x 2 bytes = 294,912 bytes
    _, cpu = profile_num_available_blocks(64, 0.5, 3 * 294_912, "auto", model=seen.append, geometry=geometry)
    assert cpu == 3
    assert [(tokens.shape[0], tokens.dtype) for tokens in seen] == [(256, torch.int64)]
    assert 0 <= int(seen[0].min()) <= int(seen[0].max()) < geometry.vocabulary_size


def test_a_model_without_geometry_is_refused_before_it_runs() -> None:
    with pytest.raises(ValueError, match="geometry is None"):
        profile_num_available_blocks(16, 0.5, 0, "auto", model=lambda tokens: pytest.fail("it ran"))


def test_the_peak_counts_what_a_model_takes_and_gives_back() -> None:
    size = 256 * MIB

    def take() -> None:
        torch.ones(size, dtype=torch.uint8)

    assert size * 0.9 < measure(take, "cpu").peak < size * 1.5


def test_the_decoder_answers_with_logits_that_hang_on_earlier_tokens_only() -> None:
    decoder = Decoder()
    tokens = torch.arange(12).view(2, 6)
    changed = tokens.clone()
    changed[:, -1] = 999
    before, after = decoder(tokens), decoder(changed)
    assert before.shape == (2, 6, SMALL.vocabulary_size)
    assert torch.allclose(before[:, :-1], after[:, :-1], atol=1e-5)
    assert not torch.allclose(before[:, -1], after[:, -1], atol=1e-5)


@needs_cuda
def test_the_default_decoder_is_profiled_on_cuda() -> None:
    gpu, _ = profile_num_available_blocks(16, 0.5, 0, "auto", device="cuda")
    assert 0 < gpu <= torch.cuda.mem_get_info()[1] // (16 * 1024)


@needs_cuda
def test_the_peak_on_cuda_counts_what_a_model_takes_and_gives_back() -> None:
    def take() -> None:
        torch.ones(256 * MIB, dtype=torch.uint8, device="cuda")

    idle = measure(lambda: None, "cuda").peak
    assert 256 * MIB <= measure(take, "cuda").peak - idle + 64 * MIB
