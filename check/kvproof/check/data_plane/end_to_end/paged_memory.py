"""Keys and values behind block tables, in the tensors of the KV cache engine: what a paged attention kernel sees.

The slot of a token is `table[position // block size] * block size + position % block size`. It is computed only here.
Blocks are found through the typed view of the layout, so the tokens reveal a layout that is moved in one way and read
in another.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from kvproof.check.data_plane.end_to_end.exact_decoder import ELEMENT_MAX
from kvproof.impl import KVCacheEngine, KVLayout

Slots = Callable[[list[int]], list[int]]


@dataclass
class PagedMemory:
    """The memory of one sequence for one chunk, which covers positions `start` to `stop - 1`.

    write_table, read_table: the block table, once for writing and once for reading. written, read_back: functions that
    slots pass through before they are used. Faults can be planted in all four.
    """

    engine: KVCacheEngine
    write_table: list[int]
    read_table: list[int]
    start: int
    stop: int
    written: Slots
    read_back: Slots

    def __post_init__(self) -> None:
        self.write_slots = self._places(self.written(self._slots(self.write_table, range(self.start, self.stop))))
        self.read_slots = self._places(self.read_back(self._slots(self.read_table, range(self.stop))))

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Store the chunk in its slots."""
        key_cache, value_cache = key_and_value(self.engine, layer)
        key_cache[self.write_slots] = keys.to(key_cache.dtype)
        if value_cache is not key_cache:
            value_cache[self.write_slots] = values.to(value_cache.dtype)

    def read(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Fetch every position up to the end of the chunk."""
        key_cache, value_cache = key_and_value(self.engine, layer)
        return key_cache[self.read_slots].to(torch.int64), value_cache[self.read_slots].to(torch.int64)

    def _slots(self, table: list[int], positions: range) -> list[int]:
        size = self.engine.shape.block_size
        return [table[position // size] * size + position % size for position in positions]

    def _places(self, slots: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Block ids, and slot numbers within these blocks."""
        numbers = torch.tensor(slots, dtype=torch.int64, device=self.engine.device)
        size = self.engine.shape.block_size
        return numbers // size, numbers % size


def key_and_value(engine: KVCacheEngine, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Views [blocks, slots, KV heads, head size] of one GPU layer. In a latent layer the value view is the key view."""
    cache = engine.gpu_cache[layer]
    match engine.shape.layout:
        case KVLayout.TWO_PLANES:
            return cache[0], cache[1]
        case KVLayout.NHD | KVLayout.HND:
            return cache[:, 0], cache[:, 1]
        case KVLayout.LATENT:
            rows = cache.unsqueeze(2)
            return rows, rows


def fill_with_junk(engine: KVCacheEngine, seed: int) -> None:
    """Fill both pools with valid elements, so that a block that was not moved is not right by chance."""
    drawn = torch.Generator().manual_seed(seed)
    for tensor in (*engine.gpu_cache, *engine.cpu_cache):
        tensor.copy_(torch.randint(0, ELEMENT_MAX + 1, tensor.shape, generator=drawn).to(tensor.dtype))
