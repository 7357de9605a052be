"""Import one module of an unpacked engine without its package `__init__` and without what that would import.

A shell is an empty package over the unpacked folder: its submodules are found there, its `__init__` never runs. A
stand-in is a module that holds just the names the wanted module imports from a sibling that is too heavy to import.
Nothing else is replaced, and no import is caught in general: a release that asks for more fails with the name it asks
for, rather than running on something that is not there.

Limits: one process has one release of an engine, since its modules stay imported; and stand-ins are of use only where
the wanted module takes types and small helpers from them, not behaviour that is to be judged.
"""

import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from kvproof.check.subjects.loading import EngineError
from kvproof.spec.extras import extra_with, not_installed

_mounted: dict[str, tuple[Path, frozenset[str]]] = {}  # the folder, and what stands in for the rest


def installed_version(package: str) -> str:
    """The version of a package that is really installed in this environment; empty if it is not."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


class StandInModule(ModuleType):
    """A module of an engine that kvproof replaces. Its type shows that it is ours if a name is missing in it."""


class StubModule(StandInModule):
    """A module in which every name that is asked for is one and the same thing."""

    def __init__(self, name: str, filling: Any) -> None:
        super().__init__(name)
        self.filling = filling

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.filling


def mount(
    package: str,
    folder: Path,
    stand_ins: Mapping[str, Mapping[str, Any]],
    stubs: Iterable[str] = (),
    filling: Any = None,
) -> Callable[[str], Any]:
    """Make `package` a shell over `folder / package`; `stand_ins` maps submodules to the names in them.

    stubs: submodules in which every name is `filling`, for code that is imported and not used. Returns the function
    that imports a submodule by its name, as `module_of` does.

    Raises EngineError if another release, or the package itself, has been imported in this process.
    """
    root = (folder / package).resolve()
    wanted = (root, frozenset((*stand_ins, *stubs)))
    if _mounted.get(package) == wanted:
        return partial(module_of, package)
    if package in sys.modules:
        which = _mounted[package][0] if package in _mounted else "the installed one"
        raise EngineError(
            f"this process has imported {package} already ({which}); use one process for each release and subject"
        )
    _mounted[package] = wanted
    shell = sys.modules[package] = StandInModule(package)
    shell.__path__ = [str(root)]
    for name in stubs:
        sys.modules[f"{package}.{name}"] = StubModule(f"{package}.{name}", filling)
    for name, names in stand_ins.items():
        module = sys.modules[f"{package}.{name}"] = StandInModule(f"{package}.{name}")
        module.__dict__.update(names)
        setattr(shell, name, module)
    return partial(module_of, package)


def has_module(package: str, module: str) -> bool:
    """Whether the release has a file for that submodule. Imports its parents."""
    try:
        return importlib.util.find_spec(f"{package}.{module}") is not None
    except ModuleNotFoundError as error:
        if error.name is not None and f"{package}.{module}".startswith(f"{error.name}."):
            return False
        raise EngineError(_needs(f"{package}.{module}", error)) from error


def module_of(package: str, module: str) -> Any:
    """The submodule, imported. Raises EngineError."""
    name = f"{package}.{module}"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise EngineError(f"the release has no module {name}") from error
        raise EngineError(_needs(name, error)) from error
    except ImportError as error:
        raise EngineError(f"{name} cannot be imported from its sources: {error}") from error


def _needs(name: str, error: ModuleNotFoundError) -> str:
    """Which module the engine's module lacks, and how to install it if kvproof has an extra for it."""
    missing = (error.name or "").partition(".")[0]
    if extra_with(missing):
        return not_installed(name, missing)
    return f"{name} needs {error.name}, which kvproof does not stand in for"
