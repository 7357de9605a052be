"""SGLang's token pool, request table and prefix cache as a subject, from release 0.5.9 on.

A block is a page. Its id is one less than SGLang's, because SGLang keeps page 0 for padding and never allocates it. The
adapter replaces SGLang's scheduler (`sglang/srt/managers/schedule_batch.py`, `schedule_policy.py` and
`scheduler_components/batch_result_processor.py`) and its allocation (`mem_cache/allocation.py`, `common.py`):

- Admission: the tree is searched for all tokens of a waiting request except the last (`init_next_round_input`). The
  prefix found is locked, and the pool must provide the remaining pages, if necessary by eviction (`PrefillAdder`,
  `alloc_for_extend`).
- After a step that computed a chunk of a prompt, the chunk is published in the tree (`checkpoint`, before 0.5.22
  `cache_unfinished_req`). If another request has already published the same pages, the request takes over those pages
  and frees its own.
- A decode gets its slot if the pool has a page after eviction (`check_decode_mem`, `alloc_for_decode`).
- A finished request publishes everything that it has computed (`release_kv_cache`). A retracted request publishes
  nothing.

The cache is the one that the release's `default_radix_cache_factory` creates for full attention: `RadixCache` or
`ChunkCache` up to 0.5.16, then `UnifiedRadixCache`, here with its tree core in Python.

Limits: before 0.5.22 only a triton kernel can allocate pages of several slots, so a block of these releases has one
slot. Host tiers, windows, states and sessions are not driven. SGLang's own admission keeps more pages in reserve than
the exact number that is required here.
"""

import inspect
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.fault_attribution import EngineFailure
from kvproof.check.protocol.manager import Admission, Assumption, Config, Scheduled, Unsupported
from kvproof.check.protocol.manager_adapter import BOOLEAN_ADMISSION, ManagerAdapter
from kvproof.check.subjects.sglang.fakes import FakeRequest
from kvproof.check.subjects.sglang.loader import import_release
from kvproof.check.subjects.sglang.request_key import keys_given
from kvproof.spec.compilation import sized_function

NUM_ROWS, ROW_LENGTH, ROW_LENGTH_MAX = 96, 256, 8_192  # requests, and tokens of one; beyond any run
ASSUMPTIONS = (
    BOOLEAN_ADMISSION,
    Assumption("asks-first", "The caller locks what it found, and allocates only what the pool has after eviction."),
    Assumption("page-chunks", "With the prefix cache, every chunk of a prompt but the last ends where a page ends."),
    Assumption("adapter-ids", "Adapters have ids of one length, so that an id after a key names both."),
    Assumption("synchronous", "A step is over before the next is scheduled; frees come between steps."),
)


class NoSlots(Exception):
    """The pool has no slots left, even after eviction."""


