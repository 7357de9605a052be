"""Expressions of the language as Hypothesis strategies: numbers, truth values and rows of the names that are in scope.

An expression is a production of a grammar. A production is a text with holes, each of which is filled by an expression,
or a function, where what may stand at one place depends on another: on the names that a quantifier binds, or on the
number that a condition keeps in its range. The first production is the smallest, and every expression is drawn from a
strategy of its own, so Hypothesis shrinks an expression to the smallest one, or to one of its parts.

Most subscripts are in range and most divisors positive, by a bound name, a parameter or an earlier condition; some are
not, so that definedness is compared too. Names are few, so that generators and locals reuse and shadow them.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from hypothesis import strategies as st

from kvproof.spec import language
from kvproof.spec.language import Domain

Option = TypeVar("Option")
Domains = tuple[Domain, ...]
DOMAIN_NAMES = {value: name for name, value in vars(language).items() if isinstance(value, Domain)}
ENDLESS = ("Index", "Rank")  # a native run ends them, so every quantifier over them has a bound of its own
MEMBERS_OF_ENDLESS = 2  # every native state has at least so many
SLOTS = (language.SLOTS,)
QUANTIFIED = (language.BLOCKS, language.SEQS, language.FLIGHTS, language.SLOTS, language.POOLS, language.STATUSES)
ALL_QUANTIFIED = (*QUANTIFIED * 2, language.INDEXES, language.RANKS)

RARELY, SOMETIMES, MOSTLY = (st.sampled_from([False] * no + [True] * yes) for no, yes in ((3, 1), (1, 1), (1, 3)))
ALWAYS = st.just(True)
NAMES = ("a", "i", "s", "x")
NAME = st.sampled_from(NAMES)
ATOMS = ("0", "1", "2", "3", "4", "NUM_BLOCKS", "NUM_GPU_BLOCKS", "NUM_SEQS", "NUM_FLIGHTS", "BLOCK_SIZE", "NULL")
CONSTANTS = ("NONE", "USED", "HOST")
QUANTIFIER = st.sampled_from(("all", "any"))
COMPARISON = st.sampled_from(("==", "!=", "<", "<=", ">", ">="))


@dataclass(frozen=True)
class FieldText:
    """A field of a drawn state: its kind, its domains, and the domain of its values."""

    name: str
    kind: str
    domains: Domains
    to: Domain

    @property
    def is_truth(self) -> bool:
        """Whether its values are truth values."""
        return self.to is language.FLAGS


@dataclass(frozen=True)
class Callee:
    """A predicate, function or step that is in scope. parameters: the domain of each, or of its rows."""

    name: str
    parameters: tuple[Domain | Domains, ...]
    is_truth: bool = False
    has_state: bool = True


@dataclass(frozen=True, eq=False)
class Scope:
    """The texts that may stand for a value here: numbers with their domains, truth values, and rows.

    used: how often each construct was drawn for the program. cells: what was written to cells of fields with a
    quantifier in it, with the name that it quantifies over.
    """

    fields: tuple[FieldText, ...]
    numbers: tuple[tuple[str, Domain | None], ...] = ()
    truths: tuple[str, ...] = ()
    rows: tuple[tuple[str, Domains], ...] = ()
    states: tuple[str, ...] = ("state",)
    callees: tuple[Callee, ...] = ()
    steps: tuple[Callee, ...] = ()
    is_ghostly: bool = False  # whether ghost fields may be read
    is_quantified: bool = False  # whether a quantifier is around what is drawn
    used: Counter[str] = field(default_factory=Counter)
    cells: list[tuple[str, str, Domain]] = field(default_factory=list)

    def without(self, name: str) -> "Scope":
        """The scope in which a name has no value."""
        word = re.compile(rf"\b{name}\b")
        return replace(
            self,
            numbers=tuple(one for one in self.numbers if not word.search(one[0])),
            truths=tuple(one for one in self.truths if not word.search(one)),
            rows=tuple(one for one in self.rows if not word.search(one[0])),
        )

    def with_number(self, text: str, domain: Domain | None = None) -> "Scope":
        """The scope in which a text is a number of a domain."""
        return replace(self, numbers=((text, domain), *self.numbers))

    def bound(self, name: str, domain: Domain | Domains | None) -> "Scope":
        """The scope in which a name is bound to a number, or to a row over domains, whatever it was before."""
        after = self.without(name)
        if isinstance(domain, tuple):
            return replace(after, rows=((name, domain), *after.rows))
        return after.with_number(name, domain)

    def common(self, other: "Scope") -> "Scope":
        """What both scopes have."""
        return replace(
            self,
            numbers=tuple(one for one in self.numbers if one in other.numbers),
            truths=tuple(one for one in self.truths if one in other.truths),
            rows=tuple(one for one in self.rows if one in other.rows),
        )

    @property
    def readable(self) -> tuple[FieldText, ...]:
        """The fields that may be read."""
        return tuple(one for one in self.fields if self.is_ghostly or one.kind != "ghost") if self.states else ()

    @cached_property
    def atoms(self) -> tuple[str, ...]:
        """The shortest numbers, mostly names."""
        names = [text for text, _ in self.numbers]
        return (*ATOMS, *CONSTANTS, *names * (24 // len(names) if names else 0))


# A grammar ---------------------------------------------------------------------------------------------------------

Production = str | Callable[[st.DrawFn, Scope, int, Domains], str]
Grammar = tuple[tuple[str, Production], ...]

HOLE = re.compile(r"\{(\w+)\}")


def chosen(draw: st.DrawFn, options: Sequence[Option]) -> Option:
    """One of the options. It costs half the time of a new strategy that samples from them."""
    return options[draw(st.integers(0, len(options) - 1))]


def weighted(*productions: tuple[str, int, Production]) -> Grammar:
    """A grammar of constructs: the name of each, how often it is drawn, and what it produces."""
    return tuple((name, production) for name, weight, production in productions for _ in range(weight))


def produced(draw: st.DrawFn, grammar: Grammar, scope: Scope, depth: int, domains: Domains = SLOTS) -> str:
    """A production of the grammar with its holes filled. depth: of what fills them."""
    construct, production = chosen(draw, grammar)
    scope.used[construct] += 1
    if isinstance(production, str):
        return HOLE.sub(lambda hole: HOLES[hole[1]](draw, scope, depth, domains), production)
    return production(draw, scope, depth, domains)


def guarded(kind: Callable[[Scope, int], st.SearchStrategy[str]], *forms: str) -> Production:
    """The production of an expression in which a condition keeps a number in its range.

    forms: of the condition, of what is so guarded, and of what stands elsewhere.
    """

    def production(draw: st.DrawFn, scope: Scope, depth: int, _: Domains) -> str:
        text, domain = draw(numbers(scope, min(depth, 1))), chosen(draw, QUANTIFIED[:4])
        inside = draw(kind(scope.with_number(text, domain), depth))
        condition = f"(0 <= {text} and {text} < {domain.size})"
        return chosen(draw, forms).format(condition, inside, draw(kind(scope, 0)))

    return production


def read(draw: st.DrawFn, scope: Scope, depth: int, fields: Sequence[FieldText], num_left: int = 0) -> str:
    """One of the fields with subscripts for its domains, but for some that are left."""
    one = chosen(draw, fields)
    subscripts = subscripted(draw, scope, depth, one.domains[: len(one.domains) - num_left])
    return f"{chosen(draw, scope.states)}.{one.name}{subscripts}"


def subscripted(draw: st.DrawFn, scope: Scope, depth: int, domains: Domains) -> str:
    """A subscript for each of the domains."""
    return "".join(f"[{index(draw, scope, depth, domain)}]" for domain in domains)


def cell(draw: st.DrawFn, scope: Scope, depth: int, is_truth: bool) -> str:
    """A field with all of its subscripts."""
    found = [one for one in scope.readable if one.is_truth is is_truth]
    return read(draw, scope, depth, found) if found else ("True" if is_truth else "1")


def call(draw: st.DrawFn, scope: Scope, depth: int, is_truth: bool) -> str:
    """A call of a predicate or of a function."""
    callee = chosen(draw, [one for one in scope.callees if one.is_truth is is_truth])
    state = [chosen(draw, scope.states)] if callee.has_state else []
    given = [
        draw(rows(scope, depth, one)) if isinstance(one, tuple) else index(draw, scope, depth, one)
        for one in callee.parameters
    ]
    return f"{callee.name}({', '.join(state + given)})"


# Numbers -----------------------------------------------------------------------------------------------------------


@st.composite
def numbers(draw: st.DrawFn, scope: Scope, depth: int) -> str:
    """An integer."""
    if depth <= 0:
        return chosen(draw, scope.atoms)
    has_function = any(not one.is_truth for one in scope.callees)
    return produced(draw, NUMBERS + FUNCTIONS * has_function, scope, depth - 1)


def _division(operator: str) -> Production:
    def production(draw: st.DrawFn, scope: Scope, depth: int, _: Domains) -> str:
        dividend = draw(numbers(scope, depth))
        if draw(SOMETIMES):
            scope.used["negative dividend"] += 1
            dividend = f"({dividend} - 5)"
        divisor = draw(numbers(scope, depth)) if draw(RARELY) else chosen(draw, ("2", "3", "BLOCK_SIZE"))
        return f"({dividend} {operator} {divisor})"

    return production


NUMBERS = weighted(
    ("atom", 9, "{atom}"),
    ("arithmetic", 1, "({number} {operator} {number})"),
    ("//", 1, _division("//")),
    ("%", 1, _division("%")),
    ("min", 1, "min({number}, {number})"),
    ("max", 1, "max({number}, {atom}, {number})"),
    ("abs", 1, "abs({number})"),
    ("unary minus", 1, "(-{number})"),
    ("truth as number", 1, "({truth} + {atom})"),
    ("conditional expression", 1, "({number} if {truth} else {number})"),
    ("guarded conditional", 1, guarded(numbers, "({1} if {0} else {2})")),
    ("subscript of a row", 1, "{row}[{index}]"),
    ("field", 4, "{cell}"),
)
FUNCTIONS = weighted(("function", 2, "{call}"))


def index(draw: st.DrawFn, scope: Scope, depth: int, domain: Domain) -> str:
    """A number that is mostly in the domain."""
    known = [text for text, of in scope.numbers if of is domain]
    if bool(known) and draw(MOSTLY):
        return chosen(draw, known)
    if depth > 0 and draw(SOMETIMES):
        pointing = [one for one in scope.readable if one.to is domain]
        if pointing:
            scope.used["nested subscript"] += 1
            return read(draw, scope, depth - 1, pointing)
        if domain.size is not None and domain.name not in ENDLESS:
            return f"({draw(numbers(scope, depth - 1))} % {domain.size})"
    return draw(numbers(scope, depth - 1)) if draw(RARELY) and draw(SOMETIMES) else "0"


# Truth values ------------------------------------------------------------------------------------------------------


@st.composite
def truths(draw: st.DrawFn, scope: Scope, depth: int) -> str:
    """A truth value."""
    if depth <= 0:
        known = bool(scope.truths) and draw(RARELY)
        return chosen(draw, scope.truths) if known else produced(draw, COMPARISONS, scope, 0)
    has_predicate = any(one.is_truth for one in scope.callees)
    return produced(draw, TRUTHS + PREDICATES * has_predicate, scope, depth - 1)


def _quantified(draw: st.DrawFn, scope: Scope, depth: int, _: Domains) -> str:
    generators, inner = {draw(NAME): chosen(draw, ALL_QUANTIFIED)}, replace(scope, is_quantified=True)
    while len(generators) < 3 and draw(RARELY):
        generators[draw(NAME)] = chosen(draw, ALL_QUANTIFIED)
    scope.used["several generators"] += len(generators) > 1
    scope.used["nested quantifier"] += scope.is_quantified
    for name, domain in generators.items():
        scope.used["shadowed name"] += any(text == name for text, _ in scope.numbers)
        inner = inner.bound(name, domain)
    return over(scope, draw(QUANTIFIER), generators.items(), draw(truths(inner, depth)))


def over(scope: Scope, word: str, generators: Collection[tuple[str, Domain]], element: str) -> str:
    """A quantifier, with a bound for every endless domain."""
    if ends := [f"{name} < {MEMBERS_OF_ENDLESS}" for name, domain in generators if domain.name in ENDLESS]:
        scope.used["endless domain"] += 1
        bound = " and ".join(ends)
        element = f"implies({bound}, {element})" if word == "all" else f"({bound} and {element})"
    return f"{word}({element} {' '.join(f'for {name} in {DOMAIN_NAMES[domain]}' for name, domain in generators)})"


COMPARISONS = weighted(
    ("comparison", 2, "({number} {compare} {number})"),
    ("chained comparison", 1, "({number} {compare} {number} {compare} {atom})"),
)
TRUTHS = COMPARISONS + weighted(
    ("flag", 1, "{flag}"),
    ("equal truth values", 1, "({truth} == {comparison})"),
    ("not", 1, "(not {truth})"),
    ("and", 1, "({truth} and {truth})"),
    ("or", 1, "({truth} or {comparison} or {truth})"),
    ("short circuit", 2, guarded(truths, "({0} and {1})", "(not {0} or {1})", "implies({0}, {1})")),
    ("implies", 1, "implies({truth}, {truth})"),
    ("conditional truth value", 1, "({truth} if {truth} else {truth})"),
    ("guarded conditional", 1, guarded(truths, "({1} if {0} else {2})")),
    ("quantifier", 2, _quantified),
    ("same", 2, "same({row}, {row}, {stop})"),
)
PREDICATES = weighted(("predicate", 2, "{call_of_predicate}"))


def about_cells(draw: st.DrawFn, scope: Scope, depth: int) -> str:
    """A claim about every cell of a field; mostly of one whose cells contain quantifiers over the same name."""
    if bool(scope.cells) and draw(MOSTLY):
        text, name, domain = chosen(draw, scope.cells)
        one, other = (over(scope, "any", [(name, domain)], f"{text} == {number}") for number in (1, 2))
        return f"({one} == {other})"
    about = chosen(draw, [one for one in scope.readable if not one.is_truth])
    generators, inner = list(zip(NAMES, about.domains, strict=False)), scope
    for name, domain in generators:
        inner = inner.bound(name, domain)
    text = f"state.{about.name}" + "".join(f"[{name}]" for name, _ in generators)
    element = f"({text} {draw(COMPARISON)} {draw(numbers(inner, depth))})"
    return over(scope, draw(QUANTIFIER), generators, element)


# Rows --------------------------------------------------------------------------------------------------------------


@st.composite
def rows(draw: st.DrawFn, scope: Scope, depth: int, domains: Domains) -> str:
    """A row, or rows, over these domains, to read from."""
    known = [text for text, of in scope.rows if of == domains]
    if bool(known) and draw(RARELY):
        return chosen(draw, known)
    found = [one for one in scope.readable if not one.is_truth and one.domains[-len(domains) :] == domains]
    if depth > 0 and (not found or draw(SOMETIMES)):
        return new_row(draw, scope, depth, domains)
    if not found:
        return comprehension(draw, scope, depth, domains)
    return read(draw, scope, depth - 1, found, len(domains))


def new_row(draw: st.DrawFn, scope: Scope, depth: int, domains: Domains) -> str:
    """A row that shares no list with any other."""
    grammar = ROWS if len(domains) > 1 else ROWS + FLAT_ROWS + ROWS_OF_SLOTS * (domains == SLOTS)
    return produced(draw, grammar, scope, depth - 1, domains)


def comprehension(draw: st.DrawFn, scope: Scope, depth: int, domains: Domains) -> str:
    """A comprehension over the first domain."""
    name, before = draw(NAME), scope.used["quantifier"]
    inner, left = scope.bound(name, domains[0]), domains[1:]
    element = new_row(draw, inner, depth, left) if left else draw(numbers(inner, depth))
    scope.used["quantifier in a comprehension"] += scope.used["quantifier"] > before
    return f"[{element} for {name} in {DOMAIN_NAMES[domains[0]]}]"


def ends(draw: st.DrawFn, scope: Scope, depth: int) -> tuple[str, str]:
    """Where a part of a row of slots starts and stops."""
    if draw(RARELY) and draw(SOMETIMES):
        return draw(numbers(scope, depth)), draw(numbers(scope, depth))
    start = index(draw, scope, depth, language.SLOTS) if draw(SOMETIMES) else "0"
    stops = ("BLOCK_SIZE", f"max({start}, BLOCK_SIZE - 1)", f"min({start} + 1, BLOCK_SIZE)")
    return start, chosen(draw, stops)


ROWS = weighted(("comprehension", 1, comprehension))
FLAT_ROWS = weighted(
    ("copied", 1, "copied({row})"),
    ("put", 1, "put({row}, {index}, {number})"),
    ("conditional row", 1, "({new_row} if {truth} else {new_row})"),
)
ROWS_OF_SLOTS = weighted(("spliced", 2, "spliced({row}, {ends}, {row})"))

HOLES: dict[str, Callable[[st.DrawFn, Scope, int, Domains], str]] = {
    "number": lambda draw, scope, depth, _: draw(numbers(scope, depth)),
    "atom": lambda draw, scope, *_: chosen(draw, scope.atoms),
    "cell": lambda draw, scope, depth, _: cell(draw, scope, depth, is_truth=False),
    "flag": lambda draw, scope, depth, _: cell(draw, scope, depth, is_truth=True),
    "call": lambda draw, scope, depth, _: call(draw, scope, depth, is_truth=False),
    "call_of_predicate": lambda draw, scope, depth, _: call(draw, scope, depth, is_truth=True),
    "compare": lambda draw, *_: draw(COMPARISON),
    "ends": lambda draw, scope, depth, _: ", ".join(ends(draw, scope, depth)),
    "stop": lambda draw, scope, depth, _: ends(draw, scope, depth)[1],
    "operator": lambda draw, *_: chosen(draw, ("+", "-", "*", "+", "-")),
    "index": lambda draw, scope, depth, domains: index(draw, scope, depth, domains[0]),
    "truth": lambda draw, scope, depth, _: draw(truths(scope, depth)),
    "comparison": lambda draw, scope, *_: draw(truths(scope, 0)),
    "row": lambda draw, scope, depth, domains: draw(rows(scope, depth, domains)),
    "new_row": lambda *given: new_row(*given),
}
