"""What the operators of vLLM and SGLang that move blocks are documented to do, written with torch alone.

An adapter that calls these instead of the kernels is tried without the packages and without a GPU: the order of its
arguments, its units (bytes, elements, tokens), its types, the devices of its tensors, and the order of its work.
Nothing is shown about the kernels.

Where the documentation orders nothing within a call, the reference does what a caller must expect: it reads all sources
before it writes, and writes in reverse order. Copies are queued on the current stream, as those of the kernels.
Source: vLLM 0.33, vllm/_custom_ops.py; SGLang 0.5.23, sgl_kernel/kvcacheio.py.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from kvproof.check.data_plane.executors.base import Executor, MoveBlocks
from kvproof.check.data_plane.memory.layouts import WORD_BYTES, Geometry
from kvproof.check.data_plane.memory.world import Caches
from kvproof.check.data_plane.steps.moves import Pair


def _require(holds: bool, text: str) -> None:
    """Raises ValueError, as the operators refuse what they do not take."""
    if not holds:
        raise ValueError(text)


def _require_indices(tensor: torch.Tensor, name: str, device: torch.device) -> None:
    _require(tensor.dtype == torch.int64, f"{name} is {tensor.dtype}, not int64")
    _require(tensor.device.type == device.type, f"{name} lies on {tensor.device}, not on {device}")


HOST = torch.device("cpu")


def _bytes_from(tensor: torch.Tensor) -> torch.Tensor:
    """The memory from the first element of a tensor to the end of its storage, as bytes."""
    words = tensor.view(torch.uint8)
    first = words.storage_offset()
    return words.as_strided((tensor.untyped_storage().nbytes() - first,), (1,), first)


class ReferenceOperators:
    """The operators. memory: all tensors into which an address may point, those of the device first."""

    def __init__(self, memory: Sequence[torch.Tensor]) -> None:
        self.device = memory[0].device
        self._memory = [(one.data_ptr(), _bytes_from(one)) for one in memory]

    # vLLM --------------------------------------------------------------------------------------------------------

    def swap_blocks(
        self, source: torch.Tensor, target: torch.Tensor, block_bytes: int, block_mapping: torch.Tensor
    ) -> None:
        """Copy block after block, in the order of the mapping."""
        _require_indices(block_mapping, "block_mapping", HOST)
        here, there = _bytes_from(source), _bytes_from(target)
        for from_, to in (block_mapping * block_bytes).tolist():
            there[to : to + block_bytes].copy_(here[from_ : from_ + block_bytes], non_blocking=True)

    def swap_blocks_batch(self, sources: torch.Tensor, targets: torch.Tensor, sizes: torch.Tensor) -> None:
        """Copy sizes[i] bytes from address sources[i] to targets[i], in any order; not on the default stream."""
        if self.device.type == "cuda":
            default = torch.cuda.default_stream(self.device)
            _require(
                torch.cuda.current_stream(self.device) != default, "a batch cannot be copied on the default stream"
            )
        for name, one in (("sources", sources), ("targets", targets), ("sizes", sizes)):
            _require_indices(one, name, HOST)
        places = zip(sources.tolist(), targets.tolist(), sizes.tolist(), strict=True)
        self._copy_unordered([(self._at(here, size), self._at(there, size)) for here, there, size in places])

    def reshape_and_cache_flash(
        self,
        key: torch.Tensor,
        value: torch.Tensor,
        key_cache: torch.Tensor,
        value_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
        kv_cache_dtype: str,
        k_scale: torch.Tensor,
        v_scale: torch.Tensor,
    ) -> None:
        """Store tokens `[tokens, heads, size]` in slots of caches `[blocks, slots, heads, size]`."""
        _require_indices(slot_mapping, "slot_mapping", self.device)
        _require(kv_cache_dtype == "auto" and key.dtype == key_cache.dtype, "the types of tokens and caches differ")
        for tokens, cache in ((key, key_cache), (value, value_cache)):
            _require(tokens.shape == (len(slot_mapping), *cache.shape[2:]), f"tokens have the shape {tokens.shape}")
            cache[slot_mapping // cache.shape[1], slot_mapping % cache.shape[1]] = tokens

    # SGLang ------------------------------------------------------------------------------------------------------

    def transfer_kv_per_layer_mla(
        self, src: torch.Tensor, dst: torch.Tensor, src_indices: torch.Tensor, dst_indices: torch.Tensor, item_size: int
    ) -> None:
        """Copy items of item_size bytes of one layer, in any order."""
        self._transfer([(src, dst)], src_indices, dst_indices, item_size)

    def transfer_kv_per_layer(
        self,
        src_k: torch.Tensor,
        dst_k: torch.Tensor,
        src_v: torch.Tensor,
        dst_v: torch.Tensor,
        src_indices: torch.Tensor,
        dst_indices: torch.Tensor,
        item_size: int,
    ) -> None:
        """The same for keys and values."""
        self._transfer([(src_k, dst_k), (src_v, dst_v)], src_indices, dst_indices, item_size)

    def transfer_kv_all_layer_mla(
        self,
        src_layers: torch.Tensor,
        dst_layers: torch.Tensor,
        src_indices: torch.Tensor,
        dst_indices: torch.Tensor,
        item_size: int,
        num_layers: int,
    ) -> None:
        """Copy items of all layers, in any order. src_layers, dst_layers: the addresses of the layers, as uint64."""
        self._transfer(self._layers(src_layers, dst_layers, num_layers), src_indices, dst_indices, item_size)

    def transfer_kv_all_layer(
        self,
        src_k_layers: torch.Tensor,
        dst_k_layers: torch.Tensor,
        src_v_layers: torch.Tensor,
        dst_v_layers: torch.Tensor,
        src_indices: torch.Tensor,
        dst_indices: torch.Tensor,
        item_size: int,
        num_layers: int,
    ) -> None:
        """The same for keys and values."""
        keys = self._layers(src_k_layers, dst_k_layers, num_layers)
        values = self._layers(src_v_layers, dst_v_layers, num_layers)
        self._transfer([*keys, *values], src_indices, dst_indices, item_size)

    def transfer_kv_direct(
        self,
        src_layers: list[torch.Tensor],
        dst_layers: list[torch.Tensor],
        src_indices: torch.Tensor,
        dst_indices: torch.Tensor,
        page_size: int,
    ) -> None:
        """Copy tokens, the rows of each layer. Indices come in whole pages of page_size adjacent tokens."""
        _require(len(src_indices) % page_size == 0, f"{len(src_indices)} tokens are not whole pages of {page_size}")
        for here, there, count in _runs(list(zip(src_indices.tolist(), dst_indices.tolist(), strict=True))):
            for source, target in zip(src_layers, dst_layers, strict=True):
                target[there : there + count].copy_(source[here : here + count], non_blocking=True)

    def _layers(self, sources: torch.Tensor, targets: torch.Tensor, num_layers: int) -> list[list[torch.Tensor]]:
        """The source and target of each layer, from their addresses."""
        for one in (sources, targets):
            _require(one.dtype == torch.uint64 and one.device.type == self.device.type, "addresses are no uint64 there")
            _require(len(one) == num_layers, f"{len(one)} addresses are given for {num_layers} layers")
        both = zip(sources.view(torch.int64).tolist(), targets.view(torch.int64).tolist(), strict=True)
        return [[self._at(address) for address in pair] for pair in both]

    def _transfer(
        self, layers: Sequence[Sequence[torch.Tensor]], sources: torch.Tensor, targets: torch.Tensor, item_size: int
    ) -> None:
        """Copy items between each two buffers. Items that follow each other are copied together."""
        _require_indices(sources, "src_indices", self.device)
        _require_indices(targets, "dst_indices", self.device)
        _require(item_size % WORD_BYTES == 0, f"item_size is {item_size}, which is no multiple of {WORD_BYTES}")
        copies = []
        for here, there, count in _runs(list(zip(sources.tolist(), targets.tolist(), strict=True))):
            size = count * item_size
            for source, target in layers:
                from_, to = _bytes_from(source)[here * item_size :], _bytes_from(target)[there * item_size :]
                copies.append((from_[:size], to[:size]))
        self._copy_unordered(copies)

    def _at(self, address: int, size: int | None = None) -> torch.Tensor:
        """The memory at this address, as bytes. size: None is up to the end of its storage."""
        for start, memory in self._memory:
            if start <= address < start + len(memory):
                return memory[address - start :][:size]
        raise ValueError(f"address {address} is in no tensor")

    def _copy_unordered(self, copies: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Read all sources on the device, and then write the targets, the last one first."""
        staged = [torch.empty_like(one, device=self.device).copy_(one, non_blocking=True) for one, _ in copies]
        for bytes_read, (_, target) in reversed(list(zip(staged, copies, strict=True))):
            target.copy_(bytes_read, non_blocking=True)


def _runs(pairs: Sequence[Pair]) -> Iterator[tuple[int, int, int]]:
    """First source, first target and length of each run of pairs that follow each other on both sides."""
    first = 0
    for number, (source, target) in enumerate(pairs, start=1):
        if number == len(pairs) or pairs[number] != (source + 1, target + 1):
            yield *pairs[first], number - first
            first = number


def reference_executor(
    name: str,
    engine: str,
    prepare_with: Callable[[Any, Caches], MoveBlocks],
    unsupported: Callable[[Geometry, torch.device], str],
) -> Executor:
    """An executor that makes the calls of an engine's executor to `ReferenceOperators`.

    name: of the engine's executor. prepare_with: prepares its calls to given operators.
    """

    def prepare(caches: Caches) -> MoveBlocks:
        return prepare_with(ReferenceOperators([*caches.gpu_planes, *caches.cpu_planes]), caches)

    note = (
        f"{name}-reference ran the reference semantics of {engine}'s operators, not the kernels: they remain unknown."
    )
    untimed = "its speed would say nothing about that of the kernels"
    return Executor(f"{name}-reference", prepare, unsupported, note=note, untimed=untimed)