class SGLang(ManagerAdapter):
    """SGLang's allocator for one page size, its request-to-token table, and the prefix cache over both."""

    assumptions = ASSUMPTIONS
    refusals = (NoSlots,)

    def __init__(self, version: str) -> None:
        self.name = f"sglang {version}"
        self._release = release = import_release(version)
        self._publishes = hasattr(release.base.BasePrefixCache, "checkpoint")  # from 0.5.22
        slots = release.radix.RadixKey.__slots__ if hasattr(release.radix.RadixKey, "__slots__") else ()
        self._salted = "cache_salt" in slots  # from 0.5.20
        self._as_array = hasattr(release.radix, "array")  # from 0.5.13, tokens are arrays
        paged = release.allocator.PagedTokenToKVPoolAllocator
        self.capabilities = Capabilities(
            caching=True,
            chunked=True,
            adapters=True,
            salts=True,
            reset=True,
            block_aligned_chunks=True,
            dedups_after_step=True,
            steps_are_certain=True,
            block_size_max=None if "use_triton_kernels" in inspect.getsource(paged) else 1,
        )

    def make(self, config: Config) -> Any:
        """A new pool and a cache over it. Raises Unsupported for pages of several slots before 0.5.22."""
        import torch

        release, size = self._release, config.block_size
        self._torch, self._size = torch, size
        torch.set_num_threads(1)  # for tensors of a few hundred slots, another thread waits more than it works
        num_tokens = config.num_gpu_blocks * size
        row_length = min(ROW_LENGTH + num_tokens, ROW_LENGTH_MAX)
        self._table = release.memory.ReqToTokenPool(NUM_ROWS, row_length, "cpu", False)
        if size == 1:
            pool = release.allocator.TokenToKVPoolAllocator(num_tokens, torch.float16, "cpu", None, False)
        else:
            paged = release.allocator.PagedTokenToKVPoolAllocator
            pool = paged(num_tokens, size, torch.float16, "cpu", None, False)
            if not hasattr(pool, "use_triton_kernels"):
                raise Unsupported("only a triton kernel of this release can allocate pages of several slots")
        self._pool = pool
        self._requests: dict[int, FakeRequest] = {}
        params = release.params.CacheInitParams(not config.caching, self._table, pool, size)
        if release.unified is not None:
            params.tree_components = (release.components.ComponentType.FULL,)
            return release.unified.UnifiedRadixCache(params)
        return release.radix.RadixCache(params) if config.caching else release.chunk.ChunkCache(params)

    # Lookup, locks and admission --------------------------------------------------------------------------------

    def _request(self, seq: int) -> FakeRequest:
        if seq not in self._requests:
            extra, salt, adapter = keys_given(self.keys[seq], self._salted)
            joined = self._release.joining(extra, adapter)
            self._requests[seq] = FakeRequest(seq, self.tokens[seq], joined, salt, self._as_array)
        return self._requests[seq]

    def _match(self, request: FakeRequest) -> Any:
        """The longest prefix in the tree of all tokens except the last."""
        options = {"cache_salt": request.cache_salt} if self._salted else {}
        key = self._release.radix.RadixKey(request.ids_but_last, request.extra_key, **options)
        return self.manager.match_prefix(self._release.base.MatchPrefixParams(key=key))

    def _length(self, found: Any) -> int:
        """The number of tokens of a prefix that was found."""
        return len(found.device_indices) if hasattr(found, "device_indices") else int(found.device_prefix_len)

    def _slots(self, found: Any) -> Any:
        """The slots of a prefix that was found."""
        if hasattr(found, "device_indices"):
            return found.device_indices
        if not found.device_prefix_len:
            return self._torch.empty((0,), dtype=self._torch.int64)
        return self.manager.path_device_indices(found.last_device_node)[: found.device_prefix_len]

    def _lock(self, request: FakeRequest, node: Any) -> None:
        if self._publishes:
            request.lock = self.manager.lock(node)
        else:
            receipt = self.manager.inc_lock_ref(node)
            request.lock_receipt = receipt.to_dec_params() if hasattr(receipt, "to_dec_params") else None
        request.last_node = node

    def _unlock(self, request: FakeRequest) -> None:
        if self._publishes:
            self.manager.unlock(request.lock)
            request.lock = None
        elif request.lock_receipt is not None:
            self.manager.dec_lock_ref(request.last_node, request.lock_receipt)
        else:
            self.manager.dec_lock_ref(request.last_node)
        request.last_node = None

    def _pages(self, num_tokens: int) -> int:
        num_pages: int = sized_function("blocks_for", self._size)(num_tokens)
        return num_pages

    def hits(self, group: int) -> int:
        (seq,) = self.groups[group]
        return self._length(self._match(self._request(seq)))

    def can_admit(self, group: int) -> Admission:
        """As in `PrefillAdder`: while the prefix found is locked, the other pages must be free or evictable."""
        (seq,) = self.groups[group]
        request = self._request(seq)
        found = self._match(request)
        self._lock(request, found.last_device_node)
        fits = self._pages(len(request.all_ids)) - self._length(found) // self._size <= self.num_free()
        self._unlock(request)
        return self.admission(fits)

    # Calls ------------------------------------------------------------------------------------------------------

    def allocate(self, seq: int, tokens: list[int]) -> int:
        """Take a row, the prefix found, and slots for the first chunk. Returns the length of that prefix."""
        request = self._request(seq)
        found = self._match(request)
        self._lock(request, found.last_device_node)
        slots = self._slots(found)
        hit = len(slots)
        request.prefix_indices, request.prefix_len = slots, hit
        request.cache_protected_len = hit
        stop = len(tokens)
        if self.config.chunked:
            stop = min(stop, self._chunk_end(hit + self.first_chunk))
        self._table.alloc([request])
        if hit:
            self._table.write((request.req_pool_idx, slice(0, hit)), slots)
        self._extend(request, hit, stop)
        return hit

    def _chunk_end(self, stop: int) -> int:
        return self._pages(stop) * self._size if self.config.caching else stop

    def _extend(self, request: FakeRequest, start: int, stop: int) -> None:
        """As in `alloc_for_extend`: evict for the tokens and one page more, then allocate and write the row."""
        count, size = stop - start, self._size
        evict = self._release.common.evict_from_tree_cache
        if size == 1:
            evict(self.manager, count)
            slots = self._pool.alloc(count)
        else:
            evict(self.manager, count + size)
            before, after, last = self._single(start), self._single(stop), self._last_slot(request, start)
            slots = self._pool.alloc_extend(before, before, after, after, last, count)
        self._write(request, start, stop, slots)

    def _write(self, request: FakeRequest, start: int, stop: int, slots: Any) -> None:
        if slots is None:
            raise NoSlots(f"the pool has no slots for {stop - start} tokens")
        self._table.write((request.req_pool_idx, slice(start, stop)), slots)
        request.kv_allocated_len = request.kv_committed_len = request.computed = stop

    def _single(self, number: int) -> Any:
        """A tensor of one number; `full` makes it in less than half the time of `tensor`."""
        return self._torch.full((1,), number)

    def _last_slot(self, request: FakeRequest, stop: int) -> Any:
        """The slot of the last token before `stop`, as a tensor; -1 if there is none."""
        return self._single(int(self._rows()[request.req_pool_idx, stop - 1]) if stop else -1)

    def _rows(self) -> Any:
        """The request table as an array over the same memory, which is read with less work than a tensor."""
        return self._table.req_to_token.numpy()

    def can_append(self, group: int) -> bool:
        """As in `check_decode_mem`: if the next token needs a new page, the pool has one after eviction."""
        (seq,) = self.groups[group]
        request = self._request(seq)
        needed = (self._pages(len(request.all_ids)) - self._pages(request.kv_allocated_len)) * self._size
        if self._is_prompt(request):
            return needed <= self.num_free() * self._size
        self._release.common.evict_from_tree_cache(self.manager, needed)
        return bool(self._pool.available_size() >= needed)

    def _is_prompt(self, request: FakeRequest) -> bool:
        return request.kv_committed_len < request.num_prompt

    def append(self, seq: int, num_tokens: int) -> None:
        """Allocate the next chunk of a prompt, or, as in `alloc_for_decode`, a slot for one token."""
        request = self._request(seq)
        start = request.kv_committed_len
        if self._is_prompt(request):
            self._extend(request, start, start + num_tokens)
            return
        size = self._size
        self._release.common.evict_from_tree_cache(self.manager, size)
        if size == 1:
            slots = self._pool.alloc(1)
        else:
            after = self._single(start + 1)
            slots = self._pool.alloc_decode(after, after, self._last_slot(request, start))
        self._write(request, start, start + 1, slots)

    def grow(self, seq: int, token: int) -> None:
        super().grow(seq, token)
        self._request(seq).all_ids.append(token)

    def release(self, seq: int) -> None:
        """Retract the request: it publishes nothing."""
        self._give_back(self._request(seq), publishes=False)

    def free(self, seq: int) -> None:
        """End the request: it publishes everything that it has computed."""
        if seq in self._admitted:
            request = self._request(seq)
            request.is_over = True
            self._give_back(request, publishes=True)
            self._admitted.remove(seq)
        super().free(seq)
        self._requests.pop(seq, None)

    def _give_back(self, request: FakeRequest, publishes: bool) -> None:
        name = "checkpoint" if self._publishes else "is_insert"
        self._release.common.release_kv_cache(request, self.manager, **{name: publishes})
        request.waits()

    def step_done(self, step: list[Scheduled]) -> None:
        """Publish the chunks of prompts; a decode is published when its request ends."""
        for one in step:
            request = self._request(one.seq)
            if one.stop <= request.num_prompt:
                if self._publishes:
                    self._release.common.checkpoint_kv_cache(request, self.manager)
                else:
                    self.manager.cache_unfinished_req(request)

    def reset_cache(self) -> bool:
        """As in `flush_cache` of an idle server: clear the tree and both pools. False if a request is running."""
        if self._admitted:
            return False
        self.manager.reset()
        self._table.clear()
        self._pool.clear()
        return True

    # Observation ------------------------------------------------------------------------------------------------

    def tables(self) -> dict[int, list[int]]:
        tables, size, rows = {}, self._size, self._rows()
        for seq, request in self._requests.items():
            if request.req_pool_idx is not None:
                row = rows[request.req_pool_idx, : request.kv_allocated_len]
                tables[seq] = [slot // size - 1 for slot in first_slots(row, size, seq)]
        return tables

    def num_free(self) -> int:
        """The number of pages that are free, or in the tree without a lock."""
        return int(self._pool.available_size() + self.manager.evictable_size()) // self._size


def first_slots(row: NDArray[np.integer], page_size: int, seq: int) -> list[int]:
    """The first slot of each page in the row of a sequence. Raises EngineFailure if a page's slots are not in order."""
    first = row[::page_size]
    if page_size > 1:
        in_order = (first[:, None] + np.arange(page_size, dtype=row.dtype)).ravel()[: len(row)]
        if in_order.tobytes() != row.tobytes():  # in less time than an array of what differs
            place = int((in_order != row).argmax())
            text = f"position {place} of sequence {seq} is in slot {row[place]}, not in its page: {row.tolist()}"
            raise EngineFailure(text)
    found: list[int] = first.tolist()
    return found
