"""mini-sglang's cache manager as a subject; the path of a checkout names it.

A block is a page. The adapter replaces `minisgl/scheduler/prefill.py` and `scheduler.py` (version 0.1.0), without
overlapped scheduling:

- Admission: the prefix cache is searched for all tokens of a prompt except the last; the prefix found is locked and
  copied into the row of the request (`PrefillAdder`). `allocate_paged` allocates pages, and evicts if the pool has too
  few.
- After a step, completely computed prompts are put into the prefix cache (`cache_req`). Pages that a step frees become
  free at its end (`lazy_free_region`).
- A finished request puts everything that it has computed into the prefix cache.

Real modules: the cache manager and the table manager of its scheduler, its prefix caches and its request. The code that
is driven calls one kernel, which compares two rows of tokens; `num_equal` replaces it. Memory is not pinned, since only
an accelerator would read it faster.

Limits: mini-sglang's own admission reserves pages for the whole output, so it never preempts. Here an admission needs
only the pages of the prompt, and a preempted request gives up its pages like an aborted one. There are no adapters,
salts, windows, forks, swaps or resets of the cache.
"""

from pathlib import Path
from typing import Any

from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import Assumption, Config, Scheduled
from kvproof.check.protocol.manager_adapter import BOOLEAN_ADMISSION, ManagerAdapter
from kvproof.check.subjects.loading import EngineError, stub_modules
from kvproof.check.subjects.loading.stub_modules import StubObject, WithoutPinning
from kvproof.check.subjects.sglang.manager import first_slots
from kvproof.spec.compilation import sized_function

PACKAGE = "minisgl"
MANAGER = Path("scheduler") / "cache.py"
REAL = (
    "core",
    "kvcache",
    "kvcache.base",
    "kvcache.naive_cache",
    "kvcache.radix_cache",
    "scheduler.cache",
    "scheduler.table",
    "utils.misc",
    "utils.registry",
)
NUM_ROWS, ROW_LENGTH, ROW_LENGTH_MAX = 96, 256, 8_192  # requests, and tokens of one; beyond any run
OUTPUT_MAX = ROW_LENGTH_MAX
ASSUMPTIONS = (
    BOOLEAN_ADMISSION,
    Assumption("asks-first", "The caller locks what it found, and allocates only what the pool has after eviction."),
    Assumption("synchronous", "A step is over before the next is scheduled; frees come between steps."),
)


def num_equal(one: Any, other: Any) -> int:
    """The number of tokens at the beginning of two rows that are equal."""
    length = min(len(one), len(other))
    differ = (one[:length] != other[:length]).nonzero()
    return int(differ[0]) if len(differ) else length


def import_checkout(path: str) -> StubObject:
    """Import the modules of a checkout that the adapter uses. Raises EngineError if the folder is not a checkout."""
    folder = Path(path).expanduser()
    roots = [root for root in (folder / "python" / PACKAGE, folder / PACKAGE) if (root / MANAGER).is_file()]
    if not roots:
        raise EngineError(f"{path} is not a checkout of mini-sglang: it has no python/{PACKAGE}/{MANAGER.as_posix()}")
    module = stub_modules.mount_real(PACKAGE, roots[0], REAL, {"kernel": {"fast_compare_key": num_equal}})
    small = module("utils").__dict__
    small["Registry"] = module("utils.registry").Registry
    for name in ("align_down", "div_ceil"):
        small[name] = getattr(module("utils.misc"), name)
    cache = module("scheduler.cache")
    if not isinstance(cache.torch, WithoutPinning):
        cache.torch = WithoutPinning(cache.torch)
    return StubObject(core=module("core"), cache=cache, table=module("scheduler.table"))


