"""The first file of each process in which kvproof runs a module of its own; `program.module` makes the command.

No file of the working folder is imported, however it is called: `python -m` would search that folder first, and this
file is started by its path, without a folder of its own on the path (`-P`). `kvproof` is that of the process that
starts this one. A `kvproof.py` in any folder of the path would come before it, as it has no `__init__.py`.
Folders that only the other process has on its path are searched last.
"""

import runpy
import sys
from types import ModuleType


def begin(folders: list[str], path: list[str], name: str) -> None:
    """Run a module as a program. folders: of the package `kvproof`. path: where the other process finds modules."""
    package = ModuleType("kvproof")
    package.__path__ = folders
    sys.modules[package.__name__] = package
    sys.path += [folder for folder in path if folder not in sys.path]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    name, num_folders, num_path, *rest = sys.argv[1:]
    folders, rest = rest[: int(num_folders)], rest[int(num_folders) :]
    path, arguments = rest[: int(num_path)], rest[int(num_path) :]
    sys.argv[1:] = arguments
    begin(folders, path, name)
