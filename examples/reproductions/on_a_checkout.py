"""Modules of a checkout, which a script is given as its only argument, without what their packages import."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def checkout() -> Path:
    """The folder of the checkout."""
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        print(f"usage: python {Path(sys.argv[0]).name} CHECKOUT", file=sys.stderr)
        sys.exit(2)
    return Path(sys.argv[1])


def without_init(package: str, folder: Path) -> None:
    """Make a package importable from this folder; its `__init__` does not run."""
    module = sys.modules[package] = ModuleType(package)
    module.__path__ = [str(folder)]


def nano_vllm(package: str, folder: Path) -> tuple[Any, Any]:
    """`BlockManager` and `Sequence` of nano-vllm, or of a project that began as a copy of it."""
    without_init(package, folder)
    without_init(f"{package}.engine", folder / "engine")
    names = (f"{package}.engine.block_manager", f"{package}.engine.sequence")
    manager, sequence = (importlib.import_module(name) for name in names)
    return manager.BlockManager, sequence.Sequence
