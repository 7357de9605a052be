"""Observations of vLLM's V1 KV cache manager, and the configuration from which one is made."""

import inspect
from collections.abc import Callable, Iterable
from functools import cache
from itertools import chain
from typing import Any

from kvproof.check.protocol.manager import NULL_BLOCK, Config, Observation, Unsupported
from kvproof.check.subjects.loading.stub_modules import nothing

COORDINATOR = "HybridKVCacheCoordinator"
MODEL_LENGTH_MAX = 1 << 20  # tokens; far beyond any sequence: the manager gives no slots beyond it
HEAD_SIZE = 8  # of the one head of each layer; how large it is matters to nothing that is judged
STATE_SPEC = "MambaSpec"
RETENTION_OPTION = "prefix_cache_retention_interval"


class ManagerReader:
    """Reads the tables, refcounts and the free queue of a manager. number_of: the sequence that has a name."""

    def __init__(self, manager: Any, number_of: Callable[[str], int] = int) -> None:
        self._number_of = number_of
        inner: Any = getattr(manager, "block_pool", None)
        self._pool: Any = inner if hasattr(inner, "free_block_queue") else manager  # before 0.8.3, the manager itself
        self._blocks: list[Any] = inner.blocks if self._pool is inner else inner
        self._null = getattr(self._pool, "null_block", None)
        self._reserved = () if self._null is None else (self._null.block_id,)
        coordinator = getattr(manager, "coordinator", None)
        managers = [manager] if coordinator is None else coordinator.single_type_managers
        self._rows: list[dict[str, list[Any]]] = [  # of each KV cache group
            getattr(one, "single_type_manager", one).req_to_blocks for one in managers
        ]

    def _tables(self, names: Iterable[str]) -> dict[int, list[list[int]]]:
        null, tables = self._null, dict[int, list[list[int]]]()
        for name in names:
            rows = [row.get(name, ()) for row in self._rows]
            if any(rows):
                tables[self._number_of(name)] = [
                    [NULL_BLOCK if block is null else block.block_id for block in row] for row in rows
                ]
        return tables

    def observe_part(self, seqs: Iterable[int]) -> Observation:
        """The tables of these sequences, and the count of free blocks."""
        return Observation(
            self._tables(map(str, seqs)), (self._pool.free_block_queue.num_free_blocks, 0), self._reserved
        )

    def observe(self) -> Observation:
        """Tables, refcounts, and the free queue from its first block to its last."""
        null, queue = self._null, self._pool.free_block_queue
        first, *others = self._rows
        tables = self._tables(dict.fromkeys(chain(*self._rows)) if others else list(first))
        refs = [block.ref_cnt for block in self._blocks]
        if null is not None:
            refs[null.block_id] = 0
        return Observation(tables, (queue.num_free_blocks, 0), self._reserved, refs, self._free_ids(queue))

    def _free_ids(self, queue: Any) -> list[int]:
        """The ids of the queue, by its links; if they form a ring, it is cut after as many blocks as there are."""
        first = getattr(queue, "fake_free_list_head", None)
        block = queue.free_list_head if first is None else first.next_free_block
        last = getattr(queue, "fake_free_list_tail", None)
        ids: list[int] = []
        while block is not None and block is not last and len(ids) <= len(self._blocks):
            ids.append(block.block_id)
            block = block.next_free_block
        return ids


def cache_config(interface: Any, config: Config, head_size: int = HEAD_SIZE) -> Any:
    """A `KVCacheConfig` of groups with full attention, a sliding window, chunks of local attention, or states.

    Raises Unsupported for local attention with drafting, and with chunks that are not of whole blocks: vLLM asserts
    that it has neither (`ChunkedLocalAttentionManager`, `make_local_attention_virtual_batches`).
    """
    import torch

    wanted: dict[str, Any] = {
        "num_kv_heads": 1,
        "head_size": head_size,
        "dtype": torch.float16,
        "use_mla": False,
        "shapes": ((1,),),
        "dtypes": (torch.float16,),
        "mamba_cache_mode": "align" if config.caching else "none",
    }
    if (config.local_chunk or 0) % config.block_size:
        raise Unsupported(f"a chunk of {config.local_chunk} tokens is not of whole blocks of {config.block_size}")
    if config.local_chunk and config.drafting:
        raise Unsupported("drafting with local attention")
    if config.ranks > 1 and (config.windows != (0,) or config.block_size % config.ranks):
        raise Unsupported("context parallelism without one group of full attention, and pages of one size")
    groups = []
    for number, (window, layout) in enumerate(zip(config.windows, config.layouts, strict=True)):
        kind = "SlidingWindowSpec" if window > 0 else "ChunkedLocalAttentionSpec" if window else "FullAttentionSpec"
        own = {
            "block_size": state_size(config) if layout.is_in_place else layout.num_tokens // config.ranks,
            "sliding_window": window if window > 0 else None,
            "attention_chunk_size": -window if window < 0 else None,
        }
        spec = call_with(getattr(interface, STATE_SPEC if layout.is_state else kind), wanted | own)
        groups.append(interface.KVCacheGroupSpec([f"layer {number}"], spec))
    parts = {
        "num_blocks": config.num_gpu_blocks,
        "tensors": {},
        "kv_cache_tensors": [],
        "kv_cache_groups": groups,
        RETENTION_OPTION: config.retention,
    }
    return call_with(interface.KVCacheConfig, parts)


def has_retention(interface: Any) -> bool:
    """Whether a release can be configured to keep only some of what windows and states read: from 0.29 on."""
    return RETENTION_OPTION in _options_of(getattr(interface, "KVCacheConfig", nothing))


def state_size(config: Config) -> int:
    """The tokens of a state that is kept in one block for the life of a sequence: more than any sequence has."""
    return -(-MODEL_LENGTH_MAX // config.block_size) * config.block_size


def with_groups(make: Callable[[], Any]) -> Any:
    """The result of `make`. Raises Unsupported if the release says that it cannot combine these KV cache groups."""
    try:
        return make()
    except (AssertionError, ValueError) as error:
        if str(error).startswith(COORDINATOR):
            raise Unsupported(str(error)) from None
        raise


def call_with(kind: Any, wanted: dict[str, Any]) -> Any:
    """Call a class or a function with those of the wanted options that it takes."""
    accepted = _options_of(kind)
    return kind(**{name: value for name, value in wanted.items() if name in accepted})


@cache
def _options_of(kind: Any) -> frozenset[str]:
    """The names of the options that a class or a function takes; a walk makes an object of a class many times."""
    return frozenset(inspect.signature(kind).parameters)
