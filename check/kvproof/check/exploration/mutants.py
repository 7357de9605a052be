"""The rules broken on purpose, one statement at a time: what the explorer must find, or its claims are about nothing.

A deletion leaves out one statement of a rule or step: a guard, a write, a call of a step, a branch. Obligations are
not deleted (without them the rules do the same), nor are assignments to local names (the text would not run).
A replacement changes one statement of the text into another.
"""

import ast
import copy
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest import mock

from kvproof.spec import native
from kvproof.spec.native import Machine, Sizes, called, functions, target_of


@dataclass(frozen=True)
class Mutant:
    """One change of one function of the rules. `new` is empty for a deletion; `occurrence` counts equal statements."""

    function: str
    old: str
    new: str = ""
    occurrence: int = 0

    def __str__(self) -> str:
        return f"{self.function}: {self.old} -> {self.new or 'nothing'}"


def deletions() -> Iterator[Mutant]:
    """Every statement of every rule and step, left out."""
    in_rules = {
        node.name
        for text in native.RULE_TEXTS
        for node in ast.parse(inspect.getsource(text)).body
        if isinstance(node, ast.FunctionDef)
    }
    for name in sorted(in_rules):
        function, _ = functions()[name]
        times: dict[str, int] = {}
        for statement in _statements(function.body):
            if _is_deletable(statement):
                text = ast.unparse(statement)
                yield Mutant(name, text, occurrence=times.get(text, 0))
                times[text] = times.get(text, 0) + 1


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if isinstance(statement, ast.If):
            yield from _statements(statement.body)
            yield from _statements(statement.orelse)


def _is_deletable(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call) and called(statement) != "check"
    return isinstance(statement, ast.If) or target_of(statement)[1]


def changed(mutant: Mutant) -> ast.FunctionDef:
    """The function with the change. Raises LookupError if it has no such statement."""
    function = copy.deepcopy(functions()[mutant.function][0])
    same = [s for s in _statements(function.body) if ast.unparse(s) == mutant.old]
    if len(same) <= mutant.occurrence:
        raise LookupError(f"no such statement: {mutant}")
    new = ast.parse(mutant.new or "pass").body
    for part in new:
        for node in ast.walk(part):
            if isinstance(node, (ast.expr, ast.stmt)):
                ast.copy_location(node, same[mutant.occurrence])
    _replace(function, same[mutant.occurrence], new)
    return function


def _replace(parent: ast.AST, statement: ast.stmt, new: list[ast.stmt]) -> None:
    for node in ast.walk(parent):
        for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if isinstance(body, list) and any(each is statement for each in body):
                place = next(place for place, each in enumerate(body) if each is statement)
                body[place : place + 1] = new


@cache
def _code(mutant: Mutant, with_ghosts: bool, with_checks: bool) -> Any:
    found = dict(functions())
    found[mutant.function] = changed(mutant), found[mutant.function][1]
    # Around the caches of `native`, here and below: they hold the text as it is.
    with mock.patch.object(native, "functions", return_value=found):
        return native._code.__wrapped__(with_ghosts, with_checks)


def mutated(mutant: Mutant, sizes: Sizes, with_ghosts: bool = True, with_checks: bool = True) -> Machine:
    """A machine that runs the changed text."""
    machine = Machine(sizes, with_ghosts, with_checks)
    with mock.patch.object(native, "_code", return_value=_code(mutant, with_ghosts, with_checks)):
        machine.names = native._namespace.__wrapped__(sizes, with_ghosts, with_checks)
    machine.rules = {rule: machine.names[rule] for rule in machine.rules}
    machine.word = machine.names.__getitem__
    return machine
