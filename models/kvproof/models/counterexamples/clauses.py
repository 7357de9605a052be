"""The part of a claim that is false: which of its conditions, and for which blocks and sequences.

A claim is split at its `and`, its `all` and the conclusions of its `implies`. Each part is compiled as a function of
its own and evaluated natively.
"""

import ast
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvproof.models.counterexamples.case import Clause
from kvproof.models.counterexamples.replay import OutOfRange, TooSmall
from kvproof.models.translation.text import Text, place_of
from kvproof.spec.native import FIELDS, Machine
from kvproof.spec.sizes import Sizes
from kvproof.spec.syntax_trees import made_function
from kvproof.spec.text.state import State

Domains = tuple[tuple[str, str], ...]  # name of a variable -> name of its domain
CLAUSES_MAX = 3  # printed of one claim
NOT_THERE = (IndexError, OutOfRange, TooSmall)  # raised for a subscript out of range


@dataclass(frozen=True, eq=False)
class _Part:
    condition: ast.expr
    domains: Domains
    reads: tuple[ast.expr, ...]  # fields with subscripts, and calls of predicates and functions


def false_clauses(text: Text, sizes: Sizes, claim: str, state: State) -> tuple[Clause, ...]:
    """The first few parts of an invariant or theorem that are false in a state."""
    function, file = text.functions[claim]
    result = function.body[-1]
    if not isinstance(result, ast.Return) or result.value is None:
        return ()
    state_name = function.args.args[0].arg
    parts = list(_parts(result.value, (), [], frozenset(text.functions)))
    made: dict[str, tuple[ast.FunctionDef, str]] = {}
    for number, part in enumerate(parts):
        for place, expression in enumerate((part.condition, *part.reads)):
            name = _name(number, place)
            made[name] = (_function_of(name, expression, state_name, part.domains, function), file)
    machine = Machine(sizes, text={**text.functions, **made})
    found = (
        _clause(machine, number, part, at, state, file)
        for number, part in enumerate(parts)
        for at in _false_at(machine, number, part, state)
    )
    return tuple(itertools.islice(found, CLAUSES_MAX))


def _parts(node: ast.expr, domains: Domains, conditions: list[ast.expr], functions: frozenset[str]) -> Iterator[_Part]:
    match node:
        case ast.Call(func=ast.Name(id="all"), args=[ast.GeneratorExp(elt=element, generators=generators)]):
            more = tuple((ast.unparse(one.target), ast.unparse(one.iter)) for one in generators)
            yield from _parts(element, (*domains, *more), conditions, functions)
        case ast.BoolOp(op=ast.And(), values=values):
            for value in values:
                yield from _parts(value, domains, conditions, functions)
        case ast.Call(func=ast.Name(id="implies"), args=[condition, conclusion]):
            yield from _parts(conclusion, domains, [*conditions, condition], functions)
        case _:
            condition = node
            for one in reversed(conditions):
                condition = ast.copy_location(ast.Call(ast.Name("implies", ast.Load()), [one, condition], []), node)
            reads = {ast.unparse(one): one for one in _reads(node, functions)}
            yield _Part(condition, domains, tuple(reads.values()))


def _reads(node: ast.AST, functions: frozenset[str]) -> Iterator[ast.expr]:
    """Calls, and fields with all their subscripts. Those inside a quantifier are left out: they have many values."""
    if isinstance(node, (ast.GeneratorExp, ast.ListComp)):
        return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
        yield node
    if isinstance(node, ast.Subscript):
        whole, depth = node.value, 1
        while isinstance(whole, ast.Subscript):
            whole, depth = whole.value, depth + 1
        if isinstance(whole, ast.Attribute) and whole.attr in FIELDS and depth == len(FIELDS[whole.attr].domains):
            yield node
    for child in ast.iter_child_nodes(node):
        yield from _reads(child, functions)


def _name(number: int, place: int = 0) -> str:
    """The name of a compiled part: place 0 is the condition, the next ones are the expressions that it reads."""
    return f"clause_{number}_{place}"


def _function_of(
    name: str, expression: ast.expr, state_name: str, domains: Domains, at: ast.FunctionDef
) -> ast.FunctionDef:
    names = [ast.arg(name) for name in (state_name, *(name for name, _ in domains))]
    arguments = ast.arguments([], names, None, [], [], None, [])
    body: list[ast.stmt] = [ast.copy_location(ast.Return(expression), expression)]
    return made_function(name, arguments, body, at)


def _false_at(machine: Machine, number: int, part: _Part, state: State) -> Iterator[dict[str, int]]:
    ranges = [machine.names[domain] for _, domain in part.domains]
    for values in itertools.product(*ranges):
        try:
            is_true = machine.names[_name(number)](state, *values)
        except NOT_THERE:
            continue  # an earlier part of the claim is false, and is printed
        if not is_true:
            yield dict(zip((name for name, _ in part.domains), values, strict=True))


def _clause(machine: Machine, number: int, part: _Part, at: dict[str, int], state: State, file: str) -> Clause:
    values: dict[str, Any] = {}
    for place, expression in enumerate(part.reads, start=1):
        try:
            values[ast.unparse(expression)] = machine.names[_name(number, place)](state, *at.values())
        except NOT_THERE:
            continue  # an earlier operand decides the condition before this is read
    return Clause(place_of(file, part.condition), ast.unparse(part.condition), at, values)
