"""The mutants of the rules of a specification: each makes one small change that some judge should notice.

A mutant changes one statement of one rule or step. *Deletions* leave the statement out: a guard, a write, a call of a
step, or a branch. *Changes* replace a comparison operator, swap `and` and `or`, leave out one operand of them, drop a
`not`, negate a condition, add one to a number, flip a truth value, name another list, kind or phase, swap `+` and `-`,
or replace a name by another of the same type.

Calls of `check` are not changed, because they do not affect what a rule does. Predicates and functions are not changed
either: invariants use them too, so a change would alter the claims and not only the rules.
"""

import ast
import copy
import inspect
from collections.abc import Iterator
from functools import cache

from kvproof.audit.faults.catalogue import EXPLORER, PROVER
from kvproof.audit.faults.edits import Edit, Fault
from kvproof.audit.faults.planting import statements, with_statement
from kvproof.spec.store.machine import STORES
from kvproof.spec.syntax_trees import called, functions, target_of
from kvproof.spec.systems import BLOCK_MANAGERS, System

RULES = "rules"  # the kind of all of them
SYSTEMS: dict[str, System] = {one.name: one for one in (BLOCK_MANAGERS, STORES)}


def row_of(suite: str, name: str) -> str:
    """How a rule, step or kind of fault is called: those of stores have the name of their specification in front."""
    return name if suite == BLOCK_MANAGERS.name else f"{suite}/{name}"


def changed_statement(
    function: str, old: str, new: str = "", occurrence: int = 0, suite: str = BLOCK_MANAGERS.name
) -> Fault:
    """The fault in which one statement of a rule or step is another, or is missing if `new` is empty.

    occurrence: index among equal statements. The id is a name of one line. Of a branch it has only the condition, and a
    number if several begin alike.
    """
    row = row_of(suite, function)
    first, now = (text.partition("\n")[0] for text in (old, new))
    alike = [text for text in _texts(suite, function) if text.partition("\n")[0] == first]
    number = f" ({alike.index(old) + occurrence + 1})" if len(alike) > 1 else ""
    return Fault(
        f"{row}: {first}{number} -> {now or 'nothing'}",
        (Edit(function, old, new, statement=occurrence),),
        suite,
        row_of(suite, RULES),
        row,
        found_by=(PROVER, EXPLORER),
    )


def is_mutant(fault: Fault) -> bool:
    """Whether the fault is a change of one statement."""
    return fault.plant[0].statement is not None


@cache
def mutable(suite: str = BLOCK_MANAGERS.name) -> tuple[str, ...]:
    """The names of all functions in the files that define the rules of a specification, sorted."""
    in_rules = {
        node.name
        for text in SYSTEMS[suite].rule_texts
        for node in ast.parse(inspect.getsource(text)).body
        if isinstance(node, ast.FunctionDef)
    }
    return tuple(sorted(in_rules))


@cache
def _texts(suite: str, function: str) -> tuple[str, ...]:
    return tuple(ast.unparse(one) for one in statements(functions(SYSTEMS[suite])[function][0].body))


@cache
def deletions(suite: str = BLOCK_MANAGERS.name) -> tuple[Fault, ...]:
    """A mutant for each statement that can be left out. Assignments to local names are needed to run the rule."""
    return tuple(
        changed_statement(name, ast.unparse(statement), "", occurrence, suite)
        for name, statement, occurrence in _all_statements(suite)
        if _is_deletable(statement)
    )


@cache
def changes(suite: str = BLOCK_MANAGERS.name) -> tuple[Fault, ...]:
    """Every change of every statement of every rule and step."""
    return tuple(_changes(suite))


def _changes(suite: str) -> Iterator[Fault]:
    for name, statement, occurrence in _all_statements(suite):
        if called(statement) == "check":
            continue
        old = ast.unparse(statement)
        found = {old}
        types = _types(functions(SYSTEMS[suite])[name][0])
        for changed_one in _changed(statement, types, OTHER_NAMES[suite]):
            new = ast.unparse(changed_one)
            if new not in found:
                found.add(new)
                yield changed_statement(name, old, new, occurrence, suite)


def _all_statements(suite: str) -> Iterator[tuple[str, ast.stmt, int]]:
    collected = SYSTEMS[suite].collected
    rules_and_steps = {one.__name__ for one in (*collected.rules, *collected.steps)}
    for name in mutable(suite):
        times: dict[str, int] = {}
        for statement in statements(functions(SYSTEMS[suite])[name][0].body):
            text = ast.unparse(statement)
            if name in rules_and_steps:
                yield name, statement, times.get(text, 0)
            times[text] = times.get(text, 0) + 1


def _is_deletable(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call) and called(statement) != "check"
    return isinstance(statement, ast.If) or target_of(statement)[1]


def changed(mutant: Fault) -> ast.FunctionDef:
    """The function after the change. Raises NotPlanted if it has no such statement."""
    (edit,) = mutant.plant
    return with_statement(functions(SYSTEMS[mutant.subject])[edit.function][0], edit)


# Changes of one statement --------------------------------------------------------------------------------------------

SIGNS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}


def _in_a_circle(*names: str) -> dict[str, str]:
    return dict(zip(names, (*names[1:], names[0]), strict=True))


OTHER_NAMES = {  # by the specification: what a name of a list, of a kind of pin, or of a phase is replaced by
    BLOCK_MANAGERS.name: _in_a_circle("FREE", "USED", "EVICTABLE"),
    STORES.name: {
        **_in_a_circle("FREE", "RESERVED", "HELD", "EVICTABLE"),
        **_in_a_circle("READ", "WRITE", "PROMISE"),
        **_in_a_circle("SUBMITTED", "LANDED", "FAILED"),
    },
}


def _types(function: ast.FunctionDef) -> dict[str, str]:
    """The type of each parameter, without the first, which is the state."""
    return {one.arg: ast.unparse(one.annotation) for one in function.args.args[1:] if one.annotation is not None}


def _changed(statement: ast.stmt, types: dict[str, str], others: dict[str, str]) -> Iterator[ast.stmt]:
    """Copies of the statement, each with one change. Of a branch, only the condition is changed."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, (ast.Add, ast.Sub)):
        yield _with(statement, statement, "op", _other_sign(statement.op))
    if isinstance(statement, ast.If):
        yield _with(statement, statement, "test", ast.UnaryOp(ast.Not(), statement.test))
    roots: list[ast.AST] = [statement.test] if isinstance(statement, ast.If) else [statement]
    for root in roots:
        for node in ast.walk(root):
            for field, value in _other(node, types, others):
                yield _with(statement, node, field, value)


def _with(statement: ast.stmt, node: ast.AST, field: str, value: object) -> ast.stmt:
    """A copy of the statement in which one field of one node has another value."""
    before = getattr(node, field)
    setattr(node, field, value)
    copied = copy.deepcopy(statement)
    setattr(node, field, before)
    return ast.fix_missing_locations(copied)


def _other(node: ast.AST, types: dict[str, str], others: dict[str, str]) -> Iterator[tuple[str, object]]:
    """The changes of one node: a field, and its new value."""
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
        case ast.Name(id=name, ctx=ast.Load()) if name in others:
            yield "id", others[name]
        case ast.Name(id=name, ctx=ast.Load()) if name in types:
            yield from (("id", one) for one, type in types.items() if one != name and type == types[name])


def _other_sign(sign: ast.operator) -> ast.operator:
    return ast.Sub() if isinstance(sign, ast.Add) else ast.Add()
