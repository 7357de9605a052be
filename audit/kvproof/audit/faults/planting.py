"""Plant a fault: in a copy of its tree, in a module of this process, or in the text of a specification.

The copy of a tree has folders of its own, whose files are links, except those that the fault changes. A process imports
the copy instead of the original, which stays as it is; the copy of an engine is a checkout, as a user names one. In
this process only the code of the changed function is another, so classes and enums stay the same objects, and taking
the fault out again is exact.
"""

import ast
import copy
import importlib
import inspect
import linecache
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from operator import attrgetter
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from kvproof.audit.faults.edits import Edit, Fault, NotPlanted, release_of
from kvproof.check.isolation.remote_subject import RemoteFactory
from kvproof.check.subjects.loading import EngineError, download
from kvproof.check.subjects.registry import as_release
from kvproof.spec.syntax_trees import made_function

if TYPE_CHECKING:
    from kvproof.models.translation.text import Text

ROOT = Path(__file__).parents[4]  # of a checkout
PACKAGES = ("spec", "impl", "models", "check", "reports", "audit")


def plain(fault: Fault) -> Path:
    """The folder of the unchanged tree: this checkout or an engine. Raises NotPlanted if that is not downloaded."""
    if not (release := release_of(fault)):
        return ROOT
    try:
        return download.find(download_name(fault.subject), release)
    except EngineError as error:
        raise NotPlanted(str(error)) from error


def download_name(subject: str) -> str:
    """The engine of a subject, as its releases are called in the cache: "vllm" for "vllm-v1==0.33.0"."""
    return subject.partition("==")[0].partition("-")[0]


def sources(fault: Fault) -> dict[str, str]:
    """The files that the fault changes, as they are with it. Raises NotPlanted."""
    root, changed = plain(fault), dict[str, str]()
    for edit in fault.plant:
        try:
            before = changed.get(edit.file) or (root / edit.file).read_text(encoding="utf-8")
            changed[edit.file] = edit.changed(before)
        except FileNotFoundError as error:
            raise NotPlanted(f"{fault.id}: there is no file {edit.file} in {root}") from error
        except NotPlanted as error:
            raise NotPlanted(f"{fault.id}: {error}") from error
    return changed


@contextmanager
def copied(fault: Fault) -> Iterator[Path]:
    """A folder to import the faulty package from, or a checkout of the release with the fault.

    All edits of a fault of a checkout are in one package. Raises NotPlanted.
    """
    changed, tree, release = sources(fault), plain(fault).absolute(), release_of(fault)
    (package,) = {""} if release else {file.partition("/")[0] for file in changed}
    with tempfile.TemporaryDirectory(prefix="kvproof-fault-") as folder:
        root = Path(folder)
        shutil.copytree(tree / package, root / package, copy_function=os.symlink, dirs_exist_ok=True)
        for file, text in changed.items():
            (root / file).unlink()
            (root / file).write_text(text, encoding="utf-8")
        yield root / package


