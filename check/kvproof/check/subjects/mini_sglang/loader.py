"""Import mini-sglang's cache manager, with torch but without its models, kernels and sockets.

mini-sglang has no releases on an index, so the path of a checkout names it. Real modules: the cache manager and the
table manager of its scheduler, its prefix caches and its request. The code that is driven calls one kernel, which
compares two rows of tokens; `num_equal` replaces it. Memory is not pinned, since only an accelerator would read it
faster.
"""

import importlib
from pathlib import Path
from typing import Any, NamedTuple

from kvproof.check.subjects.loading import EngineError, stub_modules

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


class Checkout(NamedTuple):
    """The modules that the adapter uses."""

    core: Any
    cache: Any
    table: Any


class WithoutPinning:
    """torch, except that it never pins memory."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)

    def empty(self, *sizes: Any, pin_memory: bool = False, **options: Any) -> Any:
        return self._torch.empty(*sizes, **options)


def num_equal(one: Any, other: Any) -> int:
    """The number of tokens at the beginning of two rows that are equal."""
    length = min(len(one), len(other))
    differ = (one[:length] != other[:length]).nonzero()
    return int(differ[0]) if len(differ) else length


def import_manager(path: str) -> Checkout:
    """Import the cache manager of a checkout. Raises EngineError if the folder is not a checkout."""
    folder = Path(path).expanduser()
    roots = [root for root in (folder / "python" / PACKAGE, folder / PACKAGE) if (root / MANAGER).is_file()]
    if not roots:
        raise EngineError(f"{path} is not a checkout of mini-sglang: it has no python/{PACKAGE}/{MANAGER.as_posix()}")
    stub_modules.mount_real(PACKAGE, roots[0], REAL, {"kernel": {"fast_compare_key": num_equal}})

    def module(name: str) -> Any:
        return importlib.import_module(f"{PACKAGE}.{name}")

    small = module("utils").__dict__
    small["Registry"] = module("utils.registry").Registry
    for name in ("align_down", "div_ceil"):
        small[name] = getattr(module("utils.misc"), name)
    cache = module("scheduler.cache")
    if not isinstance(cache.torch, WithoutPinning):
        cache.torch = WithoutPinning(cache.torch)
    return Checkout(module("core"), cache, module("scheduler.table"))
