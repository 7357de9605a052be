"""LMDeploy's paging (PyTorch engine), importable with numpy and nothing else.

Real are the block managers, the prefix-cache trie, and the helper that makes room by evicting; stubs replace
messages, configurations, connectors and the caches of states, which full attention does not use.

The allocator keeps the time of the last access in whole seconds, and the trie decides ties by the addresses of its
nodes, so that no two runs evict alike. Here a clock counts its readings instead, and runs repeat.
"""

import importlib
import logging
from pathlib import Path
from typing import Any, NamedTuple

from kvproof.check.subjects.loading import download, stub_modules

PACKAGE = "lmdeploy"
REAL = (
    "pytorch.block",
    "pytorch.paging.block_manager.base_block_manager",
    "pytorch.paging.block_manager.default_block_manager",
    "pytorch.paging.block_trie.checkpoint",
    "pytorch.paging.block_trie.checkpoint_lifecycle",
    "pytorch.paging.block_trie.kv_lifecycle",
    "pytorch.paging.block_trie.node",
    "pytorch.paging.block_trie.trie",
    "pytorch.paging.eviction_helper.recompute_eviction_helper",
    "pytorch.prefix_cache_state",
)


class Modules(NamedTuple):
    """The modules that an adapter uses."""

    block: Any
    manager: Any
    trie: Any
    eviction: Any
    prefix: Any


class Clock:
    """The part of `time` that is called: every reading is later than the one before."""

    def __init__(self) -> None:
        self._now = 0

    def perf_counter(self) -> int:
        self._now += 1
        return self._now


STAND_INS: dict[str, dict[str, Any]] = {"utils": {"get_logger": logging.getLogger}}


def import_modules(version: str, cache: Path | None = None) -> Modules:
    """A release's paging, from its unpacked sources. Raises EngineError if the release is not here."""
    stub_modules.mount_real(PACKAGE, download.find(PACKAGE, version, cache) / PACKAGE, REAL, STAND_INS)

    def module(name: str) -> Any:
        return importlib.import_module(f"{PACKAGE}.pytorch.{name}")

    module("paging.block_manager.base_block_manager").time = Clock()
    return Modules(
        module("block"),
        module("paging.block_manager.default_block_manager"),
        module("paging.block_trie.trie"),
        module("paging.eviction_helper.recompute_eviction_helper"),
        module("prefix_cache_state"),
    )
