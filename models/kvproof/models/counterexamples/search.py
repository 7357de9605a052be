"""Search for a counterexample to an obligation that is not proved, in growing instances; a run must confirm it.

What is found is shrunk: every value that can equal the one of the initial state is reset.

The part of its claim that is false is found, too: which of its conditions, and for which blocks and sequences. A claim
is split at its `and`, its `all` and the conclusions of its `implies`. Each part is compiled as a function of its own
and evaluated natively.
"""

import ast
import copy
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvproof.models.counterexamples.instances import (
    CLAIMS,
    RULES,
    Candidate,
    Case,
    Clause,
    Kind,
    ProofCounterexample,
    Search,
    case_of,
    instances_for,
)
from kvproof.models.counterexamples.replay import OutOfRange, Replay, Replayed, TooSmall
from kvproof.models.obligation import Obligation
from kvproof.models.solvers.solving import Allowance
from kvproof.models.translation.text import Text, place_of, specification
from kvproof.spec.language import IDENTITIES
from kvproof.spec.native import FIELDS, Machine
from kvproof.spec.sizes import Sizes
from kvproof.spec.syntax_trees import made_function
from kvproof.spec.text.properties import MEANINGS
from kvproof.spec.text.state import State

Domains = tuple[tuple[str, str], ...]  # name of a variable -> name of its domain
CLAUSES_MAX = 3  # printed of one claim
NOT_THERE = (IndexError, OutOfRange, TooSmall)  # raised for a subscript out of range

SECONDS = 20.0  # of effort
NUM_REPLAYS_MAX = 2_000  # to shrink one counterexample


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


def counterexample(
    obligation: Obligation, text: Text | None = None, allowance: Allowance | None = None
) -> ProofCounterexample | None:
    """Search for a state from which running the text breaks the obligation; None if none is found.

    text: the text that the obligation is about; by default that of the specification. allowance: the solver's effort.
    """
    case = case_of(obligation)
    if case is None:
        return None
    text = text or specification()
    allowance = allowance or Allowance(SECONDS)
    for sizes in instances_for(case):
        if not allowance.left:
            return None
        candidate = _candidate(case, obligation.id, sizes, text, allowance)
        if candidate is None:
            continue
        replay = Replay(case, sizes, text)
        if replay.run(candidate) is None:
            continue
        if case.kind is not Kind.INITIAL:
            candidate = shrink(replay, candidate)
        done = replay.run(candidate)
        assert done is not None
        return _described(case, sizes, text, obligation, candidate, done)
    return None


def _candidate(case: Case, id: str, sizes: Sizes, text: Text, allowance: Allowance) -> Candidate | None:
    if case.kind is Kind.INITIAL:
        return Candidate(Replay(case, sizes, text).machine.first_state(), {})
    return Search(sizes, text).candidate(case, RULES.get(case.subject), id, allowance)


def _described(
    case: Case, sizes: Sizes, text: Text, obligation: Obligation, candidate: Candidate, done: Replayed
) -> ProofCounterexample:
    clauses = false_clauses(text, sizes, case.claim, done.after) if case.kind not in (Kind.CHECK, Kind.RANGE) else ()
    if case.claim in CLAIMS:
        sentence = CLAIMS[case.claim].sentence
        place = place_of(text.functions[case.claim][1], text.functions[case.claim][0])
    else:
        meaning, place = MEANINGS.get(case.property), obligation.place
        sentence = meaning.sentence if meaning else ""
    return ProofCounterexample(
        case, sizes, candidate.arguments, copy.deepcopy(candidate.state), done.after, sentence, place, clauses
    )


# Shrinking ---------------------------------------------------------------------------------------------------------


def shrink(replay: Replay, candidate: Candidate) -> Candidate:
    """A candidate that the run confirms too, and that differs from the initial state in fewer values."""
    found = _renamed(candidate)
    if replay.run(found) is None:
        found = candidate
    first, num_replays = replay.machine.first_state(), 0
    for name in FIELDS:
        for at, value in cells(getattr(first, name)):
            if value_at(getattr(found.state, name), at) != value and num_replays < NUM_REPLAYS_MAX:
                num_replays += 1
                state = copy.deepcopy(found.state)
                value_at(getattr(state, name), at[:-1])[at[-1]] = value
                changed = Candidate(state, found.arguments)
                if replay.run(changed) is not None:
                    found = changed
    return found


def _renamed(candidate: Candidate) -> Candidate:
    """The candidate with identities renumbered from 1 in the order of occurrence; only their equality matters."""
    numbers: dict[int, int] = {}

    def renamed(values: Any) -> Any:
        if isinstance(values, list):
            return [renamed(value) for value in values]
        return numbers.setdefault(values, len(numbers) + 1)

    state = copy.deepcopy(candidate.state)
    for name, field in FIELDS.items():
        if field.to is IDENTITIES:
            setattr(state, name, renamed(getattr(state, name)))
    arguments = {name: renamed(one) if isinstance(one, list) else one for name, one in candidate.arguments.items()}
    return Candidate(state, arguments)


def cells(values: Any) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Each value in nested lists, with its indexes."""
    if not isinstance(values, list):
        yield (), values
        return
    for index, inner in enumerate(values):
        for at, value in cells(inner):
            yield (index, *at), value


def value_at(values: Any, at: tuple[int, ...]) -> Any:
    """The value, or the inner list, at these indexes."""
    for index in at:
        values = values[index]
    return values
