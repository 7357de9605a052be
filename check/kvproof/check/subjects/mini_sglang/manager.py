"""mini-sglang's cache manager as a subject, by the path of a checkout.

A block is a page. The adapter plays the part of `minisgl/scheduler/prefill.py` and `scheduler.py` (version 0.1.0), with
overlapped scheduling off: a prompt is matched but for its last token, what was found is locked and copied into the row
of the request (`PrefillAdder`); pages for the batch are allocated in one call (`allocate_paged`), evicting where the
pool is short; when a step is over, prompts that are whole are put into the prefix cache (`cache_req`), and a request
that is over puts in all that it has computed. Frees of one step become free at its end (`lazy_free_region`).

Limits: mini-sglang's admission holds back what the output may still need, so that nothing is ever preempted; here the
pages of the prompt are asked for, and what is preempted gives up its pages as one that is aborted does. No adapters,
salts, windows, fork, swap or reset of the cache.
"""

from typing import Any

from kvproof.check.protocol.manager import Admitted, Assumption, Capabilities, Config, Refused, Scheduled
from kvproof.check.protocol.manager_adapter import BOOLEAN_ADMISSION, ManagerAdapter
from kvproof.check.subjects.mini_sglang.loader import import_manager
from kvproof.spec.native import sized_function

NUM_ROWS, ROW_LENGTH = 32, 256  # requests, and tokens of one; far beyond any run
OUTPUT_MAX = ROW_LENGTH
ASSUMPTIONS = (
    BOOLEAN_ADMISSION,
    Assumption("asks-first", "The caller locks what it found, and allocates only what the pool has after eviction."),
    Assumption("synchronous", "A step is over before the next is scheduled; frees come between steps."),
)


class MiniSGLang(ManagerAdapter):
    """`minisgl.scheduler.cache.CacheManager`."""

    name = "mini-sglang"
    capabilities = Capabilities(caching=True, chunked=True, dedups_after_step=True)
    assumptions = ASSUMPTIONS

    def __init__(self, path: str) -> None:
        self._checkout = import_manager(path)

    def make(self, config: Config) -> Any:
        """A manager of its own, and a table of pages."""
        import torch

        checkout, self._torch, self._size = self._checkout, torch, config.block_size
        checkout.core._GLOBAL_CTX = checkout.core.Context(config.block_size)
        pages = torch.zeros((NUM_ROWS, ROW_LENGTH), dtype=torch.int32)
        self._rows = checkout.table.TableManager(NUM_ROWS, pages)
        self._requests: dict[int, Any] = {}
        self._num_slots: dict[int, int] = {}
        self._num_prompt: dict[int, int] = {}
        kind = "radix" if config.caching else "naive"
        return checkout.cache.CacheManager(config.num_gpu_blocks, config.block_size, pages, kind)

    def _ids(self, tokens: list[int]) -> Any:
        return self._torch.tensor(tokens, dtype=self._torch.int32)

    def _match(self, tokens: list[int]) -> Any:
        """What is cached of all tokens but the last, as `match_req` asks."""
        return self.manager.prefix_cache.match_prefix(self._ids(tokens[:-1])).cuda_handle

    def _pages(self, num_tokens: int) -> int:
        num_pages: int = sized_function("blocks_for", self._size)(num_tokens)
        return num_pages

    def hits(self, group: int) -> int:
        """Tokens of a waiting request that the prefix cache has."""
        (seq,) = self.groups[group]
        return int(self._match(self.tokens[seq]).cached_len)

    def can_allocate(self, tokens: list[int]) -> bool:
        """As `PrefillAdder`: with what was found locked, the rest must be free or evictable."""
        found = self._match(tokens)
        self.manager.lock(found)
        fits = self._pages(len(tokens)) - found.cached_len // self._size <= self.num_free()
        self.manager.unlock(found)
        return bool(fits)

    def admit(self, group: int, num_tokens: int) -> Admitted | Refused:
        """The first chunk is not all of the prompt."""
        self._first_chunk = num_tokens
        return super().admit(group, num_tokens)

    def allocate(self, seq: int, tokens: list[int]) -> int:
        """Lock, take a row, copy what was found into it, and allocate for the first chunk."""
        found = self._match(tokens)
        self.manager.lock(found)
        row = self._rows.allocate()
        hit = int(found.cached_len)
        if hit:
            self._rows.page_table[row][:hit].copy_(found.get_matched_indices())
        stop = min(len(tokens), hit + max(1, self._first_chunk)) if self.config.chunked else len(tokens)
        self._requests[seq] = self._request(seq, stop, hit, row, found)
        self._num_prompt[seq] = len(tokens)
        self._allocate_pages(seq)
        return hit

    def _request(self, seq: int, stop: int, cached: int, row: int, handle: Any) -> Any:
        core = self._checkout.core
        ids = self._ids(self.tokens[seq][:stop])
        return core.Req(ids, row, cached, OUTPUT_MAX, seq, core.SamplingParams(), handle)

    def _allocate_pages(self, seq: int) -> None:
        request = self._requests[seq]
        self.manager.allocate_paged([request])
        self._num_slots[seq] = request.device_len

    def can_append(self, group: int) -> bool:
        """Whether all tokens that are known get their pages."""
        (seq,) = self.groups[group]
        return self._pages(len(self.tokens[seq])) - self._pages(self._num_slots[seq]) <= self.num_free()

    def append(self, seq: int, num_tokens: int) -> None:
        """The next chunk is a new request over the same row; a decode has its token already."""
        request = self._requests[seq]
        if request.cached_len < self._num_prompt[seq]:
            stop = request.cached_len + num_tokens
            self._requests[seq] = self._request(seq, stop, request.cached_len, request.table_idx, request.cache_handle)
        self._allocate_pages(seq)

    def grow(self, seq: int, token: int) -> None:
        """A token was sampled."""
        super().grow(seq, token)
        if seq in self._requests:
            self._requests[seq].append_host(self._ids([token]))

    def release(self, seq: int) -> None:
        """As `_free_req_resources`: the row is given back, and what was computed is cached."""
        request = self._requests.pop(seq)
        del self._num_slots[seq]
        self._rows.free(request.table_idx)
        self.manager.cache_req(request, finished=True)

    def step_done(self, step: list[Scheduled]) -> None:
        """As `_process_last_data`: a prompt that is whole is cached; a chunk and a decode are not."""
        with self.manager.lazy_free_region():
            for one in step:
                request = self._requests[one.seq]
                request.complete_one()
                if one.stop == self._num_prompt[one.seq]:
                    self.manager.cache_req(request, finished=False)

    def tables(self) -> dict[int, list[int]]:
        """The pages of every row in use; the slots of a page come in order."""
        tables, size = {}, self._size
        for seq, request in self._requests.items():
            row = self._rows.page_table[request.table_idx, : self._num_slots[seq]].tolist()
            for place, slot in enumerate(row):
                if slot - place % size != row[place - place % size]:
                    raise ValueError(f"position {place} of sequence {seq} is in slot {slot}, not in its page: {row}")
            tables[seq] = [first // size for first in row[::size]]
        return tables

    def num_free(self) -> int:
        """Pages that are free, or cached and locked by nobody."""
        return int(self.manager.available_size) // self._size


def make(version: str) -> MiniSGLang:
    """The manager of a checkout, whose path stands in the place of a version. Raises EngineError."""
    return MiniSGLang(version)
