"""Subjects of the user's own: from `module:factory` or `path/to/file.py:factory` to the function, and back."""

import ast
import difflib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from kvproof.check.hosts.interrupt import is_from_outside
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.finding import error_text
from kvproof.check.protocol.suggestion import did_you_mean
from kvproof.check.subjects import UnknownSubject

OUR_CODE = Path(__file__).parents[1]
PIPE = "pipe:"  # how the name of a subject begins that is a program of its own
FORMS = "module:factory or path/to/file.py:factory"
UNKNOWN_CAPABILITY = re.compile(r"(?:\w+Can|Capabilities)\.__init__\(\) got an unexpected keyword argument '(\w+)'$")
SHIPPED = "KVPROOF_SHIPPED"  # a variable: the path of a file as a subject names it, a new line, and where it is here


def own(name: str, kind: str = "factory") -> Callable[..., Any]:
    """The class or function named by `module:attribute` or `path/to/file.py:attribute`; it is not called.

    kind: what a message calls it. Raises UnknownSubject if it cannot be imported, or is not callable.
    """
    where, _, attribute = name.rpartition(":")
    if not where or not attribute:
        raise UnknownSubject(f"{name!r} does not name a {kind}: write {FORMS.replace('factory', kind)}")
    found: Any = _module(name, where)
    for part in attribute.split("."):
        if not hasattr(found, part):
            close = difflib.get_close_matches(part, [n for n in dir(found) if not n.startswith("_")], n=1)
            hint = f"; did you mean {close[0]}?" if close else _defined_in(found)
            raise UnknownSubject(f"{name}: {where} has no {part!r}{hint}")
        found = getattr(found, part)
    if not callable(found):
        raise UnknownSubject(f"{name}: {attribute} is not a {kind}: it is of type {type(found).__name__}, not callable")
    return found  # type: ignore[no-any-return]


def _defined_in(found: Any) -> str:
    """What a module defines that a subject could be made of, as the end of a message; empty if nothing."""
    own = vars(found).items() if isinstance(found, ModuleType) else ()
    names = [name for name, value in own if callable(value) and getattr(value, "__module__", "") == found.__name__]
    named = [name for name in names if not name.startswith(("_", "test_"))]
    return f"; it defines {', '.join(named)}" if named else ""


def without_attribute(file: str) -> str:
    """What is wrong with the name of a file alone: which names of the file may stand behind it."""
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        return f"{file} names a file that cannot be read as Python: {error}"
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    named = [name for name in [*reversed(classes), *functions] if not name.startswith(("_", "test_"))]
    names = sorted(named, key=lambda name: "adapter" not in name.lower())
    if not names:
        return f"{file} defines no class and no function that could make a subject"
    return f"{file} is a file; name the subject in it, as in {file}:{names[0]} (it defines {', '.join(names)})"


def name_of(factory: Callable[..., Any]) -> str | None:
    """A name by which `own` finds this factory again; None if it has none (a lambda, a local function).

    A module inside a package is named as a module. Any other module is named by its file, because the process that
    reads the name may not have the module's folder on its path.
    """
    module, attribute = getattr(factory, "__module__", None), getattr(factory, "__qualname__", None)
    if not module or not attribute or "<" in attribute or not (file := _file_of(factory)):
        return None
    if "." in module and _is_importable(module, Path(file)):
        return f"{module}:{attribute}"
    path, here = Path(file), Path.cwd()
    return f"{path.relative_to(here).as_posix() if path.is_relative_to(here) else path}:{attribute}"


def _is_importable(module: str, file: Path) -> bool:
    """Whether a new process can import the module by its name, from this file.

    That it is in `sys.modules` says nothing: pytest with `--import-mode=importlib` puts modules there that no path has.
    """
    package, *inner = module.split(".")
    folder = file.parents[len(inner) - (file.name != "__init__.py")]
    for finder in sys.meta_path:
        with suppress(ImportError, ValueError, AttributeError):
            if (spec := finder.find_spec(package, None)) is not None:
                return str(folder) in map(str, spec.submodule_search_locations or ())
    return False


def _file_of(factory: Callable[..., Any]) -> str | None:
    try:
        return inspect.getsourcefile(factory)
    except TypeError:
        return None


def _module(name: str, where: str) -> ModuleType:
    is_file = where.endswith(".py") or "/" in where or os.sep in where
    try:
        return _from_file(_place_here(where)) if is_file else _imported(where)
    except FileNotFoundError as error:
        if is_file and not Path(where).is_file():
            raise UnknownSubject(f"{name}: there is no file {where}") from error
        raise UnknownSubject(f"{name}: {where} cannot be imported: {type(error).__name__}: {error}") from error
    except BaseException as error:
        if is_from_outside(error):
            raise
        what = f"{type(error).__name__}: {error_text(error)}{_meant(error)}"
        raise UnknownSubject(f"{name}: {where} cannot be imported: {what}{_line_of(error)}") from error


def _meant(error: BaseException) -> str:
    """Which capability was meant, if one is declared that kvproof does not know. From 3.13 on Python says it itself."""
    found = UNKNOWN_CAPABILITY.match(error_text(error)) if isinstance(error, TypeError) else None
    return did_you_mean(found[1], Capabilities.__dataclass_fields__) if found else ""


def _line_of(error: BaseException) -> str:
    """The last line of the user's code that ran before the error, as " (file:line)"; empty if none did."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        is_ours = Path(frame.filename).is_relative_to(OUR_CODE) or frame.filename == importlib.__file__
        if not is_ours and not frame.filename.startswith("<"):
            return f" ({os.path.relpath(frame.filename)}:{frame.lineno})"
    return ""


def _place_here(where: str) -> Path:
    """The path of a file that a subject names; another one, if the file came from another machine."""
    named, _, place = os.environ.get(SHIPPED, "").partition("\n")
    return Path(place if named == where else where)


def _imported(module: str) -> ModuleType:
    """Import a module that is looked for in the working folder first; it can import its neighbours.

    That folder is the last one on the path, so that no file in it is taken for a module of the system or of kvproof.
    """
    here, package = os.getcwd(), module.partition(".")[0]
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    spec = None if package in sys.modules else PathFinder.find_spec(package, [here])
    if spec is not None and spec.loader is not None and spec.origin is not None:
        _executed(spec)
    return importlib.import_module(module)


def _from_file(path: Path) -> ModuleType:
    """Import a file in its present state; it can import its neighbours."""
    path = path.resolve(strict=True)
    name = f"kvproof_subject_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("it is not a Python file")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    return _executed(spec)


def _executed(spec: ModuleSpec) -> ModuleType:
    """A new module."""
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(spec.name, None)
        raise
    return module