@contextmanager
def environment(fault: Fault) -> Iterator[dict[str, str]]:
    """The environment of a process that imports this checkout with the fault. Raises NotPlanted."""
    with copied(fault) as folder:
        paths = os.pathsep.join(map(str, (folder, *(ROOT / one for one in PACKAGES))))
        yield {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")} | {"PYTHONPATH": paths}


@contextmanager
def planted(fault: Fault) -> Iterator[RemoteFactory]:
    """A factory of the subject with the fault. Raises NotPlanted, and UnknownSubject if it cannot be made."""
    release = release_of(fault)
    with copied(fault) as folder:
        name = as_release(f"{fault.subject.partition('==')[0]}=={folder}", release) if release else fault.subject
        # The process of a subject takes its path from this one.
        with nullcontext() if release else _first_on_path(str(folder)):
            factory = RemoteFactory(name)
        try:
            yield factory
        finally:
            factory.close()


@contextmanager
def _first_on_path(folder: str) -> Iterator[None]:
    """Let processes that begin now import from this folder first.

    In a worker, the folders of `kvproof` are a list that does not follow the path (`hosts.begin`).
    """
    package, before = sys.modules["kvproof"], sys.modules["kvproof"].__path__
    sys.path.insert(0, folder)
    if isinstance(before, list):
        package.__path__ = [os.path.join(folder, package.__name__), *before]
    try:
        yield
    finally:
        sys.path.remove(folder)
        package.__path__ = before


# In this process ------------------------------------------------------------------------------------------------------


@contextmanager
def in_memory(edit: Edit, module: str = "") -> Iterator[None]:
    """Within the block, the function has the fault. module: where it is; by default that of the file of a checkout.

    Raises NotPlanted.
    """
    imported = importlib.import_module(module or module_of(edit.file))
    function = _function(imported, edit.function)
    before = function.__code__
    function.__code__ = _faulty_code(imported, function, edit)
    try:
        yield
    finally:
        function.__code__ = before


def faulty(original: Any, old: str, new: str) -> Any:
    """The class or function from a source in which one text of it is replaced; the original stays as it is.

    Raises NotPlanted.
    """
    module = sys.modules[original.__module__]
    rewritten = ModuleType(module.__name__)
    rewritten.__package__ = module.__package__
    source = Edit(original.__name__, old, new).changed(inspect.getsource(module))
    name = f"a mutant of {module.__name__}, {hash(source)}"
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name  # a proof reads it
    exec(compile(source, name, "exec"), vars(rewritten))
    return getattr(rewritten, original.__name__)


def module_of(file: str) -> str:
    """The name under which a file of the checkout is imported: below its root, if it lies in one."""
    first, *others = Path(file).with_suffix("").parts
    return ".".join(others if first in PACKAGES else (first, *others))


def _function(module: ModuleType, name: str) -> FunctionType:
    try:
        found: Any = attrgetter(name)(module)
    except AttributeError as error:
        raise NotPlanted(f"{module.__name__} has no function {name}") from error
    found = found.fget if isinstance(found, property) else found
    assert isinstance(found, FunctionType), f"{name} is no function"
    return found


def _faulty_code(module: ModuleType, function: FunctionType, edit: Edit) -> CodeType:
    code = compile(edit.changed(inspect.getsource(module)), inspect.getfile(function), "exec")
    for part in edit.function.split("."):
        code = next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == part)
    if code.co_freevars != function.__code__.co_freevars:
        raise NotPlanted(f"the fault in {edit.function} changes what it closes over")
    return code


# In the text of a specification ---------------------------------------------------------------------------------------


def functions_changed(fault: Fault) -> list[str]:
    """The functions of the text that the fault changes."""
    return [edit.function for edit in fault.plant]


def text_with(text: "Text", *edits: Edit, file: str = "<text>") -> "Text":
    """The text of the specification after the changes. file: its name in messages. Raises NotPlanted, NotInLanguage."""
    changed = dict[str, str]()
    for edit in edits:
        function, _ = text.functions[edit.function]
        if edit.statement is not None:
            return text.replaced(edit.function, with_statement(function, edit))
        changed[edit.function] = _rewritten(changed.get(edit.function) or source_of(function) + "\n", edit)
    return text.rewritten("\n\n".join(changed.values()), file)


def faulty_text(fault: Fault, text: "Text") -> "Text":
    """The text of the specification with the fault. Raises NotPlanted, NotInLanguage."""
    return text_with(text, *fault.plant, file=f"{fault.id}.py")


def source_of(function: ast.FunctionDef, body: list[ast.stmt] | None = None) -> str:
    """The source of a function without its decorators, with another body if one is given."""
    return ast.unparse(made_function(function.name, function.args, body or function.body, function))


def _rewritten(source: str, edit: Edit) -> str:
    """The source of a function after the change: of the text `old`, or of all below the head if there is none."""
    return edit.changed(source) if edit.old else f"{source.splitlines()[0]}\n    {edit.new}\n"


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Every statement, including those inside branches."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If):
            yield from statements(statement.body)
            yield from statements(statement.orelse)


def with_statement(plain_function: ast.FunctionDef, edit: Edit) -> ast.FunctionDef:
    """The function with another statement, or with none, in the place of one. Raises NotPlanted."""
    function = copy.deepcopy(plain_function)
    same = [one for one in statements(function.body) if ast.unparse(one) == edit.old]
    assert edit.statement is not None
    if len(same) <= edit.statement:
        raise NotPlanted(f"{edit.function} has no such statement: {edit.old}")
    new = ast.parse(edit.new or "pass").body
    for part in new:
        for node in ast.walk(part):
            if isinstance(node, (ast.expr, ast.stmt)):
                ast.copy_location(node, same[edit.statement])
    _replace(function, same[edit.statement], new)
    return function


def _replace(parent: ast.AST, statement: ast.stmt, new: list[ast.stmt]) -> None:
    for node in ast.walk(parent):
        for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if isinstance(body, list) and any(each is statement for each in body):
                place = next(place for place, each in enumerate(body) if each is statement)
                body[place : place + 1] = new
