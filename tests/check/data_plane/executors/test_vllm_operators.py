"""vLLM's operators are called as each release wants it; a stand-in in main memory has their signatures."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch

from kvproof.check.data_plane.executors import vllm_operators
from kvproof.check.data_plane.executors.base import Executor
from kvproof.check.data_plane.mappings import scenario
from kvproof.check.data_plane.memory.layouts import Geometry, Layout
from kvproof.check.data_plane.run.harness import run_case

CPU = torch.device("cpu")


def geometry(layout: Layout, dtype: str = "bfloat16") -> Geometry:
    return Geometry(layout, dtype, 4, 1 if layout is Layout.LATENT else 2, 16, 2, 12, 9)


def stand_in(takes_bytes: bool) -> ModuleType:
    """The two operators of vllm._custom_ops, and the third for latent caches."""
    operators = ModuleType("vllm._custom_ops")

    def swap(source: torch.Tensor, target: torch.Tensor, block_bytes: int, mapping: torch.Tensor) -> None:
        assert (mapping.dtype, mapping.device.type, mapping.dim()) == (torch.int64, "cpu", 2)
        here, there = (tensor.reshape(len(tensor), -1) for tensor in (source, target))
        assert here.shape[1] * here.itemsize == block_bytes
        for from_, to in mapping.tolist():
            there[to] = here[from_]

    def swap_before(source: torch.Tensor, target: torch.Tensor, mapping: torch.Tensor) -> None:
        swap(source, target, source[0].numel() * source.itemsize, mapping)

    def copy_latent(caches: list[torch.Tensor], mapping: torch.Tensor) -> None:
        for cache in caches:
            swap_before(cache, cache, mapping)

    def copy(keys: list[torch.Tensor], values: list[torch.Tensor], mapping: torch.Tensor) -> None:
        copy_latent(keys, mapping)
        copy_latent(values, mapping)

    vars(operators).update(
        swap_blocks=swap if takes_bytes else swap_before, copy_blocks=copy, copy_blocks_mla=copy_latent
    )
    return operators


@pytest.mark.parametrize("takes_bytes", [False, True])
@pytest.mark.parametrize("layout", [Layout.TWO_PLANES, Layout.KEY_SPLIT, Layout.LATENT])
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2"])
def test_operators_of_both_signatures_move_every_byte(
    takes_bytes: bool, layout: Layout, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm._custom_ops", stand_in(takes_bytes))
    executor = Executor("vllm", vllm_operators.prepare)
    result = run_case(executor, geometry(layout, dtype), scenario("mixed", 0, 12, 9, 4), CPU)
    assert result.finding is None
    assert result.num_steps == 12


def test_it_says_why_it_cannot_be_run(monkeypatch: pytest.MonkeyPatch) -> None:
    found: object = None
    monkeypatch.setattr(vllm_operators, "find_spec", lambda name: found)
    assert vllm_operators.unsupported(geometry(Layout.NHD), CPU) == "vllm cannot be imported on this machine"
    found = object()
    assert vllm_operators.unsupported(geometry(Layout.NHD), CPU) == "vLLM's operators need a CUDA device"
    cuda = torch.device("cuda")
    assert "keys and values in separate planes, not hnd" in vllm_operators.unsupported(geometry(Layout.HND), cuda)
    assert vllm_operators.unsupported(geometry(Layout.LATENT), cuda) == ""
