"""transformers' continuous batching, importable with torch and without its models.

Real are the cache and its allocators, the scheduler, the requests, the offloading manager, and the processor whose
`prepare_next_batch` and `update_batch` are the loop. Hollow is the rest: configurations (a bag of settings takes their
place), the tensors of a batch, the runner of the model, and everything outside continuous batching.
"""

import importlib
import importlib.util
import logging
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from kvproof.check.engines import bring, hollow

PACKAGE = "transformers"
FOLDER = "generation.continuous_batching"
REAL = (
    "cache",
    "cache_allocators",
    "cache_allocators.cache_allocator",
    "cache_allocators.cache_pool",
    "cache_allocators.full_attention",
    "cache_allocators.sliding_attention",
    "continuous_api",
    "distributed",
    "offloading_manager",
    "requests",
    "scheduler",
    "utils",
)
LOGGER = "ContinuousBatchingLogger"
MEMORY_BYTES = 1 << 40  # more than any pool here


class Modules(NamedTuple):
    """The modules that an adapter uses."""

    cache: Any
    api: Any
    distributed: Any
    offloading: Any
    requests: Any
    scheduler: Any


def no(*arguments: Any, **options: Any) -> bool:
    """Whether some library or accelerator is there."""
    return False


def much_memory() -> tuple[str, int, int, int]:
    """Device, and bytes: in all, reserved and allocated. How many blocks there are is said, not measured."""
    return "cpu", MEMORY_BYTES, 0, 0


BARS = {
    "tqdm": {"tqdm": hollow.Unused},
    "tqdm.contrib": {},
    "tqdm.contrib.logging": {"logging_redirect_tqdm": hollow.Unused},
}
STAND_INS: dict[str, dict[str, Any]] = {
    "distributed.utils": {"_is_torch_distributed_initialized": no},
    "utils": {"is_psutil_available": no, "is_torch_xpu_available": no},
    "utils.generic": {"is_flash_attention_requested": no},
    "utils.logging": {"logging": logging},
}


def import_modules(version: str, cache: Path | None = None) -> Modules:
    """A release's continuous batching, from its unpacked sources. Raises EngineError if the release is not here."""
    root = bring.find(PACKAGE, version, cache) / PACKAGE
    _stand_in_for_progress_bars()
    hollow.mount_real(PACKAGE, root, [f"{FOLDER}.{name}" for name in REAL], STAND_INS)
    logging.getLogger(LOGGER).setLevel(logging.CRITICAL)

    def module(name: str) -> Any:
        return importlib.import_module(f"{PACKAGE}.{FOLDER}.{name}")

    pages = module("cache")
    pages.get_device_and_memory_breakdown = much_memory
    return Modules(
        pages,
        module("continuous_api"),
        module("distributed"),
        module("offloading_manager"),
        module("requests"),
        module("scheduler"),
    )


def _stand_in_for_progress_bars() -> None:
    """tqdm is imported, and not used on the paths that are driven."""
    if "tqdm" in sys.modules or importlib.util.find_spec("tqdm") is not None:
        return
    for name, names in BARS.items():
        module = sys.modules[name] = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None, is_package=True)
        module.__dict__.update(names, __path__=[])