class MiniSGLang(ManagerAdapter):
    """mini-sglang's `minisgl.scheduler.cache.CacheManager`."""

    name = "mini-sglang"
    capabilities = Capabilities(caching=True, chunked=True, dedups_after_step=True, steps_are_certain=True)
    assumptions = ASSUMPTIONS

    def __init__(self, path: str) -> None:
        self._checkout = import_checkout(path)

    def make(self, config: Config) -> Any:
        """A new cache manager and a table of pages. Returns the manager."""
        import torch

        checkout, self._torch, self._size = self._checkout, torch, config.block_size
        checkout.core._GLOBAL_CTX = checkout.core.Context(config.block_size)
        row_length = min(ROW_LENGTH + config.num_gpu_blocks * config.block_size, ROW_LENGTH_MAX)
        pages = torch.zeros((NUM_ROWS, row_length), dtype=torch.int32)
        self._rows = checkout.table.TableManager(NUM_ROWS, pages)
        self._requests: dict[int, Any] = {}
        self._num_slots: dict[int, int] = {}
        self._num_prompt: dict[int, int] = {}
        kind = "radix" if config.caching else "naive"
        return checkout.cache.CacheManager(config.num_gpu_blocks, config.block_size, pages, kind)

    def _ids(self, tokens: list[int]) -> Any:
        return self._torch.tensor(tokens, dtype=self._torch.int32)

    def _match(self, tokens: list[int]) -> Any:
        """As in `match_req`: the longest cached prefix of all tokens except the last."""
        return self.manager.prefix_cache.match_prefix(self._ids(tokens[:-1])).cuda_handle

    def _pages(self, num_tokens: int) -> int:
        num_pages: int = sized_function("blocks_for", self._size)(num_tokens)
        return num_pages

    def hits(self, group: int) -> int:
        (seq,) = self.groups[group]
        return int(self._match(self.tokens[seq]).cached_len)

    def can_allocate(self, tokens: list[int]) -> bool:
        """As in `PrefillAdder`: while the prefix found is locked, the other pages must be free or evictable."""
        found = self._match(tokens)
        self.manager.lock(found)
        fits = self._pages(len(tokens)) - found.cached_len // self._size <= self.num_free()
        self.manager.unlock(found)
        return bool(fits)

    def allocate(self, seq: int, tokens: list[int]) -> int:
        """Lock the prefix found, copy it into a new row, and allocate the first chunk. Returns the hit in tokens."""
        found = self._match(tokens)
        self.manager.lock(found)
        row = self._rows.allocate()
        hit = int(found.cached_len)
        if hit:
            self._rows.page_table[row][:hit].copy_(found.get_matched_indices())
        stop = min(len(tokens), hit + self.first_chunk) if self.config.chunked else len(tokens)
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
        (seq,) = self.groups[group]
        return self._pages(len(self.tokens[seq])) - self._pages(self._num_slots[seq]) <= self.num_free()

    def append(self, seq: int, num_tokens: int) -> None:
        """Allocate the next chunk, as a new request over the same row, or a slot for the token of a decode."""
        request = self._requests[seq]
        if request.cached_len < self._num_prompt[seq]:
            stop = request.cached_len + num_tokens
            self._requests[seq] = self._request(seq, stop, request.cached_len, request.table_idx, request.cache_handle)
        self._allocate_pages(seq)

    def grow(self, seq: int, token: int) -> None:
        super().grow(seq, token)
        if seq in self._requests:
            self._requests[seq].append_host(self._ids([token]))

    def release(self, seq: int) -> None:
        """As in `_free_req_resources`: give back the row, and cache what was computed."""
        request = self._requests.pop(seq)
        del self._num_slots[seq]
        self._rows.free(request.table_idx)
        self.manager.cache_req(request, finished=True)

    def step_done(self, step: list[Scheduled]) -> None:
        """As in `_process_last_data`: cache each prompt that is now complete, but no partial prompt and no decode."""
        with self.manager.lazy_free_region():
            for one in step:
                request = self._requests[one.seq]
                request.complete_one()
                if one.stop == self._num_prompt[one.seq]:
                    self.manager.cache_req(request, finished=False)

    def tables(self) -> dict[int, list[int]]:
        tables, size, rows = {}, self._size, self._rows.page_table.numpy()
        for seq, request in self._requests.items():
            row = rows[request.table_idx, : self._num_slots[seq]]
            tables[seq] = [slot // size for slot in first_slots(row, size, seq)]
        return tables

    def num_free(self) -> int:
        """The number of pages that are free, or cached without a lock."""
        return int(self.manager.available_size) // self._size
