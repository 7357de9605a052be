"""Expressions of the language, drawn by chance: numbers, truth values and rows of the names that are in scope.

Most subscripts are in range and most divisors positive, by a bound name, a parameter or an earlier condition; some are
not, so that definedness is compared too. Names are few, so that generators and locals reuse and shadow them.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from kvproof.spec import language
from kvproof.spec.language import Domain

NAMES = ("a", "b", "c", "i", "j", "s", "x", "y")
SIZES = ("NUM_BLOCKS", "NUM_GPU_BLOCKS", "NUM_SEQS", "NUM_FLIGHTS", "BLOCK_SIZE", "NULL")
CONSTANTS = ("NONE", "USED", "HOST")
ENDLESS = ("Index", "Rank")  # a native run ends them, so every quantifier over them has a bound of its own
MEMBERS_OF_ENDLESS = 2  # every native state has at least so many
SLOTS = (language.SLOTS,)

Domains = tuple[Domain, ...]
DOMAIN_NAMES = {value: name for name, value in vars(language).items() if isinstance(value, Domain)}
QUANTIFIED = (language.BLOCKS, language.SEQS, language.FLIGHTS, language.SLOTS, language.POOLS, language.STATUSES)


@dataclass(frozen=True)
class Callee:
    """A predicate, function or step that is in scope. parameters: the domains of each after the state; () for any."""

    name: str
    parameters: tuple[Domain | Domains | None, ...]
    is_truth: bool = False
    has_state: bool = True


@dataclass(frozen=True)
class Scope:
    """The texts that may stand for a value here: numbers with their domains, truth values, and rows."""

    numbers: tuple[tuple[str, Domain | None], ...] = ()
    truths: tuple[str, ...] = ()
    rows: tuple[tuple[str, Domains], ...] = ()
    states: tuple[str, ...] = ("state",)
    is_ghostly: bool = False  # whether ghost fields may be read
    callees: tuple[Callee, ...] = ()

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

    def bound(self, name: str, domain: Domain | None) -> "Scope":
        """The scope in which a name is bound to a number, whatever it was before."""
        return self.without(name).with_number(name, domain)

    def common(self, other: "Scope") -> "Scope":
        """What both scopes have."""
        return replace(
            self,
            numbers=tuple(one for one in self.numbers if one in other.numbers),
            truths=tuple(one for one in self.truths if one in other.truths),
            rows=tuple(one for one in self.rows if one in other.rows),
        )


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


class Expressions:
    """Draws expressions. used: how often each construct was drawn."""

    def __init__(self, random: Random, fields: Sequence[FieldText]) -> None:
        self.random, self.fields = random, fields
        self.used = Counter[str]()
        self._names = random.sample(NAMES, 4)  # few, so that one program uses each several times
        self._cells_with_quantifiers: list[tuple[str, str, Domain]] = []  # with the name that they quantify over
        self._num_open = 0  # quantifiers around the expression that is drawn now

    def name(self) -> str:
        """A name for a local or a generator."""
        return self.random.choice(self._names)

    def is_chosen(self, share: float) -> bool:
        """Whether something happens that happens in this share of all cases."""
        return self.random.randrange(100) < share * 100

    def _one_of(self, options: Sequence[tuple[str, Callable[[], str]]]) -> str:
        construct, write = self.random.choice(options)
        self.used[construct] += 1
        return write()

    # Numbers

    def number(self, scope: Scope, depth: int) -> str:
        """An integer."""
        if depth <= 0 or self.is_chosen(0.2):
            return self._atom(scope)
        inner = depth - 1
        options: list[tuple[str, Callable[[], str]]] = [
            ("arithmetic", lambda: f"({self.number(scope, inner)} {self._operator()} {self.number(scope, inner)})"),
            ("//", lambda: f"({self._dividend(scope, inner)} // {self._divisor(scope, inner)})"),
            ("%", lambda: f"({self._dividend(scope, inner)} % {self._divisor(scope, inner)})"),
            ("min", lambda: f"min({self.number(scope, inner)}, {self.number(scope, inner)})"),
            ("max", lambda: f"max({self.number(scope, inner)}, {self._atom(scope)}, {self.number(scope, inner)})"),
            ("abs", lambda: f"abs({self.number(scope, inner)})"),
            ("unary minus", lambda: f"(-{self.number(scope, inner)})"),
            ("truth as number", lambda: f"({self.truth(scope, inner)} + {self._atom(scope)})"),
            ("conditional expression", lambda: self._conditional(scope, inner, self.number)),
            ("subscript of a row", lambda: self._cell_of_row(scope, inner)),
            *[("field", lambda: self.cell(scope, inner, is_truth=False))] * 4,
        ]
        if callees := [one for one in scope.callees if not one.is_truth]:
            options += [("function", lambda: self.call(scope, inner, self.random.choice(callees)))] * 2
        return self._one_of(options)

    def _atom(self, scope: Scope) -> str:
        if scope.numbers and self.is_chosen(0.6):
            return self.random.choice(scope.numbers)[0]
        if self.is_chosen(0.3):
            return self.random.choice(SIZES + CONSTANTS)
        return str(self.random.randrange(5))

    def _operator(self) -> str:
        return self.random.choice("++--*")

    def _dividend(self, scope: Scope, depth: int) -> str:
        number = self.number(scope, depth)
        if self.is_chosen(0.5):
            self.used["negative dividend"] += 1
            return f"({number} - 5)"
        return number

    def _divisor(self, scope: Scope, depth: int) -> str:
        if self.is_chosen(0.8):
            return self.random.choice(("2", "3", "BLOCK_SIZE"))
        return self.number(scope, depth)

    def index(self, scope: Scope, depth: int, domain: Domain) -> str:
        """A number that is mostly in the domain."""
        known = [text for text, of in scope.numbers if of is domain]
        if known and self.is_chosen(0.75):
            return self.random.choice(known)
        if depth > 0 and self.is_chosen(0.4):
            if pointing := [one for one in self._readable(scope) if one.to is domain]:
                self.used["nested subscript"] += 1
                return self._read(self.random.choice(pointing), scope, depth - 1)
            if domain.size is not None and domain.name not in ENDLESS and self.is_chosen(0.5):
                return f"({self.number(scope, depth - 1)} % {domain.size})"
        if self.is_chosen(0.9):
            return "0"
        return self.number(scope, depth - 1)

    def _readable(self, scope: Scope) -> list[FieldText]:
        return [one for one in self.fields if scope.is_ghostly or one.kind != "ghost"] if scope.states else []

    def _read(self, field: FieldText, scope: Scope, depth: int, num_left: int = 0) -> str:
        domains = field.domains[: len(field.domains) - num_left]
        state = self.random.choice(scope.states)
        return f"{state}.{field.name}" + "".join(f"[{self.index(scope, depth, domain)}]" for domain in domains)

    def cell(self, scope: Scope, depth: int, is_truth: bool) -> str:
        """A field with all of its subscripts."""
        found = [one for one in self._readable(scope) if one.is_truth is is_truth]
        return self._read(self.random.choice(found), scope, depth) if found else ("True" if is_truth else "1")

    def _cell_of_row(self, scope: Scope, depth: int) -> str:
        return f"{self.row(scope, depth, SLOTS)}[{self.index(scope, depth, language.SLOTS)}]"

    def _conditional(self, scope: Scope, depth: int, write: Callable[[Scope, int], str]) -> str:
        if self.is_chosen(0.5):
            self.used["guarded conditional"] += 1
            text, domain = self._doubtful(scope, depth)
            return (
                f"({write(scope.with_number(text, domain), depth)} if {_within(text, domain)} else {write(scope, 0)})"
            )
        return f"({write(scope, depth)} if {self.truth(scope, depth)} else {write(scope, depth)})"

    def _doubtful(self, scope: Scope, depth: int) -> tuple[str, Domain]:
        """A number, and a domain that it may not be in."""
        return self.number(scope, min(depth, 1)), self.random.choice(QUANTIFIED[:4])

    def call(self, scope: Scope, depth: int, callee: Callee) -> str:
        """A call of a predicate or function, or of a step."""
        given = [self.random.choice(scope.states)] if callee.has_state else []
        return f"{callee.name}({', '.join([*given, *(self.argument(scope, depth, one) for one in callee.parameters)])})"

    def argument(self, scope: Scope, depth: int, domain: Domain | Domains | None) -> str:
        """An argument for a parameter of that domain, or of these domains."""
        if isinstance(domain, tuple):
            return self.row(scope, depth, domain)
        return self.number(scope, depth) if domain is None else self.index(scope, depth, domain)

    # Truth values

    def truth(self, scope: Scope, depth: int) -> str:
        """A truth value."""
        inner = depth - 1
        if depth <= 0:
            if scope.truths and self.is_chosen(0.3):
                return self.random.choice(scope.truths)
            return self._comparison(scope, 0)
        options: list[tuple[str, Callable[[], str]]] = [
            *[("comparison", lambda: self._comparison(scope, inner))] * 3,
            ("flag", lambda: self.cell(scope, inner, is_truth=True)),
            ("equal truth values", lambda: f"({self.truth(scope, inner)} == {self.truth(scope, 0)})"),
            ("not", lambda: f"(not {self.truth(scope, inner)})"),
            ("and", lambda: f"({self.truth(scope, inner)} and {self.truth(scope, inner)})"),
            ("or", lambda: f"({self.truth(scope, inner)} or {self.truth(scope, 0)} or {self.truth(scope, inner)})"),
            *[("short circuit", lambda: self._short_circuit(scope, inner))] * 2,
            ("implies", lambda: f"implies({self.truth(scope, inner)}, {self.truth(scope, inner)})"),
            ("conditional truth value", lambda: self._conditional(scope, inner, self.truth)),
            *[("quantifier", lambda: self._quantifier(scope, inner))] * 3,
            *[("same", lambda: self._same(scope, inner))] * 2,
        ]
        if callees := [one for one in scope.callees if one.is_truth]:
            options += [("predicate", lambda: self.call(scope, inner, self.random.choice(callees)))] * 2
        return self._one_of(options)

    def _comparison(self, scope: Scope, depth: int) -> str:
        parts = [self.number(scope, depth), self._compare(), self.number(scope, depth)]
        if self.is_chosen(0.3):
            self.used["chained comparison"] += 1
            parts += [self._compare(), self.number(scope, 0)]
        return f"({' '.join(parts)})"

    def _compare(self) -> str:
        return self.random.choice(("==", "!=", "<", "<=", ">", ">="))

    def _short_circuit(self, scope: Scope, depth: int) -> str:
        text, domain = self._doubtful(scope, depth)
        inside = self.truth(scope.with_number(text, domain), depth)
        forms = ("({0} and {1})", "(not {0} or {1})", "implies({0}, {1})")
        return self.random.choice(forms).format(_within(text, domain), inside)

    def _quantifier(self, scope: Scope, depth: int) -> str:
        names, domains = [self.name()], [self._quantified_domain()]
        while len(names) < 3 and self.is_chosen(0.3):
            if (name := self.name()) not in names:
                names.append(name)
                domains.append(self._quantified_domain())
        if len(names) > 1:
            self.used["several generators"] += 1
        word, inner = self.random.choice(("all", "any")), scope
        for name, domain in zip(names, domains, strict=True):
            self.used["shadowed name"] += any(text == name for text, _ in scope.numbers)
            inner = inner.bound(name, domain)
        self.used["nested quantifier"] += self._num_open > 0
        self._num_open += 1
        element = self.truth(inner, depth)
        self._num_open -= 1
        return self._over(word, list(zip(names, domains, strict=True)), element)

    def _over(self, word: str, generators: Sequence[tuple[str, Domain]], element: str) -> str:
        if ends := [f"{name} < {MEMBERS_OF_ENDLESS}" for name, domain in generators if domain.name in ENDLESS]:
            self.used["endless domain"] += 1
            bound = " and ".join(ends)
            element = f"implies({bound}, {element})" if word == "all" else f"({bound} and {element})"
        return f"{word}({element} {' '.join(f'for {name} in {DOMAIN_NAMES[domain]}' for name, domain in generators)})"

    def about_cells(self, scope: Scope, depth: int) -> str:
        """A claim about every cell of a field; mostly of one whose cells contain quantifiers over the same name."""
        if self._cells_with_quantifiers and self.is_chosen(0.8):
            cell, name, domain = self.random.choice(self._cells_with_quantifiers)
            one, other = (self._over("any", [(name, domain)], f"{cell} == {number}") for number in (1, 2))
            return f"({one} == {other})"
        field = self.random.choice([one for one in self._readable(scope) if not one.is_truth])
        names = self.random.sample(self._names, len(field.domains))
        for name, domain in zip(names, field.domains, strict=True):
            scope = scope.bound(name, domain)
        cell = f"state.{field.name}" + "".join(f"[{name}]" for name in names)
        element = f"({cell} {self._compare()} {self.number(scope, depth)})"
        return self._over(self.random.choice(("all", "any")), list(zip(names, field.domains, strict=True)), element)

    def cells_with_a_quantifier(self, field: FieldText, flags: FieldText) -> str:
        """Writes that give a field cells that contain a quantifier, and read them within one over the same name."""
        outer, inner = self.random.sample(self._names, 2)
        (domain,), comparison = field.domains, self.random.choice(("<", ">", "!="))
        found = self._over("any", [(inner, self.random.choice(QUANTIFIED))], f"{inner} {comparison} {outer}")
        cell = f"state.{field.name}[{outer}] + ({self.random.randrange(1, 3)} if {found} else 0)"
        self._cells_with_quantifiers.append((f"state.{field.name}[{inner}]", inner, domain))
        text = f"state.{field.name} = [{cell} for {outer} in {DOMAIN_NAMES[domain]}]\n"
        if self.is_chosen(0.5):
            is_there = self._over("any", [(inner, domain)], f"state.{field.name}[{inner}] == {outer} + 1")
            text += f"state.{flags.name} = [{is_there} for {outer} in {DOMAIN_NAMES[flags.domains[0]]}]\n"
        return text

    def _quantified_domain(self) -> Domain:
        if self.is_chosen(0.15):
            return self.random.choice((language.INDEXES, language.RANKS))
        return self.random.choice(QUANTIFIED)

    # Rows

    def row(self, scope: Scope, depth: int, domains: Domains) -> str:
        """A row, or rows, over these domains, to read from."""
        known = [text for text, of in scope.rows if of == domains]
        if known and self.is_chosen(0.3):
            return self.random.choice(known)
        if depth > 0 and self.is_chosen(0.5):
            return self.new_row(scope, depth, domains)
        found = [one for one in self._readable(scope) if not one.is_truth and one.domains[-len(domains) :] == domains]
        if found:
            return self._read(self.random.choice(found), scope, depth - 1, len(domains))
        return self.comprehension(scope, depth, domains)

    def new_row(self, scope: Scope, depth: int, domains: Domains) -> str:
        """A row that shares no list with any other."""
        inner = depth - 1
        options: list[tuple[str, Callable[[], str]]] = [
            ("comprehension", lambda: self.comprehension(scope, inner, domains)),
        ]
        if len(domains) == 1:
            index = self.index(scope, inner, domains[0])
            options += [
                ("copied", lambda: f"copied({self.row(scope, inner, domains)})"),
                ("put", lambda: f"put({self.row(scope, inner, domains)}, {index}, {self.number(scope, inner)})"),
                ("conditional row", lambda: self._conditional_row(scope, inner, domains)),
            ]
        if domains == SLOTS:
            options += [("spliced", lambda: self._spliced(scope, inner))] * 2
        return self._one_of(options)

    def _conditional_row(self, scope: Scope, depth: int, domains: Domains) -> str:
        one, other = self.new_row(scope, depth, domains), self.new_row(scope, depth, domains)
        return f"({one} if {self.truth(scope, depth)} else {other})"

    def _spliced(self, scope: Scope, depth: int) -> str:
        start, stop = self._start_and_stop(scope, depth)
        return f"spliced({self.row(scope, depth, SLOTS)}, {start}, {stop}, {self.row(scope, depth, SLOTS)})"

    def _start_and_stop(self, scope: Scope, depth: int) -> tuple[str, str]:
        if self.is_chosen(0.15):
            return self.number(scope, depth), self.number(scope, depth)
        start = self.random.choice(("0", self.index(scope, depth, language.SLOTS)))
        return start, self.random.choice(
            ("BLOCK_SIZE", f"max({start}, BLOCK_SIZE - 1)", f"min({start} + 1, BLOCK_SIZE)")
        )

    def _same(self, scope: Scope, depth: int) -> str:
        stop = self._start_and_stop(scope, depth)[1]
        return f"same({self.row(scope, depth, SLOTS)}, {self.row(scope, depth, SLOTS)}, {stop})"

    def comprehension(self, scope: Scope, depth: int, domains: Domains) -> str:
        """A comprehension over the first domain."""
        name = self.name()
        inner, before = scope.bound(name, domains[0]), self.used["quantifier"]
        element = self.new_row(inner, depth, domains[1:]) if len(domains) > 1 else self.number(inner, depth)
        self.used["quantifier in a comprehension"] += self.used["quantifier"] > before
        return f"[{element} for {name} in {DOMAIN_NAMES[domains[0]]}]"


def _within(text: str, domain: Domain) -> str:
    """The condition that a number is in a domain."""
    return f"(0 <= {text} and {text} < {domain.size})"
