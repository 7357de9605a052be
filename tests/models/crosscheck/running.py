"""Drawn programs run natively: loaded in place of the specification, on drawn states, plainly and strictly.

A strict run is the native run of a text in which Python refuses what the language leaves undefined: a negative index, a
divisor that is not positive, a slice outside its row. It evaluates `all` and `any` to the end, because a prover demands
that every element is defined.
"""

import ast
import copy
import dataclasses
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any
from unittest.mock import patch

from kvproof.models.translation.text import Text, specification
from kvproof.spec import language, native, syntax_trees
from kvproof.spec.language import COLLECTED, Domain, Field
from kvproof.spec.native import FIELDS, Machine
from kvproof.spec.sizes import Sizes
from kvproof.spec.text.state import State

FILE = "/generated/kvproof/generated/program.py"  # what a message names; there is no such file
ENDLESS = 5  # the members of every domain without end; no other domain has so many
SIZES = (Sizes(2, 1, 2, 2, 5, 4), Sizes(1, 2, 3, 1, 5, 4), Sizes(3, 1, 1, 2, 5, 1), Sizes(1, 3, 2, 1, 5, 2))
UNUSUAL = 12  # one of so many values in a state is drawn without regard to its domain


@dataclass(frozen=True, eq=False)
class Loaded:
    """A program that stands in the place of the specification: its text, and what its names mean."""

    source: str
    text: Text
    names: Mapping[str, Any]


def forget_fields() -> None:
    """Forget the code that makes and copies states of the fields of before."""
    native._copier.cache_clear()
    native._maker.cache_clear()


@contextmanager
def loaded(source: str) -> Iterator[Loaded]:
    """Within the block, the fields, rules and claims are those of the program, and not those of the specification."""
    tree = ast.parse(source, FILE)
    names: dict[str, Any] = {name: value for name, value in vars(language).items() if not name.startswith("__")}
    constants = dict(specification().constants)
    names |= constants | {"dataclass": dataclass}
    lists = [getattr(COLLECTED, one.name) for one in dataclasses.fields(COLLECTED)]
    before = [list(one) for one in lists]
    try:
        for one in lists:
            one.clear()
        exec(compile(tree, FILE, "exec"), names)
        fields = {name: one for name, one in vars(names["State"]).items() if isinstance(one, Field)}
        functions = {node.name: (node, FILE) for node in tree.body if isinstance(node, ast.FunctionDef)}
        with patch.dict(FIELDS, fields, clear=True):
            forget_fields()
            yield Loaded(source, Text(functions, constants), names)
    finally:
        forget_fields()
        for one, content in zip(lists, before, strict=True):
            one[:] = content


# States and arguments ----------------------------------------------------------------------------------------------


def drawn_state(random: Random, machine: Machine) -> State:
    """A state of any values, most of which are in their domains."""
    state = State()
    for name, one in FIELDS.items():
        setattr(state, name, _drawn_rows(random, machine, one.domains, one.to))
    return state


def _drawn_rows(random: Random, machine: Machine, domains: tuple[Domain, ...], to: Domain) -> Any:
    if not domains:
        return drawn_value(random, machine, to)
    return [_drawn_rows(random, machine, domains[1:], to) for _ in range(length(machine, domains[0]))]


def length(machine: Machine, domain: Domain) -> int:
    """How many members the domain has in native runs; 4 for one without end."""
    if domain.size is None:
        return 4
    return int(machine.names[domain.size]) if isinstance(domain.size, str) else domain.size


def drawn_value(random: Random, machine: Machine, domain: Domain) -> int:
    """A value of the domain; now and then any small number."""
    if domain is language.FLAGS:
        return random.random() < 0.5
    if random.randrange(UNUSUAL) == 0 or not (size := length(machine, domain)):
        return random.randint(-2, 4)
    return random.randrange(size)


def drawn_argument(random: Random, machine: Machine, annotation: Any) -> Any:
    """A value for a parameter: within its domain, or a row of any numbers. None if the domain is empty."""
    domains = annotation.__metadata__
    if annotation.__origin__ is int:
        size = length(machine, domains[0])
        return random.randrange(size) if size else None
    return [random.randint(-1, 4) for _ in range(length(machine, domains[0]))]


# Strict runs -------------------------------------------------------------------------------------------------------


class Undefined(IndexError):
    """The language gives no meaning to what the text does here."""


class Beyond(IndexError):
    """A subscript past the end that a domain without end has natively."""


@dataclass
class Strict:
    """The result of a strict run.

    value: what was returned: a guard, or the value of a function. line: where the text was undefined, if it was.
    is_beyond: whether it stopped past the end of an endless domain. checks: line and result of each check, in order.
    """

    value: Any = None
    line: int | None = None
    is_beyond: bool = False
    checks: list[tuple[int, bool]] = field(default_factory=list)


def strict_functions(source: str) -> dict[str, tuple[ast.FunctionDef, str]]:
    """The functions of a program, each part of which refuses what is undefined."""
    tree = ast.fix_missing_locations(_Strict().visit(ast.parse(source, FILE)))
    return {node.name: (node, FILE) for node in tree.body if isinstance(node, ast.FunctionDef)}


def strictly(machine: Machine, name: str, *arguments: Any) -> Strict:
    """Run a function of a machine that was made of strict functions."""
    result = Strict()

    def noted(is_so: bool, line: int) -> None:
        result.checks.append((line, bool(is_so)))

    machine.names.update(_SUPPORT, noted=noted)
    try:
        result.value = machine.names[name](*arguments)
    except Beyond:
        result.is_beyond = True
    except (Undefined, ZeroDivisionError) as error:
        lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == FILE]
        result.line = lines[-1]
    return result


class _Strict(ast.NodeTransformer):
    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        whole = copy.deepcopy(node.value)
        self.generic_visit(node)
        node.slice = _call("as_index", node.slice, whole)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, (ast.FloorDiv, ast.Mod)):
            node.right = _call("as_divisor", node.right)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        self.generic_visit(node)
        if syntax_trees.called(node) == "check":
            condition = node.value.args[0]  # type: ignore[attr-defined]
            node.value = ast.copy_location(_call("noted", condition, ast.Constant(node.lineno)), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        end = ast.Name("BLOCK_SIZE", ast.Load())
        match node.func, node.args:
            case ast.Name(id="all" | "any"), [ast.GeneratorExp(elt=element, generators=generators) as one]:
                node.args = [ast.copy_location(ast.ListComp(element, generators), one)]
            case ast.Name(id="put"), [row, index, _]:
                node.args[1] = _call("as_index", index, row)
            case ast.Name(id="spliced"), [_, start, stop, _]:
                node.args[1:3] = _call("as_stop", ast.Constant(0), start, end), _call("as_stop", start, stop, end)
            case ast.Name(id="same"), [_, _, stop] if ast.unparse(stop) != "BLOCK_SIZE":
                node.args[2] = _call("as_stop", ast.Constant(0), stop, end)
        return node


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), list(arguments), []), arguments[0])


def _as_index(index: int, row: list[Any]) -> int:
    if index < 0:
        raise Undefined
    if index >= len(row):
        raise Beyond if len(row) == ENDLESS else Undefined
    return index


def _as_divisor(divisor: int) -> int:
    if divisor <= 0:
        raise Undefined
    return divisor


def _as_stop(start: int, stop: int, end: int) -> int:
    if not start <= stop <= end:
        raise Undefined
    return stop


_SUPPORT = {"as_index": _as_index, "as_divisor": _as_divisor, "as_stop": _as_stop}
