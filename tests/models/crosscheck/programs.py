"""Programs of the language as Hypothesis strategies: a state, functions, steps, one rule and claims, as source text.

What a program can be without (a field, a function, a guard, a statement, a side of a branch) has a strategy of its own
that shrinks to nothing, and what is drawn later can name only what is there.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from textwrap import indent
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st
from tests.models.crosscheck.expressions import (
    ALWAYS,
    DOMAIN_NAMES,
    MOSTLY,
    NAME,
    QUANTIFIED,
    RARELY,
    SLOTS,
    SOMETIMES,
    Callee,
    Domains,
    FieldText,
    Scope,
    about_cells,
    chosen,
    index,
    new_row,
    numbers,
    over,
    rows,
    subscripted,
    truths,
)

from kvproof.spec import language
from kvproof.spec.language import Domain

FIRST_FIELDS = (
    FieldText("f0", "real", (language.BLOCKS, language.SLOTS), language.IDENTITIES),
    FieldText("f1", "real", (language.BLOCKS,), language.FLAGS),
)
FIELDS = (("f2", "real"), ("f3", "real"), ("f4", "derived"), ("f5", "ghost"))
SHAPES: tuple[tuple[Domains, Domain], ...] = (
    ((language.BLOCKS,), language.BLOCKS),
    ((language.BLOCKS,), language.COUNTS),
    ((language.SEQS,), language.FLAGS),
    ((language.SEQS, language.INDEXES), language.BLOCKS),
    ((language.SEQS, language.INDEXES, language.SLOTS), language.IDENTITIES),
    ((language.POOLS, language.STATUSES), language.COUNTS),
    ((language.POOLS, language.STATUSES, language.RANKS), language.BLOCKS),
    ((language.SEQS,), language.SLOTS),
    ((language.FLIGHTS,), language.ENTRIES),
    ((language.BLOCKS, language.SEQS), language.FLAGS),
)
PARAMETERS: tuple[tuple[str, Domain | Domains], ...] = (
    ("Count", language.COUNTS),
    ("BlockId", language.BLOCKS),
    ("SeqId", language.SEQS),
    ("FlightId", language.FLIGHTS),
    ("PoolId", language.POOLS),
    ("Index", language.INDEXES),
    ("Slot", language.SLOTS),
    ("Row", SLOTS),
    ("Ages", (language.BLOCKS,)),
)
FUNCTIONS = (("amount", False), ("is_near", True), ("level", False), ("is_fit", True))
RECORD = "@dataclass(frozen=True)\nclass Pair:\n    seq: SeqId\n    total: Count\n    ages: Ages\n"
FIRST_BLOCKS = ("block", "block + 1", "NUM_BLOCKS - block", "0 if block < NUM_GPU_BLOCKS else 1")
DEPTH = 2
NUM_IN_RUN = 8

Written = TypeVar("Written")
Statement = Callable[[st.DrawFn, Scope, int], tuple[str, Scope]]

EXPRESSIONS = """
    arithmetic; //; %; negative dividend; min; max; abs; unary minus; truth as number; conditional expression;
    guarded conditional; field; function; nested subscript; subscript of a row; comparison; chained comparison; flag;
    equal truth values; not; and; or; short circuit; implies; conditional truth value; quantifier; several generators;
    shadowed name; endless domain; nested quantifier; quantifier in a comprehension; claim about every cell; same;
    quantifier over the name of one in a cell; predicate; comprehension; copied; put; spliced; conditional row
"""
STATEMENTS = """
    local number; += of a local; local truth value; local row; check; guard; guard in a branch; branch; elif; else;
    step; write with =; write with +=; write with -=; replaced field; replaced row; shared row
"""
DECLARATIONS = """
    real field; derived field; ghost field; field of 1 domains; field of 2 domains; field of 3 domains; record;
    function without a state
