"""Folds: functions for which one call with many items is equivalent to one call for each item, in order.

A function is a fold if it only assigns parts of its object to names and then loops over its last parameter, and if no
iteration reads a name that an earlier iteration assigned. Then a fact that is proved for calls with one item holds, by
induction, for calls with any number of items.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any


class NoFold(Exception):
    """A function is not a fold; the message says why."""


def require_fold(function: Callable[..., Any]) -> None:
    """Check that a function is a fold over its last parameter. Raises NoFold."""
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, ast.FunctionDef)
    items = node.args.args[-1].arg
    *before, loop = [part for part in node.body if not _is_docstring(part)]
    if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Name) or loop.iter.id != items or loop.orelse:
        raise NoFold(f"{node.name} does not end in a loop over {items}")
    for part in before:
        if not isinstance(part, ast.Assign) or any(isinstance(one, ast.Call) for one in ast.walk(part)):
            raise NoFold(f"{node.name} does more before its loop than assign parts of its object: {ast.unparse(part)}")
    if any(name == items for part in (*before, *loop.body) for name, _ in _names(part)):
        raise NoFold(f"{node.name} uses {items} for more than its loop")
    if any(isinstance(one, (ast.Break, ast.Return)) for part in loop.body for one in ast.walk(part)):
        raise NoFold(f"{node.name} leaves its loop early")
    assigned = {name for part in loop.body for name, is_read in _names(part) if not is_read}
    known = {name for name, _ in _names(loop.target)}
    for part in loop.body:
        carried = {name for name, is_read in _names(part) if is_read} & assigned - known
        if carried:
            raise NoFold(f"{node.name} carries {', '.join(sorted(carried))} from one iteration to the next")
        known |= {target.id for target in getattr(part, "targets", []) if isinstance(target, ast.Name)}


def _names(node: ast.AST) -> Iterator[tuple[str, bool]]:
    """The names in a statement, each with whether it is read."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            yield one.id, isinstance(one.ctx, ast.Load)
        if isinstance(one, ast.AugAssign) and isinstance(one.target, ast.Name):
            yield one.target.id, True


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
