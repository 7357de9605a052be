"""The rules broken on purpose, one change at a time: what no judge notices, no judge is watching.

A mutant changes one statement of one rule or step. *Deleted*: the statement is left out, a guard, a write, a call of a
step, a branch. *Changed*: one comparison takes another sign, `and` becomes `or` and the reverse, one part of them is
left out, a `not` is dropped or a condition is negated, a number is one more, a truth value the other, a list of blocks
another one, `+` becomes `-` and the reverse, and a name becomes another of the same type.

Obligations are left as they are (without them the rules do the same), and so are words: what invariants read too would
be another claim, not another rule.
"""

import ast
import copy
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from kvproof.spec import texts
from kvproof.spec.language import COLLECTED
from kvproof.spec.native import called, functions, target_of


@dataclass(frozen=True)
class Mutant:
    """One change of one function of the rules. `new` is empty for a deletion; `occurrence` counts equal statements."""

    function: str
    old: str
    new: str = ""
    occurrence: int = 0

    def __str__(self) -> str:
        return f"{self.function}: {self.old} -> {self.new or 'nothing'}"

    @property
    def id(self) -> str:
        """One line that names it; of a branch only the condition is shown, so its place in the rule is counted."""
        old, new = (text.partition("\n")[0] for text in (self.old, self.new))
        alike = [text for text in _texts(self.function) if text.partition("\n")[0] == old]
        number = f" ({alike.index(self.old) + self.occurrence + 1})" if len(alike) > 1 else ""
        return f"{self.function}: {old}{number} -> {new or 'nothing'}"


@cache
def mutable() -> tuple[str, ...]:
    """The rules and steps of the text, by name."""
    in_rules = {
        node.name
        for text in texts.RULE_TEXTS
        for node in ast.parse(inspect.getsource(text)).body
        if isinstance(node, ast.FunctionDef)
    }
    return tuple(sorted(in_rules))


@cache
def _texts(function: str) -> tuple[str, ...]:
    return tuple(ast.unparse(one) for one in statements(functions()[function][0].body))


def deletions() -> Iterator[Mutant]:
    """Every statement of every rule and step, left out, but for assignments to local names: the text would not run."""
    for name, statement, occurrence in _all_statements():
        if _is_deletable(statement):
            yield Mutant(name, ast.unparse(statement), occurrence=occurrence)


def changes() -> Iterator[Mutant]:
    """Every statement of every rule and step, with one thing in it changed."""
    for name, statement, occurrence in _all_statements():
        if called(statement) == "check":
            continue
        old = ast.unparse(statement)
        seen = {old}
        for changed_one in _changed(statement, _types(functions()[name][0])):
            new = ast.unparse(changed_one)
            if new not in seen:
                seen.add(new)
                yield Mutant(name, old, new, occurrence)


def _all_statements() -> Iterator[tuple[str, ast.stmt, int]]:
    rules_and_steps = {one.__name__ for one in (*COLLECTED.rules, *COLLECTED.steps)}
    for name in mutable():
        times: dict[str, int] = {}
        for statement in statements(functions()[name][0].body):
            text = ast.unparse(statement)
            if name in rules_and_steps:
                yield name, statement, times.get(text, 0)
            times[text] = times.get(text, 0) + 1


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Every statement, those of branches too."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If):
            yield from statements(statement.body)
            yield from statements(statement.orelse)


def _is_deletable(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call) and called(statement) != "check"
    return isinstance(statement, ast.If) or target_of(statement)[1]


def changed(mutant: Mutant) -> ast.FunctionDef:
    """The function with the change. Raises LookupError if it has no such statement."""
    function = copy.deepcopy(functions()[mutant.function][0])
    same = [s for s in statements(function.body) if ast.unparse(s) == mutant.old]
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


# What is changed in a statement ----------------------------------------------------------------------------------

SIGNS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
LISTS = {"FREE": "USED", "USED": "EVICTABLE", "EVICTABLE": "FREE"}


def _types(function: ast.FunctionDef) -> dict[str, str]:
    """The parameters after the state, each with its type."""
    return {one.arg: ast.unparse(one.annotation) for one in function.args.args[1:] if one.annotation is not None}


def _changed(statement: ast.stmt, types: dict[str, str]) -> Iterator[ast.stmt]:
    """Copies of the statement, each with one change; of a branch only the condition is changed."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, (ast.Add, ast.Sub)):
        yield _with(statement, statement, "op", _other_sign(statement.op))
    if isinstance(statement, ast.If):
        yield _with(statement, statement, "test", ast.UnaryOp(ast.Not(), statement.test))
    roots: list[ast.AST] = [statement.test] if isinstance(statement, ast.If) else [statement]
    for root in roots:
        for node in ast.walk(root):
            for field, value in _other(node, types):
                yield _with(statement, node, field, value)


def _with(statement: ast.stmt, node: ast.AST, field: str, value: object) -> ast.stmt:
    """A copy of the statement in which one field of one node is another."""
    before = getattr(node, field)
    setattr(node, field, value)
    copied = copy.deepcopy(statement)
    setattr(node, field, before)
    return ast.fix_missing_locations(copied)


def _other(node: ast.AST, types: dict[str, str]) -> Iterator[tuple[str, object]]:
    """Fields of the node, each with another value."""
    match node:
        case ast.Compare(ops=[sign]):
            yield "ops", [SIGNS[type(sign)]()]
        case ast.BoolOp(op=op, values=values):
            yield "op", ast.Or() if isinstance(op, ast.And) else ast.And()
            yield from (("values", [*values[:place], *values[place + 1 :]]) for place in range(len(values)))
        case ast.BinOp(op=ast.Add() | ast.Sub() as op):
            yield "op", _other_sign(op)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "operand", ast.UnaryOp(ast.Not(), operand)
        case ast.Constant(value=bool() as truth):
            yield "value", not truth
        case ast.Constant(value=int() as number):
            yield "value", number + 1
        case ast.Name(id=name, ctx=ast.Load()) if name in LISTS:
            yield "id", LISTS[name]
        case ast.Name(id=name, ctx=ast.Load()) if name in types:
            yield from (("id", one) for one, type in types.items() if one != name and type == types[name])


def _other_sign(sign: ast.operator) -> ast.operator:
    return ast.Sub() if isinstance(sign, ast.Add) else ast.Add()
