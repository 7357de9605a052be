"""The functions of the specification as syntax trees: what is left without ghosts, and how native runs name variables.

The text of the rules, predicates, functions and claims is parsed once. What only ghost fields need may be left out:
their updates, locals that nothing else reads, branches that became empty.

The variable of a quantifier or comprehension is its own: it hides the same name around it, and ends with it. CPython
before 3.12 reads a function so. Later ones run a comprehension in the frame around it. If it is within another one, and
hides a variable that a quantifier reads, they lose that variable, or read another value without an error. So a native
run reads the text with names of which none hides another, which every version reads alike.
"""

import ast
import functools
import inspect
import pickle
from collections.abc import Iterable, Mapping, Set
from itertools import count
from types import ModuleType

from kvproof.spec.systems import BLOCK_MANAGERS, System

Functions = Mapping[str, tuple[ast.FunctionDef, str]]  # by name, each with the file it stands in


def called(statement: ast.stmt) -> str | None:
    """The name that a statement of the form `f(…)` calls."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        return function.id if isinstance(function, ast.Name) else None
    return None


def target_of(statement: ast.stmt) -> tuple[str | None, bool]:
    """The field or local that a statement assigns, and whether it is a field."""
    if isinstance(statement, ast.AugAssign):
        target: ast.expr = statement.target
    elif isinstance(statement, ast.Assign):
        target = statement.targets[0]
    else:
        return None, False
    while isinstance(target, ast.Subscript):
        target = target.value
    if isinstance(target, ast.Attribute):
        return target.attr, True
    return (target.id, False) if isinstance(target, ast.Name) else (None, False)


@functools.cache
def functions(system: System = BLOCK_MANAGERS) -> dict[str, tuple[ast.FunctionDef, str]]:
    """Every function of the text by name, with its file. The contracts are not included."""
    return functions_of(system.texts)


@functools.cache
def contract_functions(system: System = BLOCK_MANAGERS) -> dict[str, tuple[ast.FunctionDef, str]]:
    """Every function of the contracts by name, with its file. The contracts are imported by the first call."""
    return functions_of(system.contract_texts())


def functions_of(texts: Iterable[ModuleType]) -> dict[str, tuple[ast.FunctionDef, str]]:
    """Every function of these modules by name, with its file."""
    found = {}
    for text in texts:
        file = inspect.getsourcefile(text) or text.__name__
        for node in parsed(text).body:
            if isinstance(node, ast.FunctionDef):
                found[node.name] = (node, file)
    return found


@functools.cache
def parsed(text: ModuleType) -> ast.Module:
    """The syntax tree of a module; who changes a part of it makes a copy first."""
    return ast.parse(inspect.getsource(text))


def made_function(name: str, arguments: ast.arguments, body: list[ast.stmt], at: ast.FunctionDef) -> ast.FunctionDef:
    """A function that no text has, at the place of another one. What else a function has depends on the version."""
    (made,) = ast.parse("def made(): pass").body
    assert isinstance(made, ast.FunctionDef)
    made.name, made.args, made.body = name, arguments, body
    return ast.copy_location(made, at)


def written(*texts: ModuleType) -> set[str]:
    """The fields that functions of these modules assign."""
    nodes = (node for text in texts for node in ast.walk(parsed(text)))
    return {
        name
        for node in nodes
        if isinstance(node, ast.stmt)
        for name, is_field in [target_of(node)]
        if is_field and name
    }


# Leaving the ghosts out --------------------------------------------------------------------------------------------


def without_ghosts(function: ast.FunctionDef, ghosts: frozenset[str]) -> ast.FunctionDef:
    """The function without the statements that only ghost fields need."""
    function, num_nodes = copied(function), 0
    while len(nodes := list(ast.walk(function))) != num_nodes:  # leaving out a statement may leave a local unused
        num_nodes = len(nodes)
        live = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        function.body = list(_kept(function.body, live, ghosts)) or [ast.Pass()]
    return function


def copied(function: ast.FunctionDef) -> ast.FunctionDef:
    """A copy of the whole tree, several times as fast as by `copy.deepcopy`: every process compiles the text."""
    copied: ast.FunctionDef = pickle.loads(pickle.dumps(function))
    return copied


def _kept(body: list[ast.stmt], live: set[str], ghosts: frozenset[str]) -> Iterable[ast.stmt]:
    for statement in body:
        name, is_field = target_of(statement)
        if isinstance(statement, ast.If):
            statement.body = list(_kept(statement.body, live, ghosts))
            statement.orelse = list(_kept(statement.orelse, live, ghosts))
            if not statement.body and not statement.orelse:
                continue
            statement.body = statement.body or [ast.Pass()]
        elif (name in ghosts) if is_field else (name is not None and name not in live):
            continue
        elif called(statement) == "check" and fields_in(statement, ghosts):
            continue
        yield statement


def fields_in(node: ast.AST, fields: Set[str]) -> set[str]:
    """Those of the fields that an expression or statement reads or writes."""
    return {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)} & fields


def reads_ghosts(name: str, text: Functions, ghosts: Set[str] = BLOCK_MANAGERS.ghosts) -> bool:
    """Whether a function reads a ghost field, itself or through a function that it calls."""
    function, _ = text[name]
    used = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)} & text.keys() - {name}
    return bool(fields_in(function, ghosts)) or any(reads_ghosts(other, text, ghosts) for other in used)


# Variables of quantifiers and comprehensions ------------------------------------------------------------------------


def rename_hiding(function: ast.FunctionDef) -> None:
    """Give another name to each variable of a quantifier or comprehension that hides a name around it."""
    nodes = list(ast.walk(function))
    variables = [node.target for node in nodes if isinstance(node, ast.comprehension)]
    if not variables:
        return
    names = [node for node in nodes if isinstance(node, ast.Name)]
    around = {node.arg for node in nodes if isinstance(node, ast.arg)}
    around |= {name.id for name in names if isinstance(name.ctx, ast.Store) and name not in variables}
    _Renaming(around, {name.id for name in names}).visit(function)


class _Renaming(ast.NodeTransformer):
    def __init__(self, around: Set[str], names: Set[str]) -> None:
        self.meaning = {name: name for name in around}  # of the names at the place that is read now
        self.taken = {*around, *names}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        node.id = self.meaning.get(node.id, node.id)
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        return self._within(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.expr:
        return self._within(node)

    def _within(self, node: ast.ListComp | ast.GeneratorExp) -> ast.expr:
        around = self.meaning
        variables = {loop.target.id for loop in node.generators if isinstance(loop.target, ast.Name)}
        self.meaning = around | {name: self._unused(name) if name in around else name for name in sorted(variables)}
        self.generic_visit(node)  # what a loop runs over is the name of a domain, which no variable hides
        self.meaning = around
        return node

    def _unused(self, name: str) -> str:
        found = next(other for number in count(1) if (other := f"{name}_{number}") not in self.taken)
        self.taken.add(found)
        return found
