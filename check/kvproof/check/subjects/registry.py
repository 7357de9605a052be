"""The subjects by name: built in, an engine's release, or `module:factory` of the user's own."""

import difflib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from kvproof.check.protocol.adapter_check import check_adapter
from kvproof.check.protocol.adapter_check_pool import check_pool_adapter, is_pool_subject
from kvproof.check.protocol.adapter_check_scheduler import check_scheduler_adapter, is_scheduler_subject
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import ManagerSubject

Factory = Callable[[], ManagerSubject]

BUILT_IN = {
    "kvproof": "kvproof's own block manager",
    "kvproof-generation1": "kvproof's manager behind the interface of the first generation, its windows rings",
    "kvproof-pool": "kvproof's own block pool and prefix cache, block ids only",
    "kvproof-scheduler": "kvproof's own scheduler around it, judged step by step",
    "lmdeploy": "LMDeploy's block manager and prefix-cache trie (0.18), of its PyTorch engine",
    "mini-sglang": "mini-sglang's cache manager, of a checkout: mini-sglang==PATH",
    "nano-vllm": "nano-vllm's block manager, of a checkout: nano-vllm==PATH",
    "nano-vllm-scheduler": "nano-vllm's own scheduler around it, of a checkout, judged step by step",
    "sglang": "SGLang's token pool and prefix cache (0.5.9 to 0.5.23); sglang==VERSION for another release",
    "transformers": "transformers' continuous batching, its whole loop (5.20 to 5.23), judged step by step",
    "vllm-v0": "vLLM's V0 block manager (0.2.0 to 0.10.2); vllm-v0==VERSION for another release",
    "vllm-v0-generation1": "its first generation, where a release has both (0.4.0 to 0.6.3)",
    "vllm-v0-scheduler": "vLLM's own V0 scheduler around it (0.6.5 to 0.10.2), judged step by step",
    "vllm-v1": "vLLM's V1 KV cache manager (0.6.5 to 0.33.0); vllm-v1==VERSION for another release",
    "vllm-v1-pool": "vLLM's V1 block pool by itself (0.10.2 to 0.33.0), block ids only",
    "vllm-v1-scheduler": "vLLM's own V1 scheduler around it (0.11.0 to 0.33.0), judged step by step",
}
# Where the subject of an engine's release is made: module and the generation asked for, if any.
ENGINES: dict[str, tuple[str, dict[str, Any]]] = {
    "lmdeploy": ("kvproof.check.subjects.lmdeploy.manager", {}),
    "mini-sglang": ("kvproof.check.subjects.mini_sglang.manager", {}),
    "nano-vllm": ("kvproof.check.subjects.nano_vllm.manager", {}),
    "nano-vllm-scheduler": ("kvproof.check.subjects.nano_vllm.scheduler", {}),
    "sglang": ("kvproof.check.subjects.sglang.manager", {}),
    "transformers": ("kvproof.check.subjects.transformers.scheduler", {}),
    "vllm-v0": ("kvproof.check.subjects.vllm.v0_manager", {}),
    "vllm-v0-generation1": ("kvproof.check.subjects.vllm.v0_manager", {"generation": 1}),
    "vllm-v0-scheduler": ("kvproof.check.subjects.vllm.v0_scheduler", {}),
    "vllm-v1": ("kvproof.check.subjects.vllm.v1_manager", {}),
    "vllm-v1-pool": ("kvproof.check.subjects.vllm.v1_pool", {}),
    "vllm-v1-scheduler": ("kvproof.check.subjects.vllm.v1_scheduler", {}),
}
WITH_VERSION = frozenset(ENGINES)
BY_PATH = frozenset({"mini-sglang", "nano-vllm", "nano-vllm-scheduler"})
OWN = "module:factory or path/to/file.py:factory for your own"


class UnknownSubject(Exception):
    """No subject can be had by this name; the message says why, and what can."""


def listed() -> list[tuple[str, str]]:
    """Every name that is built in, with what it stands for."""
    return list(BUILT_IN.items())


