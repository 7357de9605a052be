"""vLLM's own operators `swap_blocks` and `copy_blocks`. They need an importable vllm and CUDA.

Later releases have one more argument of `swap_blocks`, the bytes of a block; the signature tells which release it is.
The mappings of swaps are int64 tensors in main memory, those of copies are on the device. The operators copy bytes, so
every element type is passed as unsigned bytes.
Source: vLLM 0.6 to 0.10, vllm/_custom_ops.py and csrc/cache_kernels.cu.
"""

import inspect
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from kvproof.check.data_plane.executors.base import Executor, MoveBlocks
from kvproof.check.data_plane.memory.layouts import Geometry, Layout
from kvproof.check.data_plane.memory.world import Caches
from kvproof.check.data_plane.steps.moves import Moves, Pair

_TWO_PLANES = (Layout.TWO_PLANES, Layout.KEY_SPLIT)


def unsupported(geometry: Geometry, device: torch.device) -> str:
    """Why the operators cannot run a case; empty if they can."""
    if find_spec("vllm") is None:
        return "vllm cannot be imported on this machine"
    if device.type != "cuda":
        return "vLLM's operators need a CUDA device"
    if geometry.layout not in (*_TWO_PLANES, Layout.LATENT):
        return f"vLLM's copy_blocks needs keys and values in separate planes, not {geometry.layout.value}"
    return ""


def prepare(caches: Caches) -> MoveBlocks:
    """Use the operators on the typed tensors of the case."""
    operators: Any = import_module("vllm._custom_ops")
    is_split = caches.geometry.layout in _TWO_PLANES
    gpu, cpu = ([tensor.view(torch.uint8) for tensor in tensors] for tensors in (caches.gpu, caches.cpu))
    takes_bytes = len(inspect.signature(operators.swap_blocks).parameters) > 3
    extra = [caches.geometry.part_bytes] if takes_bytes else []

    def swap(sources: list[torch.Tensor], targets: list[torch.Tensor], pairs: tuple[Pair, ...]) -> None:
        mapping = torch.tensor(pairs, dtype=torch.int64)
        for source, target in zip(sources, targets, strict=True):
            for here, there in zip(source, target, strict=True) if is_split else [(source, target)]:
                operators.swap_blocks(here, there, *extra, mapping)

    def move(moves: Moves) -> None:
        if moves.swap_in:
            swap(cpu, gpu, moves.swap_in)
        if moves.swap_out:
            swap(gpu, cpu, moves.swap_out)
        if moves.copy:
            mapping = torch.tensor(moves.copy, dtype=torch.int64, device=gpu[0].device)
            if is_split:
                operators.copy_blocks([tensor[0] for tensor in gpu], [tensor[1] for tensor in gpu], mapping)
            else:
                operators.copy_blocks_mla(gpu, mapping)

    return move


EXECUTOR = Executor("vllm", prepare, unsupported)
