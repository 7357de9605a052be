"""Layers with a sliding window beside layers with full attention, in SGLang: a second pool, and a map into it.

A request has a row of slots for full attention; the allocator's map has the slot of the window for each of them, or 0.
Blocks of the window come after those of full attention, and are numbered as these. The table of the window has, page by
page, what the map says of the row: of the prefix that lies in the tree as far as the request's lock holds it there, and
of what the request has alone. What is in the tree, and not held by this lock, is not the request's: the tree may give
it up, or get it back from another request.

SGLang counts the tokens before a token, so a window of w tokens is one of w - 1.
"""

from typing import Any

import numpy as np
import torch

from kvproof.check.protocol.fault_attribution import EngineFailure
from kvproof.check.protocol.manager import FULL, NULL_BLOCK, WINDOW, Unsupported
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.subjects.loading.stub_modules import StubObject
from kvproof.check.subjects.sglang.scheduler_loader import MEM_CACHE, component_types
from kvproof.spec.compilation import sized_function

NUM_SPARE = 2  # pages in each pool beside those of the longest sequence, or of a prefix's window and another one
WINDOW_SHARE = 4, 9  # of what is left: SGLang's pool of the window has by default 0.8 times the slots of the other


def shares_of(config: SchedulerConfig) -> tuple[int, int]:
    """The blocks of full attention, and of the window; 0 without one. Raises Unsupported."""
    if config.kv_groups == (FULL,) and config.window is None:
        return config.num_gpu_blocks, 0
    if sorted(config.kv_groups) != sorted((FULL, WINDOW)):
        raise Unsupported("a window has one pool, beside that of full attention")
    if (config.window or 0) < 2:
        raise Unsupported("a window reaches to the token before")
    blocks_for = sized_function("blocks_for", config.block_size)
    needed = blocks_for(config.max_model_len) + NUM_SPARE
    needed_window = blocks_for(max(config.max_model_len, 2 * (config.window or 0))) + NUM_SPARE
    rest = config.num_gpu_blocks - needed - needed_window
    if rest < 0:
        raise Unsupported("the longest sequence, or its window twice, does not fit its pool")
    num_window = needed_window + rest * WINDOW_SHARE[0] // WINDOW_SHARE[1]
    return config.num_gpu_blocks - num_window, num_window


def window_pool_of(release: StubObject, config: SchedulerConfig) -> Any:
    """An allocator of both pools."""
    base = release.of[f"{MEM_CACHE}.base_swa_memory_pool"].BaseSWAKVPool
    kind: Any = type("WindowPool", (base,), {"__module__": __name__, "register_mapping": _register})
    kind.__abstractmethods__ = frozenset()
    memory = object.__new__(kind)  # KV of no layers; it has the map
    memory.translate_loc_from_full_to_swa = lambda slots: memory.full_to_swa_index_mapping[slots]
    memory.full_kv_pool = memory.swa_kv_pool = None
    num_full, num_window = shares_of(config)
    size = config.block_size
    allocator = release.of[f"{MEM_CACHE}.allocator.swa"].SWATokenToKVPoolAllocator
    return allocator(num_full * size, num_window * size, size, torch.float16, "cpu", memory, False)


def _register(memory: Any, places: Any) -> None:
    memory.full_to_swa_index_mapping = places


class WindowTables:
    """The tables of the window of one scheduler."""

    def __init__(self, release: StubObject, config: SchedulerConfig, scheduler: Any) -> None:
        self._component = component_types(release).SWA
        self._pool, self._tree, self._size = (
            scheduler.token_to_kv_pool_allocator,
            scheduler.tree_cache,
            config.block_size,
        )
        self._first = shares_of(config)[0]

    def of(self, request: Any, row: Any, seq: int) -> tuple[list[int], list[int]]:
        """The table of a request with this row of slots, and what it keeps before entries that it gave up.

        Raises EngineFailure if a page's slots are not in order.
        """
        size = self._size
        slots = self._pool.full_to_swa_index_mapping.numpy()[row]
        slots[~self._held(request, len(row))] = 0
        first = slots[::size]
        in_order = np.where(first[:, None] > 0, first[:, None] + np.arange(size), 0).ravel()[: len(slots)]
        if (in_order != slots).any():
            raise EngineFailure(f"the slots of sequence {seq} in the window are not in their pages: {slots.tolist()}")
        table = [slot // size - 1 + self._first if slot else NULL_BLOCK for slot in first.tolist()]
        num_left = len(table) - table[::-1].index(NULL_BLOCK) if NULL_BLOCK in table else 0
        kept = [block for block in table[:num_left] if block != NULL_BLOCK]
        return [NULL_BLOCK] * num_left + table[num_left:], kept

    def _held(self, request: Any, length: int) -> Any:
        """Of each position, whether what the map says of it is the request's."""
        held = np.ones(length, dtype=bool)
        node, boundary, is_released = lock_of(request, self._component)
        core = getattr(self._tree, "tree_core", self._tree)  # from 0.5.17, with numbers in place of nodes
        if node is None or not hasattr(core, "root_node"):  # nothing is in a tree
            return held
        path, at = [], core.node_by_id(node) if hasattr(core, "node_by_id") else node
        while at is not core.root_node:
            path.append(at)
            at = at.parent
        stop, is_locked = sum(len(one.key) for one in path), not is_released
        for one in path:
            start = stop - len(one.key)
            part = one.component_data[self._component]
            if not is_locked or part.value is None:
                held[start:stop] = False
            if boundary is not None and part.metadata.get("uuid") == boundary:
                is_locked = False
            stop = start
        return held

    def num_free(self) -> int:
        """The slots in both pools that are free, or in the tree without a lock."""
        free = self._pool.full_available_size() + self._pool.swa_available_size()
        return int(free + self._tree.full_evictable_size() + self._tree.swa_evictable_size())


def lock_of(request: Any, component: Any) -> tuple[Any, Any, bool]:
    """The node that a request locks, where the lock of the window ends (None: at the root), and whether it is gone."""
    if hasattr(request, "lock"):  # from 0.5.22
        lock = request.lock
        if lock is None:
            return None, None, False
        return lock.node, lock.receipt.component_lock_uuids.get(component), lock.swa_released
    receipt = getattr(request, "lock_receipt", request)  # from 0.5.20
    if hasattr(receipt, "component_lock_uuids"):  # from 0.5.21
        return request.last_node, receipt.component_lock_uuids.get(component), _is_released(request)
    return request.last_node, receipt.swa_uuid_for_lock, _is_released(request)


def _is_released(request: Any) -> bool:
    return bool(getattr(request, "swa_prefix_lock_released", False))
