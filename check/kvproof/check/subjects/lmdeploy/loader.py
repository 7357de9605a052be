"""Import LMDeploy's paging (PyTorch engine); of its dependencies, only numpy is needed.

Real modules: the block managers, the prefix-cache trie, and the helper that makes room by eviction. Stubs: messages,
configurations, connectors, and the caches of states, which full attention does not use.

LMDeploy's allocator stores the time of the last access in whole seconds, and its trie breaks ties by memory addresses.
With them, the order of eviction would differ from run to run. A clock that counts its readings makes runs repeatable.
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
    """The modules that the adapter uses."""

    block: Any
    manager: Any
    trie: Any
    eviction: Any
    prefix: Any


class Clock:
    """The part of `time` that LMDeploy calls; every reading is later than the previous one."""

    def __init__(self) -> None:
        self._now = 0

    def perf_counter(self) -> int:
        self._now += 1
        return self._now


STAND_INS: dict[str, dict[str, Any]] = {"utils": {"get_logger": logging.getLogger}}


def import_modules(version: str, cache: Path | None = None) -> Modules:
    """Import the modules of a release from its sources. Raises EngineError if it was not downloaded."""
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
