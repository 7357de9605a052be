"""Whether a text uses the numbers of blocks, sequences, flights and identities as names, and as nothing else.

A search takes states for one that a renaming of these turns into each other. That is right only if no rule prefers one
name to another: a name may select a cell of a field over its domain, be stored where such names are stored, be passed
on, and be compared for equality with a name of the same kind. What else a rule does with it (arithmetic, an order, a
place among names of another kind) could come out differently after a renaming. The exception: a name may be compared
with the sizes that say which names there are, and a block with that of the GPU pool, because names are renamed within a
pool. Whether a name is in range where it selects a cell is not asked here but where the text runs, in each state: there
is no cell for NONE or a number beyond the last name, and a search that takes one for a place has found a fault
(`search/exhaustive/places.py`, and `c_reader.translation`).

The kinds are found by unification, as types are: each parameter and local has one kind in the whole text, fields have
those of their domains, and constants that stand for no name (NONE, NULL) fit every kind. Rows are lists of identities.
What this does not know is reported, not assumed. Read are the rules and claims, and what they call; the programs of
calls (`operations`) only choose what is fired.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kvproof.spec.language import BLOCKS, COLLECTED, ENTRIES, FLIGHTS, IDENTITIES, SEQS, Domain, Field
from kvproof.spec.native import FIELDS
from kvproof.spec.syntax_trees import Functions, functions

NAMES = {BLOCKS: "block", ENTRIES: "block", SEQS: "sequence", FLIGHTS: "flight", IDENTITIES: "identity"}
NUMBER, ANY = "number", "anything"
ANNOTATED = {"BlockId": "block", "SeqId": "sequence", "FlightId": "flight"}
ROWS = {"Row": (NUMBER, "identity"), "Ages": ("block", NUMBER), "list[int]": (NUMBER, "identity")}
FIT_ALL = ("NONE", "NULL")
SIZES = {"NUM_BLOCKS": "block", "NUM_GPU_BLOCKS": "block", "NUM_SEQS": "sequence", "NUM_FLIGHTS": "flight"}
DOMAINS = {"BLOCKS": "block", "SEQS": "sequence", "FLIGHTS": "flight"}
SAME_ROWS = ("same", "copied", "spliced")
TRUTHS = ("all", "any", "implies", "require", "check")


class Mixed(Exception):
    """The text takes a name for something else. The message says where."""


class Kind:
    """The kind of a value: one that is known, or one that another stands for."""

    def __init__(self, name: str = "") -> None:
        self.name, self.other = name, self

    def found(self) -> Kind:
        """The kind that stands for this one."""
        while self.other is not self:
            self = self.other
        return self


@dataclass(frozen=True)
class Cells:
    """Cells that are selected by names or numbers of these kinds, one after the other. to: the kind of their values."""

    by: tuple[Kind, ...]
    to: Kind


Value = Kind | Cells


def mixed_names(text: Functions | None = None) -> str:
    """Where the text of block managers takes a name for something else, as a sentence; empty if it does so nowhere.

    text: other functions than those of the specification.
    """
    return _mixed_by_default() if text is None else _mixed(text)


@cache
def _mixed_by_default() -> str:
    return _mixed(functions())


def _mixed(text: Functions) -> str:
    read = _what_searches_read(text)
    try:
        kinds = _Kinds(read, FIELDS)
        for name in read:
            kinds.read(name)
    except Mixed as error:
        return str(error)
    return ""


def _what_searches_read(text: Functions) -> Functions:
    """The rules and claims, and what they call."""
    claims = (*COLLECTED.invariants, *COLLECTED.theorems)
    names, found = [*(rule.__name__ for rule in COLLECTED.rules), *(claim.name for claim in claims)], {}
    while names:
        if (name := names.pop()) in text and name not in found:
            found[name] = text[name]
            names += [node.id for node in ast.walk(text[name][0]) if isinstance(node, ast.Name)]
    return found


def _kind_of(domain: Domain) -> Kind:
    return Kind(NAMES.get(domain, NUMBER))


class _Kinds:
    def __init__(self, text: Functions, fields: Mapping[str, Field]) -> None:
        self.text, self.fields = text, fields
        self.results = {name: Kind() for name in text}
        self.parameters = {name: [self._given(one) for one in tree.args.args] for name, (tree, _) in text.items()}
        self.function, self.at, self.locals = "", 0, dict[str, Value]()

    def _given(self, parameter: ast.arg) -> Value:
        name = "" if parameter.annotation is None else ast.unparse(parameter.annotation)
        if name in ROWS:
            by, to = ROWS[name]
            return Cells((Kind(by),), Kind(to))
        return Kind(ANNOTATED.get(name, "" if name == "int" else NUMBER))

    def read(self, name: str) -> None:
        """Read a function. Raises Mixed."""
        tree, _ = self.text[name]
        self.function = name
        self.locals = {one.arg: kind for one, kind in zip(tree.args.args, self.parameters[name], strict=True)}
        for statement in tree.body:
            self.statement(statement)

    def statement(self, statement: ast.stmt) -> None:
        self.at = statement.lineno
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                kind = self.value(value)
                self.locals[name] = self.same(self.locals[name], kind) if name in self.locals else kind
            case ast.Assign(targets=[target], value=value):
                self.same(self.value(target), self.value(value))
            case ast.AugAssign(target=target, value=value):
                self.number(target)
                self.number(value)
            case ast.Return(value=ast.expr() as value):
                self.same(self.results[self.function], self.value(value))
            case ast.If(test=test, body=body, orelse=other):
                self.value(test)
                for one in (*body, *other):
                    self.statement(one)
            case ast.Expr(value=value):
                self.value(value)
            case ast.Pass():
                pass
            case _:
                self.unknown(statement)

    def value(self, node: ast.expr) -> Value:
        """The kind of an expression."""
        match node:
            case ast.Constant(value=str()):
                return Kind(ANY)
            case ast.Constant():
                return Kind(NUMBER)
            case ast.Name(id=name):
                if name in self.locals:
                    return self.locals[name]
                return Kind(ANY if name in FIT_ALL else DOMAINS.get(name, NUMBER))
            case ast.Attribute(value=ast.Name(), attr=attribute) if attribute in self.fields:
                field = self.fields[attribute]
                return Cells(tuple(map(_kind_of, field.domains)), _kind_of(field.to))
            case ast.Subscript(value=cells, slice=place):
                return self.selected(self.value(cells), self.value(place))
            case ast.Compare(left=left, ops=ops, comparators=others):
                self.compared([left, *others], ops)
                return Kind(NUMBER)
            case ast.BoolOp(values=parts):
                for part in parts:
                    self.value(part)
                return Kind(NUMBER)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self.value(operand)
                return Kind(NUMBER)
            case ast.UnaryOp(operand=operand):
                self.number(operand)
                return Kind(NUMBER)
            case ast.BinOp(left=left, right=right):
                self.number(left)
                self.number(right)
                return Kind(NUMBER)
            case ast.IfExp(test=test, body=body, orelse=other):
                self.value(test)
                return self.same(self.value(body), self.value(other))
            case ast.GeneratorExp(elt=element, generators=loops) | ast.ListComp(elt=element, generators=loops):
                return self.comprehension(element, loops)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                return self.call(name, arguments)
        self.unknown(node)
        raise AssertionError

    def comprehension(self, element: ast.expr, loops: Sequence[ast.comprehension]) -> Value:
        around, by = self.locals, list[Kind]()
        self.locals = dict(around)
        for loop in loops:
            if not isinstance(loop.target, ast.Name) or not isinstance(loop.iter, ast.Name):
                self.unknown(loop.target)
                raise AssertionError
            by.append(Kind(DOMAINS.get(loop.iter.id, NUMBER)))
            self.locals[loop.target.id] = by[-1]
            for test in loop.ifs:
                self.value(test)
        of_element = self.value(element)
        self.locals = around
        return (
            Cells(tuple(by), of_element)
            if isinstance(of_element, Kind)
            else Cells((*by, *of_element.by), of_element.to)
        )

    def call(self, name: str, arguments: Sequence[ast.expr]) -> Value:
        if name in self.text:
            for given, wanted in zip(arguments, self.parameters[name], strict=False):
                self.same(wanted, self.value(given))
            return self.results[name]
        values = [self.value(argument) for argument in arguments]
        if name in TRUTHS:
            return Kind(NUMBER)
        if name == "put" and len(values) == 3:
            row, place, value = values
            self.same(self.selected(row, place), value)
            return row
        if name in SAME_ROWS:
            rows = [value for value in values if isinstance(value, Cells)]
            for row in rows[1:]:
                self.same(rows[0], row)
            for value, argument in zip(values, arguments, strict=True):
                if isinstance(value, Kind):
                    self.number(argument)
            return Kind(NUMBER) if name == "same" or not rows else rows[0]
        raise Mixed(f"{self.place} calls {name}, of which is not known what it does with names")

    def selected(self, cells: Value, place: Value) -> Value:
        if isinstance(cells, Kind):
            raise Mixed(f"{self.place} takes a place of what has no places")
        if cells.by[0].found().name != NUMBER and isinstance(place, Kind) and place.found().name == ANY:
            raise Mixed(f"{self.place} takes a place that no name has")
        self.same(cells.by[0], place)
        return Cells(cells.by[1:], cells.to) if len(cells.by) > 1 else cells.to

    def compared(self, parts: Sequence[ast.expr], ops: Sequence[ast.cmpop]) -> None:
        for left, op, right in zip(parts, ops, parts[1:], strict=False):
            if isinstance(op, ast.Eq | ast.NotEq):
                self.same(self.value(left), self.value(right))
            elif (bound := _bound(left, op, right)) is None:
                self.number(left)
                self.number(right)
            else:
                self.bounded(*bound)

    def bounded(self, node: ast.expr, kind: str) -> None:
        """Require that the expression is a number, or a name of this kind; of any kind if it is empty."""
        found = self.value(node)
        if isinstance(found, Cells):
            raise Mixed(f"{self.place} takes cells for a number")
        if kind and found.found().name != NUMBER:
            self.same(Kind(kind), found)

    def number(self, node: ast.expr) -> None:
        """Require that the expression is no name."""
        self.same(Kind(NUMBER), self.value(node))

    def same(self, one: Value, other: Value) -> Value:
        """Require that two values are of one kind, the one that is wanted and the one that is there. Returns it."""
        if isinstance(one, Cells) and isinstance(other, Cells):
            if len(one.by) != len(other.by):
                raise Mixed(f"{self.place} takes cells for others")
            for mine, its in zip((*one.by, one.to), (*other.by, other.to), strict=True):
                self.same(mine, its)
            return one
        if isinstance(one, Cells) or isinstance(other, Cells):
            kind, cells = (one, other) if isinstance(one, Kind) else (other, one)
            if isinstance(kind, Kind) and kind.found().name == ANY:
                return cells
            raise Mixed(f"{self.place} takes cells for a number")
        mine, its = one.found(), other.found()
        if ANY in (mine.name, its.name):
            return its if mine.name == ANY else mine
        if mine.name and its.name and mine.name != its.name:
            raise Mixed(f"{self.place} takes a {its.name} for a {mine.name}")
        if mine is not its:
            mine.name = its.name = mine.name or its.name
            mine.other = its
        return its

    @property
    def place(self) -> str:
        _, file = self.text[self.function]
        return f"{self.function} ({Path(file).name}:{self.at})"

    def unknown(self, node: ast.AST) -> None:
        raise Mixed(f"{self.place} has {type(node).__name__}, of which is not known what it does with names")


def _bound(left: ast.expr, op: ast.cmpop, right: ast.expr) -> tuple[ast.expr, str] | None:
    """What a comparison asks only whether it exists, or in which pool it is, and the kind of name for which it may ask.

    The kind is empty if 0 is the bound. None if the comparison asks for more.
    """
    if isinstance(op, ast.Gt | ast.GtE):
        left, right, op = right, left, ast.Lt() if isinstance(op, ast.Gt) else ast.LtE()
    size, other = (right, left) if isinstance(op, ast.Lt) else (left, right)
    if isinstance(size, ast.Name) and size.id in SIZES:
        return other, SIZES[size.id]
    return (right, "") if isinstance(op, ast.LtE) and isinstance(left, ast.Constant) and left.value == 0 else None
