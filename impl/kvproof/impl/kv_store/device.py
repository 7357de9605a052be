"""The blocks of a device in front of a store: GPU, host memory, disk.

`save` copies blocks to slots of host memory under their keys; what these slots had goes to the disk first. `load`
brings keys back to blocks, from host memory or through it from the disk. The copies between the device and host memory
are those of the KV cache engine (`BlockMover`), with one mapping for as many blocks as the slots allow, so they are
checked as the engine's swaps are, and a copy has ended when the call returns.

A caller asks `find` how many blocks of a prefix can come back, and then loads them. A key whose bytes on the disk are
not whole is not loaded: the answer of `load` says which keys are, and the block of another key is left as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from kvproof.impl.kv_cache_engine import BlockMover
from kvproof.impl.kv_store.memory import Planes
from kvproof.impl.kv_store.tiers import TieredStore

KeyedBlock = tuple[bytes, int]  # a key, and a block of the device


class DeviceBlocks:
    """The blocks of one device, which a store keeps by key.

    planes: of the device's pool, such as the GPU planes of a KV cache engine. host: the memory of the store's host
    tier; several devices may share it and the store. Raises InvalidValueError if the planes differ in rows.
    """

    def __init__(self, planes: Sequence[torch.Tensor], host: Planes, store: TieredStore) -> None:
        self.store = store
        self._mover = BlockMover(planes, host.planes)

    def find(self, keys: Iterable[bytes]) -> int:
        """How many of these keys, from the first on, are in a tier."""
        number = 0
        for key in keys:
            if not self.store.has(key):
                break
            number += 1
        return number

    def save(self, blocks: Iterable[KeyedBlock]) -> list[bytes]:
        """Keep the content of blocks. Returns the keys that the store has now; there was no slot for the others."""
        store, saved = self.store, list[bytes]()
        copies: dict[bytes, tuple[int, int]] = {}  # from block to slot
        for key, block in blocks:
            if store.is_in_memory(key) or key in copies:
                saved.append(key)
                continue
            slot = store.place(key)
            if slot is None and copies:  # the slots of this very call are in the way
                self._copy_out(copies)
                slot = store.place(key)
            if slot is not None:
                copies[key] = block, slot
                saved.append(key)
        self._copy_out(copies)
        return saved

    def _copy_out(self, copies: dict[bytes, tuple[int, int]]) -> None:
        try:
            self._mover.swap_out(copies.values())
        except BaseException:
            self.store.give_up(copies)
            raise
        self.store.keep(copies)
        copies.clear()

    def load(self, blocks: Iterable[KeyedBlock]) -> list[bytes]:
        """Write the content of keys to blocks. Returns the keys that are there now; the others are in no tier whole."""
        loaded: list[bytes] = []
        copies: list[tuple[bytes, int, int]] = []  # from slot to block
        for key, block in blocks:
            slot = self.store.bring(key)
            if slot is None and copies:  # the slots of this very call are in the way
                self._copy_in(copies)
                slot = self.store.bring(key)
            if slot is not None:
                copies.append((key, slot, block))
                loaded.append(key)
        self._copy_in(copies)
        return loaded

    def _copy_in(self, copies: list[tuple[bytes, int, int]]) -> None:
        try:
            self._mover.swap_in([(slot, block) for _, slot, block in copies])
        finally:
            self.store.release([key for key, _, _ in copies])
            copies.clear()
