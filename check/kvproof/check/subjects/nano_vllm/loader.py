"""Import nano-vllm's block manager and scheduler, without its models.

nano-vllm has no releases on an index, so the path of a checkout names it. Its block manager needs numpy, xxhash and
nano-vllm's sequence. Its configuration, which needs a model, is replaced by an empty class. If xxhash is not installed,
another 64-bit hash with the same interface replaces it. This changes no answer: the hash only selects where a block is
looked up, and the manager also compares the tokens.
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
    """The classes of a checkout that the manager's adapter uses."""

    make: Any
    sequence: Any


class Hash64:
    """The part of `xxhash.xxh64` that nano-vllm calls."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=HASH_BYTES)

    def update(self, data: bytes) -> None:
        self._hash.update(data)

    def intdigest(self) -> int:
        return int.from_bytes(self._hash.digest(), "little")


class Scheduler(NamedTuple):
    """The classes of a checkout that the scheduler's adapter uses."""

    make: Any
    sequence: Any


def import_manager(path: str) -> Manager:
    """Import the block manager of a checkout. Raises EngineError if the folder is not a checkout."""
    _mount(path, "block_manager")
    module = partial_import.module_of(PACKAGE, ["engine.block_manager"])
    return Manager(module.BlockManager, module.Sequence)


def import_scheduler(path: str) -> Scheduler:
    """Import the scheduler of a checkout. Raises EngineError if the folder is not a checkout."""
    _mount(path, "scheduler")
    module = partial_import.module_of(PACKAGE, ["engine.scheduler"])
    return Scheduler(module.Scheduler, module.Sequence)


def _mount(path: str, module: str) -> None:
    folder = Path(path).expanduser()
    if not (folder / PACKAGE / "engine" / f"{module}.py").is_file():
        raise EngineError(f"{path} is not a checkout of nano-vllm: it has no {PACKAGE}/engine/{module}.py")
    partial_import.mount(PACKAGE, folder, {"config": {"Config": object}})
    if "xxhash" not in sys.modules and importlib.util.find_spec("xxhash") is None:
        replacement = sys.modules["xxhash"] = ModuleType("xxhash")
        replacement.__dict__["xxh64"] = Hash64
