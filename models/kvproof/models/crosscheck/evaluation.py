"""The value of a Z3 term under an interpretation, without Z3: each term becomes a Python function, once.

The function has a parameter for each constant of the term whose value changes from call to call, such as the indexes of
a cell. `And`, `Or`, `Implies` and `If` are evaluated from left to right, and only as far as needed, like the text that
they come from. A quantifier is a loop over the numbers to which its own conditions (`0 <= x`, `x < n`) restrict it; see
`interpretation` for one without an upper bound. Terms share parts: a shared part of more than a few operations becomes
a function of the variables that are bound around it.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from kvproof.models.crosscheck.interpretation import Interpretation, Tail, Undecided, quotient, remainder

LONGEST = 300  # letters of an expression; a longer one becomes a function of its own
SPREAD_MAX = 64  # numbers from `Interpretation.end` on that are tried, before a tail is given up as undecided

INFIX = {
    z3.Z3_OP_AND: " and ",
    z3.Z3_OP_OR: " or ",
    z3.Z3_OP_EQ: " == ",
    z3.Z3_OP_LE: " <= ",
    z3.Z3_OP_LT: " < ",
    z3.Z3_OP_GE: " >= ",
    z3.Z3_OP_GT: " > ",
    z3.Z3_OP_ADD: " + ",
    z3.Z3_OP_SUB: " - ",
    z3.Z3_OP_MUL: " * ",
}
FORMS = {
    z3.Z3_OP_TRUE: "True",
    z3.Z3_OP_FALSE: "False",
    z3.Z3_OP_NOT: "(not {})",
    z3.Z3_OP_IMPLIES: "(not {} or {})",
    z3.Z3_OP_ITE: "({1} if {0} else {2})",
    z3.Z3_OP_UMINUS: "(-{})",
    z3.Z3_OP_IDIV: "quotient({}, {})",
    z3.Z3_OP_MOD: "remainder({}, {})",
}
MIRRORED = {
    z3.Z3_OP_LE: z3.Z3_OP_GE,
    z3.Z3_OP_LT: z3.Z3_OP_GT,
    z3.Z3_OP_GE: z3.Z3_OP_LE,
    z3.Z3_OP_GT: z3.Z3_OP_LT,
}

LOWER = {z3.Z3_OP_GE: 0, z3.Z3_OP_GT: 1}  # what is added to a limit to get the first value
UPPER = {z3.Z3_OP_LT: 0, z3.Z3_OP_LE: 1}  # and the end of the values

Term = z3.ExprRef | int
Value = int | bool
Bound = tuple[str, ...]  # the Python names of the bound variables, outermost first


class CannotEvaluate(Exception):
    """A term has an operation, or a quantifier over numbers without a lower bound, that is not evaluated."""


@dataclass(frozen=True, eq=False)
class Node:
    """A term of Z3, read once. kind: of its operation; of a bound variable and of a quantifier, see below.

    name: of a symbol; the number of a numeral or of a bound variable, as text. variables: the places of the bound
    variables that it reads, counted outwards. term: keeps the term, so that its id stays its own.
    """

    kind: int
    name: str
    parts: tuple["Node", ...]
    variables: frozenset[int]
    symbols: frozenset[str]
    term: z3.ExprRef


VARIABLE, NUMERAL, FOR_ALL, FOR_SOME = -1, -2, -3, -4  # kinds that are no operations


class Evaluator:
    """One term as a Python function. source: its text."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._made: Callable[[Interpretation], Callable[..., Value]] | None = None

    def under(self, interpretation: Interpretation) -> Callable[..., Value]:
        """The function under an interpretation. It raises OutOfDomain or Undecided."""
        if self._made is None:
            names: dict[str, Any] = dict(_SUPPORT)
            exec(compile(self.source, "<term>", "exec"), names)
            self._made = names["made"]
        return self._made(interpretation)