def find(name: str) -> Factory:
    """What makes the subject of this name. Raises UnknownSubject, and so does what it returns if nothing is made."""
    if ":" in name:
        return _checked(name, own(name))
    known, separator, version = name.partition("==")
    if known not in BUILT_IN:
        raise UnknownSubject(f"there is no subject {name!r}{_suggestion(known)}")
    if separator and (known not in WITH_VERSION or not version):
        raise UnknownSubject(
            f"{name!r}: {known} takes {'a version after ==' if known in WITH_VERSION else 'no version'}"
        )
    if known in BY_PATH and not version:
        raise UnknownSubject(f"{known} has no releases: write {known}==PATH, with the path of a checkout")
    if known == "kvproof":
        from kvproof.check.subjects.builtin import manager

        return _checked(name, manager.make)
    if known == "kvproof-generation1":
        from kvproof.check.subjects.builtin import generation1

        return _checked(name, generation1.make)
    if known == "kvproof-pool":
        from kvproof.check.subjects.builtin import pool

        return _checked(name, pool.make)
    if known == "kvproof-scheduler":
        from kvproof.check.subjects.builtin import scheduler

        return _checked(name, scheduler.make)
    return _checked(name, lambda: _of_engine(known, version))


def _of_engine(name: str, version: str) -> Any:
    module, options = ENGINES[name]
    return importlib.import_module(module).make(**({"version": version} if version else {}), **options)


def _suggestion(name: str) -> str:
    close = difflib.get_close_matches(name, BUILT_IN, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; there are {', '.join(BUILT_IN)}, and {OWN}"


def _checked(name: str, factory: Callable[[], Any]) -> Factory:
    """The factory, with one clear error if it gives no subject."""

    def make() -> ManagerSubject:
        try:
            subject = factory()
        except (KeyboardInterrupt, UnknownSubject):
            raise
        except BaseException as error:
            raise UnknownSubject(f"{name}: the subject cannot be made: {type(error).__name__}: {error}") from error
        try:
            if is_pool_subject(subject):
                check_pool_adapter(subject)
            else:
                (check_scheduler_adapter if is_scheduler_subject(subject) else check_adapter)(subject)
        except AdapterError as error:
            raise UnknownSubject(f"{name}: what the factory returned is no subject: {error}") from error
        return subject  # type: ignore[no-any-return]

    return make


def name_of(factory: Callable[..., Any]) -> str | None:
    """A name by which `find` gives this factory again; None if it has none (a lambda, a local function).

    A module of a package goes by its name, any other by its file: what imports it may not be on the path of who reads
    the name.
    """
    module, attribute = getattr(factory, "__module__", None), getattr(factory, "__qualname__", None)
    if not module or not attribute or "<" in attribute or not (file := _file_of(factory)):
        return None
    if "." in module:
        with suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(module)
            if spec is not None and spec.origin == file:
                return f"{module}:{attribute}"
    path, here = Path(file), Path.cwd()
    return f"{path.relative_to(here).as_posix() if path.is_relative_to(here) else path}:{attribute}"


def _file_of(factory: Callable[..., Any]) -> str | None:
    try:
        return inspect.getsourcefile(factory)
    except TypeError:
        return None


# The user's own ---------------------------------------------------------------------------------------------------


def own(name: str, kind: str = "factory") -> Callable[..., Any]:
    """What `module:attribute` or `path/to/file.py:attribute` names, found but not called; kind: a word for it.

    Raises UnknownSubject if it cannot be imported or called.
    """
    where, _, attribute = name.rpartition(":")
    if not where or not attribute:
        raise UnknownSubject(f"{name!r} names no {kind}: write {OWN.replace('factory', kind)}")
    found: Any = _module(name, where)
    for part in attribute.split("."):
        if not hasattr(found, part):
            close = difflib.get_close_matches(part, [n for n in dir(found) if not n.startswith("_")], n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UnknownSubject(f"{name}: {where} has no {part!r}{hint}")
        found = getattr(found, part)
    if not callable(found):
        raise UnknownSubject(f"{name}: {attribute} is no {kind}: it is {type(found).__name__} and cannot be called")
    return found  # type: ignore[no-any-return]


def _module(name: str, where: str) -> ModuleType:
    is_file = where.endswith(".py") or "/" in where or os.sep in where
    try:
        return _from_file(Path(where)) if is_file else _imported(where)
    except KeyboardInterrupt:
        raise
    except FileNotFoundError as error:
        if is_file and not Path(where).is_file():
            raise UnknownSubject(f"{name}: there is no file {where}") from error
        raise UnknownSubject(f"{name}: {where} cannot be imported: {type(error).__name__}: {error}") from error
    except BaseException as error:
        raise UnknownSubject(f"{name}: {where} cannot be imported: {type(error).__name__}: {error}") from error


def _imported(module: str) -> ModuleType:
    """A module, sought in the working folder too: a console script does not have it on its path."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    return importlib.import_module(module)


def _from_file(path: Path) -> ModuleType:
    """A file as it is now, able to import what lies beside it."""
    path = path.resolve(strict=True)
    name = f"kvproof_subject_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("it is no Python file")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
