"""vLLM's operators for moving blocks: `swap_blocks`, `swap_blocks_batch`, `copy_blocks` and `reshape_and_cache_flash`.

The executor `vllm` runs the kernels of an importable vllm, on CUDA. `vllm-reference` makes the same calls, but to
`ReferenceOperators`: it shows that the calls are right, and says nothing about the kernels.

What the operators take:

- `swap_blocks(source, target, bytes of a block, mapping)`: both tensors hold block after block; releases before 0.10.1
  have no third argument. mapping: int64 `[pairs, 2]` in main memory.
- `swap_blocks_batch(sources, targets, sizes)`, in later releases: an address, an address and a number of bytes for each
  copy, as int64 in main memory. Nothing orders the copies of one call. CUDA refuses them on its default stream, and
  vLLM makes them on streams of its own.
- `copy_blocks(key caches, value caches, mapping)` and `copy_blocks_mla(caches, mapping)`, until 0.11: the mapping is on
  the device.
- `reshape_and_cache_flash(keys, values, key cache, value cache, slots, type, key scale, value scale)`: stores tokens
  `[tokens, heads, size]` in slots, which count over all blocks. Where there is no `copy_blocks`, blocks of 16 and
  32-bit floats are copied with it, as the only other operator that writes blocks on the device.

Swaps in use `swap_blocks`. Swaps out use `swap_blocks_batch` where it exists. All element types are passed as bytes,
except to `reshape_and_cache_flash`.
Source: vLLM 0.6 to 0.33, vllm/_custom_ops.py and vllm/v1/kv_offload/cpu/gpu_worker.py.
"""

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from kvproof.check.data_plane.device import own_stream
from kvproof.check.data_plane.executors.base import Executor, MoveBlocks
from kvproof.check.data_plane.executors.reference_operators import reference_executor
from kvproof.check.data_plane.memory.layouts import Geometry, Layout
from kvproof.check.data_plane.memory.world import Caches
from kvproof.check.data_plane.steps.moves import Moves, Pair

_TWO_PLANES = (Layout.TWO_PLANES, Layout.KEY_SPLIT)


def unsupported(geometry: Geometry, device: torch.device) -> str:
    """Why vLLM's kernels cannot run a case; empty if they can."""
    if find_spec("vllm") is None:
        return "vllm cannot be imported on this machine"
    if device.type != "cuda":
        return "vLLM's operators need a CUDA device"
    if geometry.layout not in (*_TWO_PLANES, Layout.LATENT):
        return f"vLLM's copy_blocks needs keys and values in separate planes, not {geometry.layout.value}"
    return ""


def unsupported_by_reference(geometry: Geometry, device: torch.device) -> str:
    """Why the calls cannot be tried in a case; empty if they can."""
    if geometry.layout is Layout.PACKED:
        return "vLLM's swap_blocks needs the blocks of a layer side by side, not packed"
    return ""


def prepare(caches: Caches) -> MoveBlocks:
    """Use the operators of the installed vllm on the tensors of the case."""
    return prepare_with(import_module("vllm._custom_ops"), caches)


def prepare_with(operators: Any, caches: Caches) -> MoveBlocks:
    """Use these operators on the tensors of the case."""
    gpu, cpu = ([plane.view(torch.uint8) for plane in planes] for planes in (caches.gpu_planes, caches.cpu_planes))
    block_bytes, takes_bytes = caches.geometry.plane_bytes, len(inspect.signature(operators.swap_blocks).parameters) > 3
    extra, device = [block_bytes] if takes_bytes else [], caches.gpu[0].device

    def swap(sources: list[torch.Tensor], targets: list[torch.Tensor], pairs: tuple[Pair, ...]) -> None:
        mapping = torch.tensor(pairs, dtype=torch.int64)
        for source, target in zip(sources, targets, strict=True):
            operators.swap_blocks(source, target, *extra, mapping)

    def swap_at_once(sources: list[torch.Tensor], targets: list[torch.Tensor], pairs: tuple[Pair, ...]) -> None:
        mapping, from_, to = torch.tensor(pairs, dtype=torch.int64), _addresses(sources), _addresses(targets)
        with own_stream(device) if device.type == "cuda" else nullcontext():
            operators.swap_blocks_batch(
                (from_[:, None] + mapping[:, 0] * block_bytes).flatten(),
                (to[:, None] + mapping[:, 1] * block_bytes).flatten(),
                torch.full((len(from_) * len(pairs),), block_bytes, dtype=torch.int64),
            )

    copy = _copier(operators, caches) or (lambda pairs: swap(gpu, gpu, pairs))
    swap_out = swap_at_once if hasattr(operators, "swap_blocks_batch") else swap

    def move(moves: Moves) -> None:
        if moves.swap_in:
            swap(cpu, gpu, moves.swap_in)
        if moves.swap_out:
            swap_out(gpu, cpu, moves.swap_out)
        if moves.copy:
            copy(moves.copy)

    return move


def _addresses(planes: list[torch.Tensor]) -> torch.Tensor:
    return torch.tensor([plane.data_ptr() for plane in planes], dtype=torch.int64)


def _copier(operators: Any, caches: Caches) -> Callable[[tuple[Pair, ...]], object] | None:
    """The function that copies blocks on the device with an operator for copies; None if no operator can."""
    geometry = caches.geometry
    is_split = geometry.layout in _TWO_PLANES
    if hasattr(operators, "copy_blocks") and (is_split or geometry.layout is Layout.LATENT):
        gpu = [tensor.view(torch.uint8) for tensor in caches.gpu]

        def by_blocks(pairs: tuple[Pair, ...]) -> None:
            mapping = torch.tensor(pairs, dtype=torch.int64, device=gpu[0].device)
            if is_split:
                operators.copy_blocks([tensor[0] for tensor in gpu], [tensor[1] for tensor in gpu], mapping)
            else:
                operators.copy_blocks_mla(gpu, mapping)

        return by_blocks
    is_float = geometry.dtype in ("float16", "bfloat16", "float32")
    if geometry.layout not in (Layout.TWO_PLANES, Layout.NHD) or not is_float:
        return None

    def by_slots(pairs: tuple[Pair, ...]) -> None:
        device = caches.gpu[0].device
        scale = torch.ones(1, dtype=torch.float32, device=device)
        sources, targets = torch.tensor(pairs, dtype=torch.int64, device=device).unbind(1)
        slots = (targets[:, None] * geometry.block_size + torch.arange(geometry.block_size, device=device)).flatten()
        for cache in caches.gpu:
            keys, values = cache.unbind(0 if geometry.layout is Layout.TWO_PLANES else 1)
            tokens = (part.index_select(0, sources).flatten(0, 1) for part in (keys, values))
            operators.reshape_and_cache_flash(*tokens, keys, values, slots, "auto", scale, scale)

    return by_slots


EXECUTOR = Executor("vllm", prepare, unsupported)
REFERENCE = reference_executor("vllm", "vLLM", prepare_with, unsupported_by_reference)