class Evaluators:
    """Makes evaluators, and reads each term once for all of them."""

    def __init__(self) -> None:
        self._nodes: dict[int, Node] = {}
        self._evaluators: dict[tuple[int, tuple[str, ...]], Evaluator] = {}

    def of(self, term: Term, arguments: Sequence[z3.ExprRef] = ()) -> Evaluator:
        """The evaluator of a term. arguments: the constants that are parameters of its function."""
        if not isinstance(term, z3.ExprRef):
            return Evaluator(_Writer(arguments).module(term))
        key = term.get_id(), tuple(one.decl().name() for one in arguments)
        if key not in self._evaluators:
            self._evaluators[key] = Evaluator(_Writer(arguments).module(self.node(term)))
        return self._evaluators[key]

    def of_first_false(self, formulas: Sequence[z3.BoolRef | bool]) -> Evaluator:
        """The evaluator of the place of the first formula that does not hold; -1 if all hold."""
        nodes = [self.node(one) if isinstance(one, z3.ExprRef) else one for one in formulas]
        return Evaluator(_Writer(()).module_of_first_false(nodes))

    def node(self, term: z3.ExprRef) -> Node:
        """The term, read once."""
        key = term.get_id()
        if key not in self._nodes:
            self._nodes[key] = self._node(term)
        return self._nodes[key]

    def _node(self, term: z3.ExprRef) -> Node:
        nothing: frozenset[Any] = frozenset()
        if isinstance(term, z3.QuantifierRef):
            body = self.node(term.body())
            variables = frozenset(one - term.num_vars() for one in body.variables if one >= term.num_vars())
            return Node(FOR_ALL if term.is_forall() else FOR_SOME, "", (body,), variables, body.symbols, term)
        if isinstance(term, z3.IntNumRef):
            return Node(NUMERAL, str(term.as_long()), (), nothing, nothing, term)
        if z3.is_var(term):
            place = z3.get_var_index(term)
            return Node(VARIABLE, str(place), (), frozenset({place}), nothing, term)
        parts = tuple([self.node(part) for part in term.children()])
        declaration = term.decl()
        kind, name = declaration.kind(), declaration.name()
        symbols = frozenset({name}) if kind == z3.Z3_OP_UNINTERPRETED else nothing
        variables = nothing.union(*[part.variables for part in parts])
        return Node(kind, name, parts, variables, symbols.union(*[part.symbols for part in parts]), term)


def evaluate(term: Term, interpretation: Interpretation) -> Value:
    """The value of one term. Raises OutOfDomain or Undecided. `Evaluators` is faster for many interpretations."""
    return Evaluators().of(term).under(interpretation)()


def is_so_for_some(low: Any, body: Callable[[Any], bool], wanted: bool, end: int) -> bool:
    """Whether the body is `wanted` for some number from `low` on. Raises Undecided if no bound suffices.

    The tail is tried from `end` on, then from numbers that are 1, 2, 4, … larger.
    """
    spread = 0
    for number in itertools.count(low):
        if number >= end + spread:
            try:
                return body(Tail(number)) is wanted
            except Undecided:
                if spread >= SPREAD_MAX:
                    raise
                spread = 2 * spread or 1
        if body(number) is wanted:
            return True
    raise AssertionError


_SUPPORT = {"quotient": quotient, "remainder": remainder, "is_so_for_some": is_so_for_some}


