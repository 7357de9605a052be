"""nano-vllm's block manager and scheduler, importable without its models.

nano-vllm has no releases on an index: it is used by the path of a checkout. Its block manager needs numpy and xxhash,
and of itself the sequence; its configuration, which asks for a model, is only named. Where xxhash is not installed,
another 64-bit hash of the same interface stands in: which hash it is only decides which bucket a block is looked up in,
since the manager compares tokens as well.
"""

import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from kvproof.check.subjects.loading import EngineError, partial_import

PACKAGE = "nanovllm"
HASH_BYTES = 8


class Manager(NamedTuple):
    """The classes of a checkout."""

    make: Any
    sequence: Any


class Hash64:
    """The part of `xxhash.xxh64` that is called."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=HASH_BYTES)

    def update(self, data: bytes) -> None:
        self._hash.update(data)

    def intdigest(self) -> int:
        return int.from_bytes(self._hash.digest(), "little")


class Scheduler(NamedTuple):
    """The classes of a checkout, for the loop."""

    make: Any
    sequence: Any


def import_manager(path: str) -> Manager:
    """The block manager of a checkout. Raises EngineError."""
    _mount(path, "block_manager")
    module = partial_import.module_of(PACKAGE, ["engine.block_manager"])
    return Manager(module.BlockManager, module.Sequence)


def import_scheduler(path: str) -> Scheduler:
    """The scheduler of a checkout. Raises EngineError."""
    _mount(path, "scheduler")
    module = partial_import.module_of(PACKAGE, ["engine.scheduler"])
    return Scheduler(module.Scheduler, module.Sequence)


def _mount(path: str, module: str) -> None:
    folder = Path(path).expanduser()
    if not (folder / PACKAGE / "engine" / f"{module}.py").is_file():
        raise EngineError(f"{path} is no checkout of nano-vllm: it has no {PACKAGE}/engine/{module}.py")
    partial_import.mount(PACKAGE, folder, {"config": {"Config": object}})
    if "xxhash" not in sys.modules and importlib.util.find_spec("xxhash") is None:
        replacement = sys.modules["xxhash"] = ModuleType("xxhash")
        replacement.__dict__["xxh64"] = Hash64
