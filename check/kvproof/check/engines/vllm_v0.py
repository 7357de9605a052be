"""vLLM's V0 block manager of the second generation, importable without torch.

Of the rest of vLLM the manager takes: which device a block is on, two ways of cutting lists, the status a sequence has
(compared, never computed with), the platform (one of them pads with block 0), a logger, and two error messages.
`Sequence` and `SequenceGroup` occur in annotations only.
"""

import enum
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kvproof.check.engines import EngineError, bring, shells

MODULES = ("core.block_manager_v2", "core.block_manager")  # the first where a release has both generations
CLASSES = ("BlockSpaceManagerV2", "SelfAttnBlockSpaceManager")


class Device(enum.Enum):
    """Where a block is."""

    GPU = enum.auto()
    CPU = enum.auto()


class SequenceStatus(enum.Enum):
    """What the manager filters the sequences of a group by."""

    WAITING = enum.auto()
    RUNNING = enum.auto()
    SWAPPED = enum.auto()


def ceil_div(numerator: int, denominator: int) -> int:
    """The quotient, rounded up."""
    return -(-numerator // denominator)


def pieces(items: list[Any], length: int) -> list[list[Any]]:
    """The list in pieces of `length`, the last one perhaps shorter."""
    return [items[first : first + length] for first in range(0, len(items), length)]


def silent_logger(name: str) -> logging.Logger:
    """A logger that says nothing: a judge calls the manager a million times."""
    logger = logging.getLogger(f"kvproof.engine.{name}")
    logger.disabled = True
    return logger


STAND_INS: dict[str, dict[str, Any]] = {
    "logger": {"init_logger": silent_logger},
    "platforms": {"current_platform": SimpleNamespace(is_hpu=lambda: False)},
    "sequence": {"Sequence": object, "SequenceGroup": object, "SequenceStatus": SequenceStatus},
    "utils": {
        "Device": Device,
        "cdiv": ceil_div,
        "chunk_list": pieces,
        "STR_NOT_IMPL_ENC_DEC_PREFIX_CACHE": "no prefix caching with an encoder",
        "STR_NOT_IMPL_ENC_DEC_SWA": "no sliding window with an encoder",
    },
}


def import_manager(version: str, cache: Path | None = None) -> tuple[Any, Any]:
    """The manager's class and its `SequenceStatus`, from vLLM as installed if that is the version, else as unpacked.

    Raises EngineError if the release is not here, or has no such manager.
    """
    if shells.installed_version("vllm") != version:
        shells.mount("vllm", bring.find("vllm", version, cache), STAND_INS)
    module = shells.module_of("vllm", MODULES)
    name = next((name for name in CLASSES if hasattr(module, name)), "")
    if not name:
        raise EngineError(f"vLLM {version} has no block manager of the second generation")
    return getattr(module, name), shells.module_of("vllm", ("sequence",)).SequenceStatus
