"""SGLang's operators for moving tokens: `transfer_kv_per_layer`, `transfer_kv_all_layer`, both for latent caches too
(`_mla`), and `transfer_kv_direct`.

The executor `sglang` runs the kernels of an importable sgl_kernel, on CUDA. `sglang-reference` makes the same calls,
but to `ReferenceOperators`: it shows that the calls are right, and says nothing about the kernels.

SGLang keeps keys and values in one buffer each per layer, token after token. Indices are int64 numbers of tokens, on
the device. The size of an item is the bytes of one token in one layer, a multiple of 8. The operators of all layers get
the addresses of the buffers as a uint64 tensor on the device. Nothing orders the tokens of one call. Swaps in use the
operator of one layer and swaps out that of all layers, as SGLang loads and writes back; copies use
`transfer_kv_direct`.

`set_kv_buffer` of SGLang's pools is no operator but an assignment by torch, and is left out.
Source: SGLang 0.5.5 to 0.5.23, sgl_kernel/kvcacheio.py and sglang/srt/mem_cache/memory_pool_host.py.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from kvproof.check.data_plane.executors.base import Executor, MoveBlocks
from kvproof.check.data_plane.executors.reference_operators import reference_executor
from kvproof.check.data_plane.memory.layouts import WORD_BYTES, Geometry, Layout
from kvproof.check.data_plane.memory.world import Caches
from kvproof.check.data_plane.steps.moves import Moves, Pair


def unsupported(geometry: Geometry, device: torch.device) -> str:
    """Why SGLang's kernels cannot run a case; empty if they can."""
    if find_spec("sgl_kernel") is None:
        return "sgl_kernel cannot be imported on this machine"
    if device.type != "cuda":
        return "SGLang's operators need a CUDA device"
    return unsupported_by_reference(geometry, device)


def unsupported_by_reference(geometry: Geometry, device: torch.device) -> str:
    """Why the calls cannot be tried in a case; empty if they can."""
    if geometry.layout not in (Layout.TWO_PLANES, Layout.LATENT):
        return f"SGLang keeps keys and values in separate buffers, token after token, not {geometry.layout.value}"
    if _item_bytes(geometry) % WORD_BYTES:
        return f"SGLang's operators move whole words of {WORD_BYTES} bytes, and a token has {_item_bytes(geometry)}"
    return ""


def _item_bytes(geometry: Geometry) -> int:
    return geometry.part_bytes // geometry.block_size


def prepare(caches: Caches) -> MoveBlocks:
    """Use the operators of the installed sgl_kernel on the tensors of the case."""
    return prepare_with(import_module("sgl_kernel.kvcacheio"), caches)


def prepare_with(operators: Any, caches: Caches) -> MoveBlocks:
    """Use these operators on the tensors of the case."""
    geometry, device = caches.geometry, caches.gpu[0].device
    is_latent, size = geometry.layout is Layout.LATENT, _item_bytes(geometry)
    gpu, cpu = (_buffers(caches, tensors) for tensors in (caches.gpu, caches.cpu))  # of keys, then of values

    def tokens(pairs: tuple[Pair, ...]) -> tuple[torch.Tensor, ...]:
        first = torch.tensor(pairs, dtype=torch.int64) * geometry.block_size
        within = torch.arange(geometry.block_size, dtype=torch.int64)
        return tuple((blocks[:, None] + within).flatten().to(device) for blocks in first.unbind(1))

    def swap_in(pairs: tuple[Pair, ...]) -> None:
        indices = tokens(pairs)
        for layer in range(geometry.num_layers):
            both = [part for source, target in zip(cpu, gpu, strict=True) for part in (source[layer], target[layer])]
            if is_latent:
                operators.transfer_kv_per_layer_mla(*both, *indices, size)
            else:
                operators.transfer_kv_per_layer(*both, *indices, size)

    def swap_out(pairs: tuple[Pair, ...]) -> None:
        addresses = [
            _addresses(part, device) for source, target in zip(gpu, cpu, strict=True) for part in (source, target)
        ]
        if is_latent:
            operators.transfer_kv_all_layer_mla(*addresses, *tokens(pairs), size, geometry.num_layers)
        else:
            operators.transfer_kv_all_layer(*addresses, *tokens(pairs), size, geometry.num_layers)

    def copy(pairs: tuple[Pair, ...]) -> None:
        layers = [layer for part in gpu for layer in part]
        operators.transfer_kv_direct(layers, layers, *tokens(pairs), geometry.block_size)

    def move(moves: Moves) -> None:
        for pairs, execute in ((moves.swap_in, swap_in), (moves.swap_out, swap_out), (moves.copy, copy)):
            if pairs:
                execute(pairs)

    return move


def _buffers(caches: Caches, tensors: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    """The buffers of each layer, as bytes `[tokens, bytes of a token]`: of keys, then of values; or of both in one."""
    is_latent, size = caches.geometry.layout is Layout.LATENT, _item_bytes(caches.geometry)
    parts = [[tensor] for tensor in tensors] if is_latent else [list(tensor) for tensor in tensors]
    return [[part.view(torch.uint8).view(-1, size) for part in layers] for layers in zip(*parts, strict=True)]


def _addresses(buffers: list[torch.Tensor], device: torch.device) -> torch.Tensor:
    return torch.tensor([buffer.data_ptr() for buffer in buffers], dtype=torch.uint64).to(device)


EXECUTOR = Executor("sglang", prepare, unsupported)
REFERENCE = reference_executor("sglang", "SGLang", prepare_with, unsupported_by_reference)
