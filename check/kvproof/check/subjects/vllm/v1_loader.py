"""vLLM's V1 KV cache manager, releases 0.6.5 to 0.33, importable with torch and nothing else.

The manager, its block pool, coordinators, managers of one type, block hashes and KV cache specifications are the
release's own. Of the rest of vLLM they take small helpers (rounding, sizes of types), a logger, hash functions, which
images lie in a range of tokens, the status a request has (compared, never computed with), and many names that occur in
annotations or in branches that are off here (events, statistics, prompt embeddings, memory on other hosts): those are
answered by a type without content, so that a branch that should turn out to be on fails at once.

A hash function stands for "equal content, equal hash" and no more, so any without collisions will do.
"""

import enum
import hashlib
import logging
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

from kvproof.check.protocol.manager import Config
from kvproof.check.subjects.loading import download, partial_import
from kvproof.check.subjects.loading.stub_modules import StubObject, Unused, nothing
from kvproof.check.subjects.vllm.v0_loader import SilentLogger, ceil_div


class RequestStatus(enum.Enum):
    """The states of a request that the manager distinguishes."""

    WAITING = enum.auto()
    RUNNING = enum.auto()
    PREEMPTED = enum.auto()


class PrefixCacheStats:
    """Counters that nobody reads."""

    def __init__(self) -> None:
        self.requests = self.queries = self.hits = 0
        self.reset = False


class MambaBackend(enum.Enum):
    """The default of a specification that is not used here."""

    MAMBA2 = "MAMBA2"


def round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def round_down(number: int, multiple: int) -> int:
    return number // multiple * multiple


def content_hash(value: Any) -> bytes:
    """A hash of tuples of numbers, strings, bytes and None, by what they hold."""
    return hashlib.sha256(repr(value).encode()).digest()


def seeded_hash(seed: int) -> Callable[[Any], bytes]:
    """A hash function for a seed of a configuration. Each seed but 0 has a function of its own.

    An odd seed gives hashes of 16 bytes, as vLLM's `xxhash` does, and an even one hashes of 32 bytes, as `sha256`.
    """
    if not seed:
        return content_hash

    def hash_of(value: Any) -> bytes:
        return content_hash((seed, value))[: 16 if seed % 2 else 32]

    return hash_of


def hasher_of(utils: Any, config: Config, hash_size: int) -> Callable[[Any], Any]:
    """A function that hashes the blocks of a request, each of `hash_size` tokens, for the seed of a configuration.

    utils: `vllm.v1.core.kv_cache_utils`, whose hash of no block is set too.
    """
    hash_of = seeded_hash(config.hash_seed)
    utils.init_none_hash(hash_of)
    hasher: Callable[[Any], Any] = utils.get_request_block_hasher(hash_size, hash_of)
    return hasher


def images_in(images: list[Any], start: int, end: int) -> tuple[int, int]:
    """The first image that ends after `start`, and the first that begins at `end` or after; in order, none overlap."""
    ends = [image.mm_position.offset + image.mm_position.length for image in images]
    begins = [image.mm_position.offset for image in images]
    return sum(end <= start for end in ends), sum(begin < end for begin in begins)


def quiet_logger(name: str) -> logging.Logger:
    """A logger that says nothing, nor once."""
    logger = SilentLogger(name)
    for level in ("debug_once", "info_once", "warning_once"):
        setattr(logger, level, logger.debug)
    return logger


UTILS = {
    "GiB_bytes": 1 << 30,
    "cdiv": ceil_div,
    "format_gib": str,
    "get_dtype_size": attrgetter("itemsize"),
    "nvfp4_kv_cache_full_dim": Unused,
    "round_down": round_down,
    "round_up": round_up,
    "sha256": content_hash,
    "sha256_cbor": content_hash,
    "sha256_cbor_64bit": content_hash,
    "xxhash": Unused,
    "xxhash_cbor": Unused,
}


class Event(StubObject):
    """What the prefix cache reports, with the fields that the engine gives it."""


class BlockStored(Event):
    """Blocks can be found."""


class BlockRemoved(Event):
    """Blocks can be found no longer."""


class AllBlocksCleared(Event):
    """Nothing can be found any longer."""


EVENTS = {kind.__name__: kind for kind in (BlockStored, BlockRemoved, AllBlocksCleared)} | {"KVCacheEvent": Event}


def bytes_of(rows: list[Any]) -> memoryview:
    """The bytes of embeddings, whose rows are here what they stand for; up to 0.14 they are asked for `tobytes`."""
    return memoryview(repr(rows).encode())


STAND_INS: dict[str, dict[str, Any]] = {
    "config": {"VllmConfig": Unused, "get_current_vllm_config_or_none": nothing},
    "config.kv_transfer": {"hisparse_host_pool_gib": Unused},
    "distributed": {},
    "distributed.kv_events": {**EVENTS, "MEDIUM_CPU": "CPU", "MEDIUM_GPU": "GPU"},
    "logger": {"init_logger": quiet_logger},
    "multimodal": {"MULTIMODAL_REGISTRY": Unused},
    "multimodal.utils": {"get_mm_features_in_window": images_in},
    "platforms": {"current_platform": StubObject(register_custom_kv_cache_specs=nothing)},
    "utils": UTILS,
    **{f"utils.{part}": UTILS for part in ("hashing", "math_utils", "mem_constants", "mem_utils", "torch_utils")},
    "v1.attention": {},
    "v1.attention.backends": {},
    "v1.attention.backends.registry": {"MambaAttentionBackendEnum": MambaBackend},
    "v1.hisparse.runtime": {},
    "v1.hisparse.layout": dict.fromkeys(
        (
            "get_hisparse_gpu_memory_usage",
            "get_hisparse_host_pool_bytes",
            "get_hisparse_kv_cache_config",
            "get_hisparse_kv_cache_groups",
        ),
        Unused,
    ),
    "v1.metrics": {},
    "v1.metrics.stats": {"KVCacheEvictionEvent": Unused, "PrefixCacheStats": PrefixCacheStats},
    "v1.request": {"Request": Unused, "RequestStatus": RequestStatus},
    "v1.utils": {"ConstantList": Unused, "tensor_data": bytes_of},
}


def import_release(version: str, cache: Path | None = None) -> StubObject:
    """The modules of a release's manager, and the statuses of a request, from its unpacked sources.

    Before 0.7, `interface` is None. Raises EngineError if the release is not here, or has no V1 manager.
    """
    module = partial_import.mount("vllm", download.find("vllm", version, cache), STAND_INS)
    has_interface = partial_import.has_module("vllm", "v1.kv_cache_interface")
    return StubObject(
        manager=module("v1.core.kv_cache_manager"),
        utils=module("v1.core.kv_cache_utils"),
        interface=module("v1.kv_cache_interface") if has_interface else None,
        status=module("v1.request").RequestStatus,
    )
