"""Load some modules of an engine from their files, and replace every other submodule by a stub.

`partial_import.mount` lists the stubs one by one. That list is long and changes with each release if the wanted modules
import half of the package. Then it is easier to list the modules that are real. A real module is loaded from its file.
A package that contains one is loaded without its `__init__`. Every other submodule is a stub, in which all names have
the same value. If this value is a type that cannot be instantiated, code that was thought to be unused fails at once.
"""

import importlib
import importlib.machinery
import importlib.util
import sys
from abc import ABCMeta
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from kvproof.check.protocol.fault_attribution import StandInError
from kvproof.check.subjects.loading import EngineError
from kvproof.check.subjects.loading.partial_import import StandInModule, StubModule

_mounted: dict[str, Path] = {}


class Constant(str):
    """A constant of a stub type: its name, and the value of an enumeration of that name."""

    __slots__ = ()

    @property
    def value(self) -> str:
        return str(self)


class Constants(ABCMeta):
    """Metaclass of the stub type: an attribute in capitals is a constant whose value is its name."""

    def __getattr__(cls, name: str) -> Constant:
        if not name.isupper():
            raise AttributeError(name)
        return Constant(name)


class Unused(metaclass=Constants):
    """A stub type for annotations, base classes and code that is not used; it cannot be instantiated."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        raise StandInError("the engine uses a part of itself that kvproof does not stand in for")


class _Rest(MetaPathFinder, Loader):
    """Finds the submodules of one package."""

    def __init__(
        self,
        package: str,
        root: Path,
        real: Collection[str],
        stand_ins: Mapping[str, Mapping[str, Any]],
        filling: Any,
    ) -> None:
        self.package, self.root, self.real, self.stand_ins, self.filling = package, root, real, stand_ins, filling
        self.on_the_way = {name[:at] for name in real for at, letter in enumerate(name) if letter == "."}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname == self.package:
            return self._spec(fullname, [str(self.root)])
        if not fullname.startswith(f"{self.package}."):
            return None
        name = fullname[len(self.package) + 1 :]
        if name in self.real:
            return None  # the ordinary finder takes it from the folder of its parent
        return self._spec(fullname, [str(self.root.joinpath(*name.split(".")))] if name in self.on_the_way else [])

    def _spec(self, fullname: str, places: list[str]) -> importlib.machinery.ModuleSpec:
        spec = importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        spec.submodule_search_locations = places
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        name = spec.name[len(self.package) + 1 :]
        if spec.submodule_search_locations:
            module = StandInModule(spec.name)
        elif isinstance(self.filling, type) and issubclass(self.filling, StubModule):
            module = self.filling(spec.name, None)
        else:
            module = StubModule(spec.name, self.filling)
        module.__dict__.update(self.stand_ins.get(name, {}))
        return module

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


def mount_real(
    package: str,
    root: Path,
    real: Iterable[str],
    stand_ins: Mapping[str, Mapping[str, Any]],
    filling: Any = Unused,
) -> Callable[[str], Any]:
    """Make `package` importable from the folder `root`, of which only the modules in `real` are its own.

    stand_ins: names in modules that are not real. filling: what every other name in them is, or the class of those
    modules. Returns the function that imports a submodule by its name.

    Raises EngineError if the package has been imported in this process from somewhere else.
    """
    root = root.resolve()
    if _mounted.get(package) != root:
        if package in sys.modules:
            which = _mounted.get(package, "the installed one")
            raise EngineError(
                f"this process has imported {package} already ({which}); use one process for each release"
            )
        _mounted[package] = root
        sys.meta_path.insert(0, _Rest(package, root, frozenset(real), stand_ins, filling))
    return lambda name: importlib.import_module(f"{package}.{name}")


def provide(modules: Mapping[str, Mapping[str, Any]]) -> None:
    """Define a package that an engine imports but does not use, unless it is installed.

    modules: the names in the package, and in each of its submodules.
    """
    package = next(iter(modules))
    if package in sys.modules or importlib.util.find_spec(package) is not None:
        return
    for name, names in modules.items():
        module = sys.modules[name] = StandInModule(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        module.__dict__.update(names, __path__=[])


class StubObject(SimpleNamespace):
    """An object with the attributes that are given. Its type shows that it is ours if one is missing."""


def nothing(*arguments: Any, **options: Any) -> None:
    """A stub function that does nothing."""


def no(*arguments: Any, **options: Any) -> bool:
    """A stub function that says that something is absent or off."""
    return False


class WithoutPinning:
    """torch, except that it never pins memory."""

    def __init__(self, torch: Any) -> None:
        self.__dict__["torch"] = torch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.torch, name)

    def empty(self, *sizes: Any, pin_memory: bool = False, **options: Any) -> Any:
        return self.torch.empty(*sizes, **options)