class _Writer:
    """Writes one term as a Python module that defines `made`."""

    def __init__(self, arguments: Sequence[z3.ExprRef]) -> None:
        self.parameters = {one.decl().name(): f"p{place}" for place, one in enumerate(arguments)}
        self.symbols: dict[str, str] = {}  # the local name of each symbol
        self.functions: list[str] = []
        self.texts: dict[tuple[Node, Bound], str] = {}

    def module(self, term: Node | int) -> str:
        """The text of the module whose function gives the value of a term."""
        value = self.text(term, ()) if isinstance(term, Node) else repr(term)
        return self._module([f"return lambda {', '.join(self.parameters.values())}: {value}"])

    def module_of_first_false(self, terms: Sequence[Node | bool]) -> str:
        """The text of the module whose function gives the place of the first term that is false, or -1."""
        lines = ["def value():"]
        for place, term in enumerate(terms):
            value = self.text(term, ()) if isinstance(term, Node) else repr(term)
            lines.append(f"    if not {value}: return {place}")
        return self._module([*lines, "    return -1", "return value"])

    def _module(self, lines: list[str]) -> str:
        symbols = [f"{local} = interpretation.symbols[{name!r}]" for name, local in self.symbols.items()]
        body = [*symbols, "end = interpretation.end", *self.functions, *lines]
        return "\n    ".join(["def made(interpretation):", *body]) + "\n"

    def text(self, node: Node, bound: Bound) -> str:
        """The term as an expression in which the bound variables have these names."""
        text = self.texts.get((node, bound))
        if text is None:
            text = self._text(node, bound)
            if len(text) > LONGEST:
                text = self._called([f"return {text}"], self._read(node, bound))
            self.texts[node, bound] = text
        return text

    def _text(self, node: Node, bound: Bound) -> str:
        kind = node.kind
        if kind == VARIABLE:
            return bound[-1 - int(node.name)]
        if kind == NUMERAL:
            return f"({node.name})"
        if kind in (FOR_ALL, FOR_SOME):
            return self._quantifier(node, bound)
        parts = [self.text(part, bound) for part in node.parts]
        if kind == z3.Z3_OP_UNINTERPRETED:
            return self._symbol(node.name, parts)
        if kind in INFIX:
            return f"({INFIX[kind].join(parts)})"
        if kind == z3.Z3_OP_DISTINCT and len(parts) == 2:
            return f"({parts[0]} != {parts[1]})"
        if kind in FORMS:
            return FORMS[kind].format(*parts)
        raise CannotEvaluate(f"the operation {node.name} is not evaluated")

    def _symbol(self, name: str, indexes: list[str]) -> str:
        if name in self.parameters:
            return self.parameters[name]
        local = self.symbols.setdefault(name, f"s{len(self.symbols)}")
        return f"{local}[{', '.join(indexes)}]" if indexes else local

    def _read(self, node: Node, bound: Bound) -> list[str]:
        """The names of the bound variables and parameters that the term reads."""
        variables = [bound[-1 - place] for place in sorted(node.variables, reverse=True)]
        return variables + [local for name, local in self.parameters.items() if name in node.symbols]

    def _called(self, lines: list[str], names: list[str]) -> str:
        """Add a function of these names. Returns a call of it."""
        call = f"f{len(self.functions)}({', '.join(names)})"
        self.functions.append("\n        ".join([f"def {call}:", *lines]))
        return call

    # Quantifiers

    def _quantifier(self, node: Node, bound: Bound) -> str:
        """A call of nested functions, one for each variable; each loops over the values of its variable."""
        term, is_all = node.term, node.kind == FOR_ALL
        assert isinstance(term, z3.QuantifierRef)
        num = term.num_vars()
        inner = (*bound, *(f"x{len(bound) + place}" for place in range(num)))
        known, body = _split(node)
        ranges = [self._range(term, known, place, inner) for place in range(num)]
        left = [self.text(one, inner) for one in known]
        text = "True" if body is None else self.text(body, inner)
        if left:
            text = f"(not ({' and '.join(left)}) or {text})" if is_all else f"({' and '.join(left)} and {text})"
        outer = self._read(node, bound)
        for place in reversed(range(num)):
            lines = _loop(inner[len(bound) + place], *ranges[place], text, is_all)
            text = self._called(lines, [*outer, *inner[len(bound) : len(bound) + place]])
        return text

    def _range(self, term: z3.QuantifierRef, known: list[Node], place: int, inner: Bound) -> tuple[str, str]:
        """The first value of a variable and the end of its values, "" if there is none; removes these from `known`."""
        if term.var_sort(place) == z3.BoolSort():
            return "0", "2"
        index = term.num_vars() - 1 - place
        low, end = self._limit(known, index, inner, LOWER), self._limit(known, index, inner, UPPER)
        if not low:
            raise CannotEvaluate(f"there is no least {term.var_name(place)} in {term}")
        return low, end

    def _limit(self, known: list[Node], index: int, inner: Bound, offsets: Mapping[int, int]) -> str:
        """The first of the conditions that limits the variable by a number that is known before it; "" if none does."""
        for one in known:
            if one.kind not in MIRRORED:
                continue
            (left, right), kind = one.parts, one.kind
            if right.kind == VARIABLE:
                left, right, kind = right, left, MIRRORED[kind]
            is_limit = kind in offsets and left.kind == VARIABLE and int(left.name) == index
            if is_limit and all(other > index for other in right.variables):
                known.remove(one)
                return self.text(right, inner) + offsets[kind] * " + 1"
        return ""


def _split(node: Node) -> tuple[list[Node], Node | None]:
    """The conditions on the variables, and the claim about those that satisfy them; None if that is all."""
    (body,) = node.parts
    if body.kind == z3.Z3_OP_IMPLIES and node.kind == FOR_ALL:
        return list(_conjuncts(body.parts[0])), body.parts[1]
    if body.kind == z3.Z3_OP_AND and node.kind == FOR_SOME:
        return list(_conjuncts(body)), None
    return [], body


def _conjuncts(node: Node) -> Iterator[Node]:
    if node.kind == z3.Z3_OP_AND:
        for part in node.parts:
            yield from _conjuncts(part)
    else:
        yield node


def _loop(name: str, low: str, end: str, text: str, is_all: bool) -> list[str]:
    """The lines of a function that decides the text for the values of one variable."""
    if not end:
        return [f"return {'not ' * is_all}is_so_for_some({low}, lambda {name}: {text}, {not is_all}, end)"]
    denied = "not " * is_all
    return [
        f"for {name} in range({low}, {end}):",
        f"    if {denied}{text}:",
        f"        return {not is_all}",
        f"return {is_all}",
    ]