"""
CONSTRUCTS = frozenset(one.strip() for one in f"{EXPRESSIONS};{STATEMENTS};{DECLARATIONS}".split(";"))


@dataclass(frozen=True)
class Program:
    """The source text of a program, and how often each construct was drawn for it."""

    source: str
    used: Counter[str]


@st.composite
def programs(draw: st.DrawFn, is_declared: st.SearchStrategy[bool] = MOSTLY) -> Program:
    """Programs of the language. is_declared: whether there is each of what a program can be without."""
    shapes = [(name, kind, draw(optional(is_declared, chosen, SHAPES))) for name, kind in FIELDS]
    scope = Scope((*FIRST_FIELDS, *(FieldText(name, kind, *shape) for name, kind, shape in shapes if shape)))
    parts = [_state(draw, scope), RECORD]
    for name, is_truth in FUNCTIONS:
        if found := draw(optional(is_declared, _function, scope, name, is_truth)):
            parts.append(found[0])
            scope = replace(scope, callees=(*scope.callees, found[1]))
    if found := draw(optional(is_declared, _step, scope)):
        parts.append(found[0])
        scope = replace(scope, steps=(found[1],))
    parts.append(_rule(draw, scope))
    scope = replace(scope, is_ghostly=True)
    for mark, name in (("invariant", "first_claim"), ("theorem", "second_claim")):
        if claim := draw(optional(is_declared, _claim, scope, mark, name)):
            parts.append(claim)
    parts.append(_of_two_states(draw, scope))
    return Program("\n\n".join(parts), +scope.used)


def check_programs(
    run: int, check: Callable[[Program, int], None], is_declared: st.SearchStrategy[bool] = MOSTLY
) -> None:
    """Check the programs of a run, each with a seed for its states: the smallest, and others. One that fails is shrunk.

    A run is short, since in a longer one five of six examples of Hypothesis repeat parts of those before. The seeds are
    few, since Hypothesis draws larger numbers from the modules that are loaded too, and a run is always the same.
    """

    @seed(run)
    @settings(
        max_examples=NUM_IN_RUN + 1,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs(is_declared), st.integers(0, 99))
    def check_one(program: Program, seed_of_states: int) -> None:
        note(program.source)
        check(program, seed_of_states)

    check_one()


@cache
def _whole_programs(run: int) -> list[Program]:
    found: list[Program] = []
    check_programs(run, lambda program, _: found.append(program), ALWAYS)
    return found[1:]


def whole_program(number: int) -> Program:
    """A program that has all that programs can be without. number: any; the same number gives the same program."""
    return _whole_programs(number // NUM_IN_RUN)[number % NUM_IN_RUN]


@st.composite
def optional(
    draw: st.DrawFn, is_there: st.SearchStrategy[bool], write: Callable[..., Written], *given: Any
) -> Written | None:
    """What a function draws, or nothing, which is smaller."""
    return write(draw, *given) if draw(is_there) else None


# Declarations ------------------------------------------------------------------------------------------------------


def _state(draw: st.DrawFn, scope: Scope) -> str:
    start_of, lines = "", ["class State:"]
    for one in scope.fields:
        start = "False" if one.is_truth else chosen(draw, ("0", "NONE", "1"))
        if one.to is language.BLOCKS and language.BLOCKS in one.domains:
            start, first = "start_of", chosen(draw, FIRST_BLOCKS)
            start_of = f"@function\ndef start_of(block: int) -> int:\n    return {first}\n\n\n"
        scope.used[f"{one.kind} field"] += 1
        scope.used[f"field of {len(one.domains)} domains"] += 1
        domains = ", ".join(DOMAIN_NAMES[domain] for domain in one.domains)
        lines.append(f"    {one.name}: object = {one.kind}({domains}, to={DOMAIN_NAMES[one.to]}, start={start})")
    return start_of + "\n".join(lines) + "\n"


def parameters(draw: st.DrawFn, scope: Scope, num_max: int) -> tuple[Scope, tuple[Domain | Domains, ...], list[str]]:
    """A scope with parameters, their domains, and their texts."""
    found: dict[str, tuple[str, Domain | Domains]] = {}
    for number in range(num_max):
        if draw(SOMETIMES if number else ALWAYS):
            found[draw(NAME)] = chosen(draw, PARAMETERS)
    for name, (_, domain) in found.items():
        scope = scope.bound(name, domain)
    return scope, tuple(domain for _, domain in found.values()), [f"{one}: {kind}" for one, (kind, _) in found.items()]


def _function(draw: st.DrawFn, scope: Scope, name: str, is_truth: bool) -> tuple[str, Callee]:
    state = ["state: State"]
    if draw(RARELY):
        scope.used["function without a state"] += 1
        state = []
        scope = replace(scope, states=(), callees=tuple(one for one in scope.callees if not one.has_state))
    inner, domains, given = parameters(draw, scope, 3)
    mark, result, value = ("predicate", "bool", truths) if is_truth else ("function", "int", numbers)
    text = f"@{mark}\ndef {name}({', '.join(state + given)}) -> {result}:\n    return {draw(value(inner, DEPTH))}\n"
    return text, Callee(name, domains, is_truth, has_state=bool(state))


def _step(draw: st.DrawFn, scope: Scope) -> tuple[str, Callee]:
    inner, domains, given = parameters(draw, scope, 3)
    body, _ = block(draw, inner, 1, 3)
    return f"@step\ndef move({', '.join(['state: State', *given])}) -> None:\n{body}", Callee("move", domains)


def _rule(draw: st.DrawFn, scope: Scope) -> str:
    inner, _, given = parameters(draw, scope, 3)
    guards = [
        draw(optional(is_there, _guard, inner, number)) or "" for number, is_there in enumerate((SOMETIMES, RARELY))
    ]
    body, _ = block(draw, inner, 2, 4)
    return f"@rule\ndef advance({', '.join(['state: State', *given])}) -> None:\n{''.join(guards)}{body}"


def _guard(draw: st.DrawFn, scope: Scope, number: int) -> str:
    scope.used["guard"] += 1
    guard = f'    require({draw(truths(scope, DEPTH))}, "guard {number}", "property-{number}")\n'
    if not draw(RARELY):
        return guard
    scope.used["guard in a branch"] += 1
    return f"    if {draw(truths(scope, 1))}:\n    {guard}"


def _claim(draw: st.DrawFn, scope: Scope, mark: str, name: str) -> str:
    is_about_cells = draw(MOSTLY if scope.cells else SOMETIMES)
    scope.used["claim about every cell"] += is_about_cells
    condition = about_cells(draw, scope, DEPTH) if is_about_cells else draw(truths(scope, DEPTH + 1))
    return f'@{mark}("some-property")\ndef {name}(state: State) -> bool:\n    return {condition}\n'


def _of_two_states(draw: st.DrawFn, scope: Scope) -> str:
    scope.used["record"] += 1
    scope = replace(scope, states=("start", "state"), rows=(("pair.ages", (language.BLOCKS,)),))
    scope = scope.with_number("pair.seq", language.SEQS).with_number("pair.total")
    condition = f"pair.total <= {draw(numbers(scope, 1))} or {draw(truths(scope, DEPTH + 1))}"
    return f"@predicate\ndef is_kept(start: State, state: State, pair: Pair) -> bool:\n    return {condition}\n"


# Statements --------------------------------------------------------------------------------------------------------


def block(draw: st.DrawFn, scope: Scope, depth: int, num_max: int) -> tuple[str, Scope]:
    """Some statements, indented, and the scope after them. depth: of the branches in it."""
    text = ""
    for number in range(num_max):
        more, scope = draw(optional(SOMETIMES if number else ALWAYS, _statement, scope, depth)) or ("", scope)
        text += more
    return indent(text, "    "), scope


def _statement(draw: st.DrawFn, scope: Scope, depth: int) -> tuple[str, Scope]:
    """A statement, and the scope after it."""
    construct, write = chosen(draw, WRITES + BRANCHES * (depth > 0) + STEPS * len(scope.steps))
    scope.used[construct] += 1
    return write(draw, scope, depth)


def _local_number(draw: st.DrawFn, scope: Scope, _: int) -> tuple[str, Scope]:
    changed = [text for text, _ in scope.numbers if text.isidentifier()]
    if bool(changed) and draw(RARELY):
        scope.used["+= of a local"] += 1
        name = chosen(draw, changed)
        return f"{name} += {draw(numbers(scope, 1))}\n", scope.bound(name, None)
    name = draw(NAME)
    return f"{name} = {draw(numbers(scope, DEPTH))}\n", scope.bound(name, None)


def _local_truth(draw: st.DrawFn, scope: Scope, _: int) -> tuple[str, Scope]:
    name = draw(NAME)
    after = scope.without(name)
    return f"{name} = {draw(truths(scope, DEPTH))}\n", replace(after, truths=(name, *after.truths))


def _local_row(draw: st.DrawFn, scope: Scope, _: int) -> tuple[str, Scope]:
    name, domains = draw(NAME), chosen(draw, (SLOTS, (language.BLOCKS,), (language.SEQS,)))
    return f"{name} = {new_row(draw, scope, DEPTH, domains)}\n", scope.bound(name, domains)


def _check(draw: st.DrawFn, scope: Scope, _: int) -> tuple[str, Scope]:
    return f'check({draw(truths(replace(scope, is_ghostly=True), DEPTH))}, "checked-property")\n', scope


def _target(draw: st.DrawFn, scope: Scope, is_possible: Callable[[FieldText], bool]) -> tuple[FieldText, Scope]:
    """A field that is written, and the scope of what is written: ghost fields may be read for a ghost field alone."""
    found = chosen(draw, [one for one in scope.fields if is_possible(one)])
    return found, replace(scope, is_ghostly=found.kind == "ghost")


def _write(draw: st.DrawFn, scope: Scope, _: int) -> tuple[str, Scope]:
    written, inner = _target(draw, scope, lambda one: one.domains[-1] is not language.SLOTS)
    target = f"state.{written.name}{subscripted(draw, inner, 1, written.domains)}"
    operator = "=" if written.is_truth else chosen(draw, ("=", "+=", "-=", "="))
    scope.used[f"write with {operator}"] += 1
    return f"{target} {operator} {draw((truths if written.is_truth else numbers)(inner, DEPTH))}\n", scope


def _replaced_row(draw: st.DrawFn, scope: Scope, _: int) -> tuple[str, Scope]:
    written, inner = _target(draw, scope, lambda one: len(one.domains) > 1 and not one.is_truth)
    depth = draw(st.integers(1, len(written.domains) - 1))
    left = written.domains[depth:]
    may_share = left == SLOTS and draw(SOMETIMES)
    scope.used["shared row"] += may_share
    value = draw(rows(inner, DEPTH, left)) if may_share else new_row(draw, inner, DEPTH, left)
    return f"state.{written.name}{subscripted(draw, inner, 1, written.domains[:depth])} = {value}\n", scope


def _replaced_field(draw: st.DrawFn, scope: Scope, _: int) -> tuple[str, Scope]:
    written, inner = _target(draw, scope, lambda one: not (one.is_truth and len(one.domains) > 1))
    name, domain, left = draw(NAME), written.domains[0], written.domains[1:]
    within, before, num_quantifiers = (
        inner.bound(name, domain),
        f"state.{written.name}[{name}]",
        scope.used["quantifier"],
    )
    if written.is_truth:
        element = f"{draw(truths(within, DEPTH))} and {before}"
    elif left:
        element = f"{new_row(draw, within, 1, left)} if {draw(truths(within, DEPTH))} else {before}"
    else:
        element = f"{before} + {draw(numbers(within, DEPTH))}"
    scope.used["quantifier in a comprehension"] += scope.used["quantifier"] > num_quantifiers
    return f"state.{written.name} = [{element} for {name} in {DOMAIN_NAMES[domain]}]\n", scope


def _cells_with_a_quantifier(draw: st.DrawFn, scope: Scope, _: int) -> tuple[str, Scope]:
    """Writes that give a field cells that contain a quantifier, and read them within one over the same name."""
    real = [one for one in scope.fields if len(one.domains) == 1 and not one.is_truth and one.kind != "ghost"]
    if not real:
        return _replaced_field(draw, scope, 0)
    scope.used["quantifier over the name of one in a cell"] += 1
    written, (outer, inner) = chosen(draw, real), chosen(draw, (("a", "i"), ("i", "a")))
    domain, comparison = written.domains[0], chosen(draw, ("<", ">", "!="))
    found = over(scope, "any", [(inner, chosen(draw, QUANTIFIED))], f"{inner} {comparison} {outer}")
    value = f"state.{written.name}[{outer}] + ({chosen(draw, (1, 2))} if {found} else 0)"
    text = f"state.{written.name} = [{value} for {outer} in {DOMAIN_NAMES[domain]}]\n"
    scope.cells.append((f"state.{written.name}[{inner}]", inner, domain))
    if draw(SOMETIMES):
        is_there = over(scope, "any", [(inner, domain)], f"state.{written.name}[{inner}] == {outer} + 1")
        text += f"state.f1 = [{is_there} for {outer} in BLOCKS]\n"
    return text, scope


def _branch(draw: st.DrawFn, scope: Scope, depth: int) -> tuple[str, Scope]:
    text, after = _side(draw, scope, depth, "if")
    for word, is_there in (("elif", RARELY), ("else", SOMETIMES)):
        side = draw(optional(is_there, _side, scope, depth, word))
        more, one = side or ("", after if word == "elif" else scope)
        text, after = text + more, after.common(one)
    return text, after


def _side(draw: st.DrawFn, scope: Scope, depth: int, word: str) -> tuple[str, Scope]:
    scope.used[word] += 1
    body, after = block(draw, scope, depth - 1, 2)
    return f"{word if word == 'else' else f'{word} {draw(truths(scope, DEPTH))}'}:\n{body}", after


def _call_of_step(draw: st.DrawFn, scope: Scope, _: int) -> tuple[str, Scope]:
    """A call of a step, which may write, so a row is a new one."""
    given = [
        new_row(draw, scope, 1, one) if isinstance(one, tuple) else index(draw, scope, 1, one)
        for one in scope.steps[0].parameters
    ]
    return f"move({', '.join(['state', *given])})\n", scope


WRITES: tuple[tuple[str, Statement], ...] = (
    ("local number", _local_number),
    ("local truth value", _local_truth),
    ("local row", _local_row),
    ("check", _check),
    *[("write", _write)] * 3,
    *[("replaced field", _replaced_field)] * 2,
    *[("replaced row", _replaced_row)] * 2,
    ("cells with a quantifier", _cells_with_a_quantifier),
)
BRANCHES = (("branch", _branch),) * 3
STEPS = (("step", _call_of_step),) * 2
