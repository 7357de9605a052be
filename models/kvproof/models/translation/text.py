"""The text of the specification for the translator: its functions, each with its file, and its constants."""

import ast
import functools
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

from kvproof.models.translation.errors import NotInLanguage
from kvproof.spec import syntax_trees
from kvproof.spec.syntax_trees import Functions
from kvproof.spec.systems import BLOCK_MANAGERS, System

OF_THE_WHOLE = (ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal)  # each decides about a whole function
WITHOUT_DOMAIN = ("int", "list[int]", "list[list[int]]")  # types that say nothing about the domain of a parameter
OF_SIZES = ("NUM_", "BLOCK_SIZE", "NULL")  # how the names of sizes begin
DEPTH_MAX = 100  # of a syntax tree: what readers that call themselves can do under every Python; the text has 16
NOT_PLAIN = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


@dataclass(frozen=True, eq=False)
class Text:
    """Functions by name, each with its file, the numbers and domains that they name, and the state they are about."""

    functions: Functions
    constants: Mapping[str, Any]
    system: System = BLOCK_MANAGERS

    def replaced(self, name: str, function: ast.FunctionDef) -> "Text":
        """The text with one function replaced, as in a mutant."""
        return replace(self, functions={**self.functions, name: (function, self.functions[name][1])})

    def rewritten(self, source: str, file: str = "<text>") -> "Text":
        """The text in which the functions of a piece of Python replace those of the same names.

        file: the name of the piece in messages. Raises NotInLanguage if it defines anything but functions of the text,
        or if the head of one says something else than that of the function that it replaces: the head that counts is
        the one in the specification. Raises ValueError if it is no Python.
        """
        try:
            body = _parsed(source, file).body
        except SyntaxError as error:
            raise ValueError(f"{file}:{error.lineno or 1}: this is no Python: {error.msg}") from error
        except (RecursionError, MemoryError) as error:
            raise ValueError(f"{file}: an expression is nested too deeply; split it") from error
        found: dict[str, tuple[ast.FunctionDef, str]] = {}
        for node in body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                _require_own_names(node, file)
                continue
            if _is_docstring(node):
                continue
            if not isinstance(node, ast.FunctionDef) or node.name not in self.functions:
                name = getattr(node, "name", type(node).__name__)
                raise NotInLanguage(file, node, f"{name} is no function of the text", "rewrite an existing function")
            _require_same_head(node, file, *self.functions[node.name])
            found[node.name] = (node, file)
        return replace(self, functions={**self.functions, **found})


@dataclass(frozen=True)
class Frame:
    """A function that is being read: its file, the values of its names, and the chain of calls that led to it."""

    file: str
    names: Mapping[str, Any]
    chain: tuple[str, ...]

    def place(self, node: ast.AST) -> str:
        """File and line. The path starts at the package, so that it is the same on every machine."""
        return place_of(self.file, node)

    def named(self, **names: Any) -> "Frame":
        """The frame with further names."""
        return replace(self, names={**self.names, **names})

    def error(self, node: ast.AST, what: str, instead: str) -> NotInLanguage:
        """The error that a piece of the text is outside the language."""
        return NotInLanguage(self.file, node, what, instead)


@functools.cache
def specification(system: System = BLOCK_MANAGERS) -> Text:
    """The whole text of a specification, with the contracts."""
    constants: dict[str, Any] = dict(system.domains)
    for text in system.texts:  # the numbers whose names begin so stand for sizes, which are unknown
        constants |= {
            name: value
            for name, value in vars(text).items()
            if isinstance(value, int) and name == name.upper() and not name.startswith(OF_SIZES)
        }
    functions = {**syntax_trees.functions(system), **syntax_trees.contract_functions(system)}
    return Text(functions, constants, system)


def _parsed(source: str, file: str) -> ast.Module:
    """Parse a piece of Python. Raises RecursionError if it is nested too deeply for any reader, in any version."""
    tree = ast.parse(source, file)
    depth, level = 0, list(ast.iter_child_nodes(tree))
    while level:
        depth, level = depth + 1, [part for node in level for part in ast.iter_child_nodes(node)]
    if depth > DEPTH_MAX:
        raise RecursionError
    return tree


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _require_own_names(node: ast.Import | ast.ImportFrom, file: str) -> None:
    """Refuse `import NAME as OTHER`: a name means what it means in the specification."""
    for alias in node.names:
        if alias.asname not in (None, alias.name):
            what = f"{alias.name} is imported under another name, {alias.asname}"
            raise NotInLanguage(file, node, what, "use the names of the specification; a text need not import them")


def _require_same_head(new: ast.FunctionDef, file: str, old: ast.FunctionDef, old_file: str) -> None:
    """Refuse other parameters, types or decorators than in the specification: they would have no effect."""
    names, old_names = parameters_of(new, file), parameters_of(old, old_file)
    if names != old_names:
        what = f"{new.name} has the parameters ({', '.join(names)})"
        raise NotInLanguage(file, new, what, f"keep those of the specification: ({', '.join(old_names)})")
    for one, before in zip(_arguments(new), _arguments(old), strict=True):
        if one.annotation is None or ast.unparse(one.annotation) not in WITHOUT_DOMAIN:
            _require_same(new.name, [one.annotation], [before.annotation], file)
    _require_same(new.name, new.decorator_list, old.decorator_list, file)


