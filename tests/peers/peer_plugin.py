"""Pytest plugin of `make peers`: chooses the block manager under test, and writes a JSON line per test.

`KVPROOF_PEERS_SUBJECT` is "vllm" or "kvproof"; the lines go to the file `KVPROOF_PEERS_RESULTS`.

With "kvproof", code written against vLLM's V0 modules runs on `kvproof.impl`. `install` answers the names of the
modules that make up the block manager with modules that hold names of `kvproof.impl` and nothing else. The rest of
vLLM, its scheduler above all, stays what it is. Two enums are compared by identity across that border, so each must
exist once: `AllocStatus`, and `Device`, which a module of the rest defines. Names that only annotate, and the abstract
bases that only the original's own classes derive from, are answered by the class that does their work.
"""

import importlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kvproof import impl
from kvproof.check.subjects.loading import EngineError
from kvproof.impl import errors

# Two modules that import a whole engine. Only the tests that need a model use them, and those are not run.
NOT_NEEDED = {"vllm.engine.arg_utils": "EngineArgs", "vllm.engine.llm_engine": "LLMEngine"}


class BlockSpaceManager(impl.SelfAttnBlockSpaceManager):
    """What a scheduler asks for the manager's class."""

    @staticmethod
    def get_block_space_manager_class(version: str) -> type[impl.SelfAttnBlockSpaceManager]:
        """The one manager there is; raises EngineError for any `version` but "selfattn"."""
        if version != "selfattn":
            raise EngineError(f"kvproof has no block manager {version!r}; it has 'selfattn'")
        return impl.SelfAttnBlockSpaceManager


def make_evictor(eviction_policy: impl.EvictionPolicy) -> impl.LRUEvictor:
    """A new evictor; raises EngineError for any policy but LRU."""
    if eviction_policy is not impl.EvictionPolicy.LRU:
        raise EngineError(f"kvproof evicts by EvictionPolicy.LRU, not by {eviction_policy}")
    return impl.LRUEvictor()


# Module -> the names it has; "a=b" where the name there differs from the one here.
NAMES = {
    "core.block.block_table": "BlockTable BlockList Device",
    "core.block.common": "RefCounter ReadOnlyRefCounter CopyOnWriteTracker BlockPool BlockList CacheMetricData",
    "core.block.cpu_gpu_block_allocator": "CpuGpuBlockAllocator NullBlock Device",
    "core.block.interfaces": "Block=NaiveBlock BlockAllocator DeviceAwareBlockAllocator=CpuGpuBlockAllocator Device",
    "core.block.naive_block": "NaiveBlock NaiveBlockAllocator BlockPool",
    "core.block.prefix_caching_block": "PrefixCachingBlock PrefixCachingBlockAllocator ComputedBlocksTracker "
    "LastAccessBlocksTracker CacheMetricData",
    "core.block.utils": "",
    "core.block_manager": "SelfAttnBlockSpaceManager AllocStatus Device",
    "core.evictor": "EvictionPolicy LRUEvictor Evictor=LRUEvictor",
    "core.interfaces": "AllocStatus Device",
}
OWN: Mapping[str, Mapping[str, Any]] = {
    "core.block.utils": {
        "STR_NOT_IMPL_ENC_DEC_PREFIX_CACHE": errors.NO_ENCODER_WITH_PREFIX_CACHE,
        "STR_NOT_IMPL_ENC_DEC_SWA": errors.NO_ENCODER_WITH_WINDOW,
    },
    "core.evictor": {"make_evictor": make_evictor},
    "core.interfaces": {"BlockSpaceManager": BlockSpaceManager},
}


def install(package: str = "vllm") -> None:
    """Answer the block manager's module names in this process; nothing of them may have been imported before.

    Raises EngineError.
    """
    early = sorted(f"{package}.{name}" for name in NAMES if f"{package}.{name}" in sys.modules)
    if early:
        raise EngineError(f"{early[0]} has been imported already; install kvproof's block manager before")
    importlib.import_module(f"{package}.utils").__dict__["Device"] = impl.Device
    for name, words in NAMES.items():
        module = ModuleType(f"{package}.{name}")
        for word in words.split():
            there, _, here = word.partition("=")
            module.__dict__[there] = getattr(impl, here or there)
        module.__dict__.update(OWN.get(name, {}))
        sys.modules[module.__name__] = module
        parent, _, child = module.__name__.rpartition(".")
        setattr(importlib.import_module(parent), child, module)


def pytest_configure(config: pytest.Config) -> None:
    for name, word in NOT_NEEDED.items():
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__dict__[word] = object
    if os.environ["KVPROOF_PEERS_SUBJECT"] == "kvproof":
        install()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when != "call" and report.passed:
        return
    line = {"test": report.nodeid, "outcome": report.outcome, "why": _last_line(report)}
    with Path(os.environ["KVPROOF_PEERS_RESULTS"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _last_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message).partition("\n")[0] if crash is not None else ""
