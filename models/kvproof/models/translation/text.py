"""The text of the specification for the translator: its functions, each with its file, and its constants."""

import ast
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kvproof.models.translation.errors import NotInLanguage
from kvproof.spec import language, native, texts
from kvproof.spec.language import Domain


@dataclass(frozen=True, eq=False)
class Text:
    """Functions by name, each with its file, and the numbers and domains that they name."""

    functions: Mapping[str, tuple[ast.FunctionDef, str]]
    constants: Mapping[str, Any]

    def replaced(self, name: str, function: ast.FunctionDef) -> "Text":
        """The text with one function replaced, as in a mutant."""
        return replace(self, functions={**self.functions, name: (function, self.functions[name][1])})

    def rewritten(self, source: str, file: str = "<text>") -> "Text":
        """The text in which the functions of a piece of Python replace those of the same names.

        file: the name of the piece in messages. Raises NotInLanguage if it defines anything but functions of the text,
        ValueError if it is no Python.
        """
        try:
            body = ast.parse(source, file).body
        except SyntaxError as error:
            raise ValueError(f"{file}:{error.lineno}: this is no Python: {error.msg}") from error
        found: dict[str, tuple[ast.FunctionDef, str]] = {}
        for node in body:
            if isinstance(node, (ast.Import, ast.ImportFrom)) or _is_docstring(node):
                continue
            if not isinstance(node, ast.FunctionDef) or node.name not in self.functions:
                name = getattr(node, "name", type(node).__name__)
                raise NotInLanguage(file, node, f"{name} is no function of the text", "rewrite an existing function")
            found[node.name] = (node, file)
        return replace(self, functions={**self.functions, **found})

    def edited(self, name: str, old: str, new: str) -> "Text":
        """The text in which `old` reads `new` in one function. Raises LookupError if the function has no `old`."""
        source = ast.unparse(self.functions[name][0])
        if old not in source:
            raise LookupError(f"{name} does not have {old!r}")
        return self.rewritten(source.replace(old, new))


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


def specification() -> Text:
    """The whole text of the specification, with the contracts."""
    constants: dict[str, Any] = {
        name: value for name, value in vars(language).items() if isinstance(value, Domain) and name == name.upper()
    }
    for text in texts.TEXTS:
        constants |= {
            name: value for name, value in vars(text).items() if isinstance(value, int) and name == name.upper()
        }
    return Text({**native.functions(), **native.contract_functions()}, constants)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


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
    arguments = function.args
    if arguments.vararg or arguments.kwarg:
        raise NotInLanguage(file, function, f"{function.name} takes any number of arguments", "name each parameter")
    return [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def element_left(target: str, name: str) -> str:
    """The text of the element that an assignment of `[… for name in …]` to the target leaves where it was.

    It is empty if the name means another value in the target, so that no element is known to stay.
    """
    return "" if re.search(rf"\b{name}\b", target) else f"{target}[{name}]"


@functools.lru_cache(maxsize=4096)
def names_bound(function: ast.FunctionDef) -> tuple[tuple[ast.AST, str], ...]:
    """The names to which a function gives a value, each with its place: parameters, locals, and those of generators."""
    arguments = [(node, node.arg) for node in ast.walk(function.args) if isinstance(node, ast.arg)]
    names = [node for statement in function.body for node in ast.walk(statement) if isinstance(node, ast.Name)]
    return (*arguments, *((node, node.id) for node in names if isinstance(node.ctx, ast.Store)))


@functools.lru_cache(maxsize=4096)
def names_called(function: ast.FunctionDef) -> frozenset[str]:
    """The names of what a function calls."""
    calls = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    return frozenset(called.id for called in calls if isinstance(called, ast.Name))


def place_of(file: str, node: ast.AST) -> str:
    """File and line. The path starts at the package, so that it is the same on every machine."""
    _, root, inside = file.replace("\\", "/").rpartition("/kvproof/")
    return f"{root.lstrip('/')}{inside}:{getattr(node, 'lineno', 0)}"