def _require_same(name: str, new: Sequence[ast.expr | None], old: Sequence[ast.expr | None], file: str) -> None:
    """Refuse expressions that are given, and differ from the old ones."""
    given, known = ([ast.unparse(one) for one in each if one is not None] for each in (new, old))
    if given and given != known:
        what = f"{name} has {', '.join(given)} where the specification has {', '.join(known) or 'nothing'}"
        node = next(one for one in new if one is not None)
        raise NotInLanguage(file, node, what, "types and decorators are those of the specification; leave them out")


def returned(function: ast.FunctionDef) -> ast.expr | None:
    """The expression of a function that is one `return`, after its docstring; None for any other function."""
    match function.body:
        case [ast.Return(value=ast.expr() as result)]:
            return result
        case [ast.Expr(value=ast.Constant(value=str())), ast.Return(value=ast.expr() as result)]:
            return result
    return None


def parameters_of(function: ast.FunctionDef, file: str) -> list[str]:
    """The names of a function's parameters. Raises NotInLanguage for `*args` and `**kwargs`."""
    if function.args.vararg or function.args.kwarg:
        raise NotInLanguage(file, function, f"{function.name} takes any number of arguments", "name each parameter")
    return [argument.arg for argument in _arguments(function)]


def _arguments(function: ast.FunctionDef) -> tuple[ast.arg, ...]:
    return (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)


def element_left(target: str, name: str) -> str:
    """The text of the element that an assignment of `[… for name in …]` to the target leaves where it was.

    It is empty if the name means another value in the target, so that no element is known to stay.
    """
    return "" if re.search(rf"\b{name}\b", target) else f"{target}[{name}]"


@functools.lru_cache(maxsize=4096)
def names_bound(function: ast.FunctionDef) -> tuple[tuple[ast.AST, str], ...]:
    """The names to which a function gives a value, each with its place: parameters, locals, and those of generators.

    Other statements bind names too (`import`, `def`, `del`, …). In a part that never runs, they are not refused, but
    the names are local in the whole function. So all names that are local for Python's compiler are included.
    """
    arguments = [(node, node.arg) for node in ast.walk(function.args) if isinstance(node, ast.arg)]
    names = [node for statement in function.body for node in ast.walk(statement) if isinstance(node, ast.Name)]
    found = (*arguments, *((node, node.id) for node in names if isinstance(node.ctx, ast.Store)))
    code = compiled(function)
    others = {*code.co_varnames, *code.co_cellvars} - {name for _, name in found}
    return (*found, *((function, name) for name in sorted(others)))


@functools.lru_cache(maxsize=4096)
def compiled(function: ast.FunctionDef) -> CodeType:
    """The code that Python's compiler makes of a function, without its decorators. Raises SyntaxError."""
    plain = ast.copy_location(ast.FunctionDef(**dict(ast.iter_fields(function)) | {"decorator_list": []}), function)
    module = compile(ast.fix_missing_locations(ast.Module([plain], [])), "<text>", "exec")
    return next(one for one in module.co_consts if isinstance(one, CodeType) and one.co_name == function.name)


@functools.lru_cache(maxsize=4096)
def require_plain(function: ast.FunctionDef, file: str) -> None:
    """Refuse what changes the meaning of a whole function, even if it stands in a part that never runs.

    A `yield` makes a generator of the function, `global` changes what a name is, and some texts are Python's syntax
    but cannot be compiled, such as two parameters of one name.
    """
    nodes = list(ast.walk(function))
    found: ast.AST | None = next((node for node in nodes if isinstance(node, OF_THE_WHOLE)), None)
    if found is not None or getattr(function, "type_params", None):
        kind = "A parameter for types" if found is None else type(found).__name__
        instead = "leave it out, also where it never runs: it changes the whole function"
        raise NotInLanguage(file, found or function, f"{kind} is not in the language", instead)
    try:
        code = compiled(function)
    except SyntaxError as error:
        place = ast.Pass(lineno=error.lineno or function.lineno, col_offset=0)
        raise NotInLanguage(
            file, place, f"this is no Python: {error.msg}", "write a function that Python runs"
        ) from None
    assert not code.co_flags & NOT_PLAIN, f"{function.name} does not return when it is called"


@functools.lru_cache(maxsize=4096)
def words(node: ast.expr) -> str:
    """The text of an expression. Rules are read many times, and Python's own function walks the tree each time."""
    return ast.unparse(node)


@functools.lru_cache(maxsize=4096)
def names_called(function: ast.FunctionDef) -> frozenset[str]:
    """The names of what a function calls."""
    calls = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    return frozenset(called.id for called in calls if isinstance(called, ast.Name))


def place_of(file: str, node: ast.AST) -> str:
    """File and line. The path starts at the package, so that it is the same on every machine."""
    _, root, inside = file.replace("\\", "/").rpartition("/kvproof/")
    return f"{root.lstrip('/')}{inside}:{getattr(node, 'lineno', 0)}"
