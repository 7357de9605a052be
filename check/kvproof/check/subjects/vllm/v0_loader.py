"""vLLM's V0 block managers, releases 0.2 to 0.10, importable without torch.

The first generation is `BlockSpaceManager` (0.2.0 to 0.3.3), then `BlockSpaceManagerV1` (0.4.0 to 0.6.3); the second is
`BlockSpaceManagerV2` (0.4.0.post1 to 0.6.3), then `SelfAttnBlockSpaceManager` (0.6.3.post1 to 0.10.2). Where a release
has both, the second is taken unless the first is asked for. A release without either is refused.

Of the rest of vLLM the managers take: which device a block is on, two ways of cutting lists, the status a sequence has
(compared, never computed with), the platform (one of them pads with block 0), a logger, and two error messages.
`Sequence` and `SequenceGroup` occur in annotations only.
"""

import enum
import logging
import sys
from pathlib import Path
from typing import Any, NamedTuple

from kvproof.check.subjects.loading import EngineError, download, partial_import
from kvproof.check.subjects.loading.stub_modules import StubObject, no

# For each generation: where a release has its manager, the first that it has.
MANAGERS: dict[int, tuple[tuple[str, str], ...]] = {
    2: (("core.block_manager_v2", "BlockSpaceManagerV2"), ("core.block_manager", "SelfAttnBlockSpaceManager")),
    1: (("core.block_manager_v1", "BlockSpaceManagerV1"), ("core.block_manager", "BlockSpaceManager")),
}


class Device(enum.Enum):
    """Where a block is."""

    GPU = enum.auto()
    CPU = enum.auto()


class SequenceStatus(enum.Enum):
    """The states of a sequence, by which the manager filters a group."""

    WAITING = enum.auto()
    RUNNING = enum.auto()
    SWAPPED = enum.auto()


class Manager(NamedTuple):
    """A manager's class, its `SequenceStatus`, which generation it is, and the class of its named prefixes, if any."""

    make: Any
    status: Any
    generation: int
    prefix_pool: Any = None


def ceil_div(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


def pieces(items: list[Any], length: int) -> list[list[Any]]:
    """The list in pieces of `length`, the last one perhaps shorter."""
    return [items[first : first + length] for first in range(0, len(items), length)]


class SilentLogger(logging.Logger):
    """A logger that says nothing: a judge calls the manager a million times."""

    def __init__(self, name: str) -> None:
        super().__init__(f"kvproof.engine.{name}")
        self.disabled = True


STAND_INS: dict[str, dict[str, Any]] = {
    "logger": {"init_logger": SilentLogger},
    "platforms": {"current_platform": StubObject(is_hpu=no)},
    "sequence": {"Sequence": object, "SequenceGroup": object, "SequenceStatus": SequenceStatus},
    "utils": {
        "Device": Device,
        "cdiv": ceil_div,
        "chunk_list": pieces,
        "STR_NOT_IMPL_ENC_DEC_PREFIX_CACHE": "no prefix caching with an encoder",
        "STR_NOT_IMPL_ENC_DEC_SWA": "no sliding window with an encoder",
    },
}


def import_manager(version: str, cache: Path | None = None, generation: int | None = None) -> Manager:
    """A release's manager, from vLLM as installed if that is the version, else as unpacked.

    generation: 1 or 2, or the newest that the release has. Raises EngineError if the release is not here, or has no
    such manager.
    """
    if partial_import.installed_version("vllm") != version or download.is_taken_from_checkout("vllm", version):
        partial_import.mount("vllm", download.find("vllm", version, cache), STAND_INS)
    for number in MANAGERS if generation is None else (generation,):
        if number == 2 and not partial_import.has_module("vllm", "core.block"):
            continue  # the archive of 0.4.0 lacks what its second generation imports
        for module_name, name in MANAGERS[number]:
            if partial_import.has_module("vllm", module_name):
                module = partial_import.module_of("vllm", module_name)
                manager = getattr(module, name, None)  # later releases import the abstract class by that name
                if manager is not None and manager.__module__ == module.__name__:
                    status = partial_import.module_of("vllm", "sequence").SequenceStatus
                    has_prefixes = partial_import.has_module("vllm", "prefix")  # 0.3.0 to 0.3.3
                    pool = partial_import.module_of("vllm", "prefix").PrefixPool if has_prefixes else None
                    return Manager(manager, status, number, pool)
    wanted = "" if generation is None else f" of generation {generation}"
    raise EngineError(f"vLLM {version} has no V0 block manager{wanted}; `vllm-v1=={version}` judges its V1 manager")


def hash_holders(manager: Any) -> list[Any]:
    """The classes of a release that hold the hash of no block, `_none_hash`; Python's seed of hashes decides it."""
    blocks = sys.modules.get(f"{manager.__module__.partition('.')[0]}.core.block.prefix_caching_block")
    return [held for held in vars(blocks).values() if "_none_hash" in getattr(held, "__dict__", ())] if blocks else []


def set_hash_seed(manager: Any, seed: int) -> None:
    """Set the hash of no block; a manager keeps none, so that another one may follow. manager: its class."""
    for holder in hash_holders(manager):
        holder._none_hash = hash(f"None {seed}") if seed else hash("None")
