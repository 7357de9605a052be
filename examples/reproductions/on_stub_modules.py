"""Modules of an engine, on a machine without a device and without the packages that they import.

Most of an engine needs a device, compiled kernels and many other packages. `import_modules` makes only those modules
importable that a script names, from the files of the engine that Python finds. Every other module of it is a stub, and
so are packages outside of it that are not installed.

While modules are imported, a stub answers everything: it is a decorator, a base class, a type. Afterwards it answers
two questions only: it counts as false, and its names in capitals are constants. Every other one fails with the name
that was asked for. What the modules need of others is therefore a stand-in that the script gives.
"""

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

importing = [True]  # what a stub answers depends on it


class Stub:
    """Something of a module that is not there. name: where it would be."""

    def __init__(self, name: str) -> None:
        self._name, self._constants = name, dict[str, "Stub"]()

    def _answer(self, name: str) -> "Stub":
        """Another stub. Raises LookupError if the modules are imported already."""
        if not importing[0]:
            raise LookupError(f"the engine uses {name}, which this script does not stand in for")
        return Stub(name)

    def __getattr__(self, name: str) -> "Stub":
        if name.startswith("__"):
            raise AttributeError(name)
        if name.isupper():
            return self._constants.setdefault(name, Stub(f"{self._name}.{name}"))
        return self._answer(f"{self._name}.{name}")

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """A call of a function, or a decorator, which changes nothing."""
        if len(arguments) == 1 and isinstance(arguments[0], (FunctionType, type)):
            return arguments[0]
        if self._name.rpartition(".")[2].startswith(("is_", "support")):
            return False
        return self._answer(f"{self._name}()")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __instancecheck__(self, one: Any) -> bool:
        return False

    def __getitem__(self, item: Any) -> "Stub":
        return self._answer(f"{self._name}[]")

    def __iter__(self) -> Iterator[Any]:
        self._answer(f"what is in {self._name}")
        return iter(())

    def __or__(self, other: Any) -> "Stub":
        return self

    __ror__ = __or__

    def __bool__(self) -> bool:
        return False


class StubModule(ModuleType):
    """A module that is not there. stand_ins: the names in it that do something. real: the modules that are there."""

    def __init__(self, name: str, stand_ins: Mapping[str, Any], real: Sequence[str]) -> None:
        super().__init__(name)
        self.__dict__.update(stand_ins)
        self._real = real

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        whole = f"{self.__name__}.{name}"
        if whole.partition(".")[2] in self._real:
            return importlib.import_module(whole)
        stub = Stub(f"{self.__name__}.{name}")
        setattr(self, name, stub)  # so that constants are the same for all who import them
        return stub


class Finder(MetaPathFinder, Loader):
    """Finds the modules of a package, and the packages outside of it in `others`."""

    def __init__(
        self,
        package: str,
        folder: Path,
        real: Sequence[str],
        stand_ins: Mapping[str, Mapping[str, Any]],
        others: Sequence[str],
    ) -> None:
        self.package, self.folder, self.real, self.stand_ins, self.others = package, folder, real, stand_ins, others

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package in self.others:
            return self._stub(fullname)
        if package != self.package:
            return None
        file = self.folder.joinpath(*name.split(".")) if name else self.folder
        if name in self.real:
            place = file.with_suffix(".py") if file.with_suffix(".py").is_file() else file / "__init__.py"
            inside = [str(file)] if place.name == "__init__.py" else None
            return importlib.util.spec_from_file_location(fullname, place, submodule_search_locations=inside)
        return self._stub(fullname)

    def _stub(self, name: str) -> importlib.machinery.ModuleSpec:
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return StubModule(spec.name, self.stand_ins.get(spec.name.partition(".")[2], {}), self.real)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


def import_modules(
    package: str,
    names: Sequence[str],
    stand_ins: Mapping[str, Mapping[str, Any]],
    others: Sequence[str] = ("triton", "zmq", "psutil", "setproctitle"),
) -> Callable[[str], Any]:
    """Import these modules of a package, as far as the release has them.

    stand_ins: names in modules that are not imported, by module. others: packages that are stubs if they are not
    installed. Returns a function that gives a module by its name, or None if the release does not have it. Raises
    ModuleNotFoundError if Python does not find the package.
    """
    folder = folder_of(package)
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]
    real = [name for name in names if has_module(folder, name)]
    absent = [name for name in others if name != package and importlib.util.find_spec(name) is None]
    sys.meta_path.insert(0, Finder(package, folder, real, stand_ins, absent))
    for name in real:
        importlib.import_module(f"{package}.{name}")
    importing[0] = False
    return lambda name: sys.modules.get(f"{package}.{name}") if name in real else None


def folder_of(package: str) -> Path:
    """Where the files of a package are. Raises ModuleNotFoundError if Python does not find it."""
    if package in sys.modules:
        return Path(sys.modules[package].__path__[0])
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{package} is not installed")
    return Path(spec.submodule_search_locations[0])


def has_module(folder: Path, name: str) -> bool:
    """Whether the package in this folder has a module."""
    place = folder.joinpath(*name.split("."))
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()
