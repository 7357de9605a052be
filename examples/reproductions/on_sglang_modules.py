"""SGLang's own modules, on a machine without a device and without the packages that they import.

Most of SGLang needs a device, compiled kernels and many other packages. `import_modules` makes only those modules
importable that a script names, from the files of the SGLang that Python finds. Every other module of it is a stub,
and so are packages outside of it that are not installed.

While modules are imported, a stub answers everything: it is a decorator, a base class, a type. Afterwards it answers
two questions only: it counts as false, and its names in capitals are constants. Every other one fails with the name
that was asked for. What the modules need of others is therefore listed in `STAND_INS`, or by the script.
"""

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from importlib.abc import Loader, MetaPathFinder
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

PACKAGE = "sglang"
importing = [True]  # what a stub answers depends on it


class Stub:
    """Something of a module that is not there. name: where it would be."""

    def __init__(self, name: str) -> None:
        self._name, self._constants = name, dict[str, "Stub"]()

    def _answer(self, name: str) -> "Stub":
        """Another stub. Raises LookupError if the modules are imported already."""
        if not importing[0]:
            raise LookupError(f"SGLang uses {name}, which this script does not stand in for")
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
    """Finds the modules of SGLang, and the packages outside of it in `others`."""

    def __init__(
        self, folder: Path, real: Sequence[str], stand_ins: Mapping[str, Mapping[str, Any]], others: Sequence[str]
    ) -> None:
        self.folder, self.real, self.stand_ins, self.others = folder, real, stand_ins, others

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package in self.others:
            return self._stub(fullname)
        if package != PACKAGE:
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
    names: Sequence[str], stand_ins: Mapping[str, Mapping[str, Any]] | None = None
) -> Callable[[str], Any]:
    """Import these modules of SGLang, as far as the release has them.

    stand_ins: names in modules that are not imported, by module. Returns a function that gives a module by its name,
    or None if the release does not have it. Raises ModuleNotFoundError if Python finds no SGLang.
    """
    os.environ["SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"] = "python"  # the other one is compiled
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("SGLang is not installed")
    folder = Path(spec.submodule_search_locations[0])
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]
    real = [name for name in ("srt.environ", *CACHES, *names) if has_module(folder, name)]
    others = [name for name in OTHERS if importlib.util.find_spec(name) is None]
    sys.meta_path.insert(0, Finder(folder, real, STAND_INS | dict(stand_ins or {}), others))
    for name in real:
        importlib.import_module(f"{PACKAGE}.{name}")
    importing[0] = False
    return lambda name: sys.modules.get(f"{PACKAGE}.{name}") if name in real else None


def has_module(folder: Path, name: str) -> bool:
    """Whether the SGLang in this folder has a module."""
    place = folder.joinpath(*name.split("."))
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


CACHES = tuple(
    f"srt.mem_cache.{name}"
    for name in (
        "allocator", "allocator.base", "allocator.page_interleave", "allocator.paged", "allocator.token",
        "base_prefix_cache", "buffer_mode.storage_existence_cache", "cache_init_params", "chunk_cache", "common",
        "events", "evict_policy", "memory_pool", "radix_cache", "session_radix_cache", "storage_prefetch",
        "unified_cache.cache_action", "unified_cache.component_type", "unified_cache.components",
        "unified_cache.components.base", "unified_cache.components.full", "unified_cache.components.full_component",
        "unified_cache.components.mamba", "unified_cache.components.mamba_component", "unified_cache.components.swa",
        "unified_cache.components.swa_component", "unified_cache.components.tree_component",
        "unified_cache.session_ref_tracker", "unified_cache.tree_core_registry", "unified_cache.unified_tree_core",
        "unified_cache.unified_tree_core_interface", "unified_radix_cache", "utils",
    )
)  # fmt: skip
OTHERS = ("triton", "zmq", "psutil", "setproctitle")


class NoSaver:
    """Stands in for what keeps memory across a pause; it keeps nothing."""

    @staticmethod
    def create(**options: Any) -> "NoSaver":
        return NoSaver()

    def region(self, tag: str) -> Any:
        return nullcontext()


def no(*arguments: Any, **options: Any) -> bool:
    """A function that says that something is absent or off."""
    return False


def num_new_pages(seq_lens: Any, page_size: int, prefix_lens: Any = None, decode: bool = False) -> int:
    """How many pages these sequences need beyond those of their prefixes."""
    after: list[int] = seq_lens.tolist()
    before: list[int] = [length - 1 for length in after] if decode else prefix_lens.tolist()
    return sum(-(-one // page_size) - -(-other // page_size) for one, other in zip(after, before, strict=True))


UTILS = {"get_bool_env_var": no, "get_num_new_pages": num_new_pages}
STAND_INS: dict[str, dict[str, Any]] = {
    "srt.utils": UTILS,
    "srt.utils.common": UTILS,
    "srt.utils.torch_memory_saver_adapter": {"TorchMemorySaverAdapter": NoSaver},
}
