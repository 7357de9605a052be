"""The text of a specification compiled to plain Python, for given sizes.

Three things are rewritten: a guard returns a `Guard` (so a rule gives None when it was enabled), an obligation raises
`CheckFailed`, and operations on rows become list operations. Line numbers are kept, so a debugger steps through the
text itself. The sizes are globals of the compiled functions, so a machine of other sizes costs microseconds.

The judges run machines of large pools after every call, so what a rule does must not cost more in a larger pool. A new
value for each block that a sequence holds is written by its table (without checks, as in a judge), and where no flight
is a transfer, the questions whether one fills a block are answered when the text is compiled.
"""

import ast
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, TypeVar

from kvproof.spec.sizes import Sizes, SizesOf
from kvproof.spec.syntax_trees import Functions, called, copied, fields_in, functions, rename_hiding, without_ghosts
from kvproof.spec.systems import System


@dataclass(frozen=True)
class Guard:
    """The guard that does not hold, so that a rule is not enabled, and the property that acting would break."""

    rule: str
    sentence: str
    property: str


class CheckFailed(Exception):
    """A `check` of the specification does not hold, so the specification itself is wrong."""

    def __init__(self, rule: str, property: str, text: str) -> None:
        super().__init__(f"{rule}: {property}: {text}")
        self.rule, self.property, self.text = rule, property, text


ROW_OPERATIONS = frozenset({"copied", "same", "spliced", "put"})


class _Runnable(ast.NodeTransformer):
    """Rewrites guards to returns, obligations to exceptions, and operations on rows to list operations."""

    def __init__(self, function: ast.FunctionDef, with_checks: bool, has_transfers: bool) -> None:
        self.rule, self.with_checks, self.has_transfers = function.name, with_checks, has_transfers
        self.constants: dict[str, Any] = {}
        nodes = ast.walk(function) if with_checks else ()
        checks = (node for node in nodes if isinstance(node, ast.Expr) and called(node) == "check")
        self.texts = {id(node): ast.unparse(node.value.args[0]) for node in checks}  # type: ignore[attr-defined]

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        name = called(node)
        self.generic_visit(node)
        if name == "require":
            condition, sentence, *property = node.value.args  # type: ignore[attr-defined]
            guard = Guard(self.rule, sentence.value, property[0].value if property else "")
            return self.unless(condition, ast.Return(self.constant("GUARD", guard)), node)
        if name == "check":
            if not self.with_checks:
                return ast.copy_location(ast.Pass(), node)
            condition, property = node.value.args  # type: ignore[attr-defined]
            failed = CheckFailed(self.rule, property.value, self.texts[id(node)])
            return self.unless(condition, ast.Raise(self.constant("FAILED", failed), None), node)
        return node

    def unless(self, condition: ast.expr, statement: ast.stmt, at: ast.stmt) -> ast.stmt:
        return ast.copy_location(ast.If(ast.UnaryOp(ast.Not(), condition), [statement], []), at)

    def constant(self, kind: str, value: Any) -> ast.expr:
        name = f"{kind} {self.rule} {len(self.constants)}"  # no name of a text has a space
        self.constants[name] = value
        return ast.Name(name, ast.Load())

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        self.generic_visit(node)
        match node:
            case ast.Assign(
                [ast.Attribute(_, field) as target],
                ast.ListComp(
                    ast.IfExp(
                        ast.Call(ast.Name("holds"), [state, seq, ast.Name(held)]),
                        new,
                        ast.Subscript(ast.Attribute(_, same_field), ast.Name(kept)),
                    ),
                    [ast.comprehension(ast.Name(block), ast.Name("BLOCKS"))],
                ),
            ) if not self.with_checks and field == same_field and held == kept == block:
                s, q = ast.unparse(state), ast.unparse(seq)
                source = f"for {block} in {s}.table[{q}][{s}.first[{q}]:{s}.num_blocks[{q}]]:"
                source += f" {ast.unparse(target)}[{block}] = {ast.unparse(new)}"
                return _located(ast.parse(source).body[0], node)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Compare(ast.Subscript(ast.Attribute(_, "fills" | "filler")), [operator], [ast.Name("NONE")]) if (
                not self.has_transfers
            ):
                return ast.copy_location(ast.Constant(isinstance(operator, ast.Eq)), node)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        decides = isinstance(node.op, ast.Or)
        known = [value.value for value in node.values if isinstance(value, ast.Constant)]
        if not known:
            return node
        values = [value for value in node.values if not isinstance(value, ast.Constant)]
        if decides in known or not values:
            return ast.copy_location(ast.Constant(decides if decides in known else not decides), node)
        return ast.copy_location(ast.BoolOp(node.op, values) if len(values) > 1 else values[0], node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.expr:
        self.generic_visit(node)
        for loop in node.generators:
            loop.ifs = [one for one in loop.ifs if not (isinstance(one, ast.Constant) and one.value)]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        return (node.body if node.test.value else node.orelse) if isinstance(node.test, ast.Constant) else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        match node:
            case ast.Call(ast.Name("all"), [ast.GeneratorExp(ast.Call(ast.Name("implies"))) as every]):
                ask_early(every)
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Name("all"), [ast.GeneratorExp(ast.Constant(True))]):
                return ast.copy_location(ast.Constant(True), node)
            case ast.Call(ast.Name("all"), [ast.GeneratorExp(_, loops)]) if any(
                isinstance(one, ast.Constant) for loop in loops for one in loop.ifs
            ):
                return ast.copy_location(ast.Constant(True), node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        unparsed = [f"({ast.unparse(a)})" for a in node.args] if name in ROW_OPERATIONS else []
        match name:
            case "implies":
                return ast.copy_location(
                    ast.BoolOp(ast.Or(), [ast.UnaryOp(ast.Not(), node.args[0]), node.args[1]]), node
                )
            case "copied":
                source = "{0}[:]".format(*unparsed)
            case "same" if unparsed[2] == "(BLOCK_SIZE)":
                source = "({0} == {1})".format(*unparsed)
            case "same":
                source = "({0}[:{2}] == {1}[:{2}])".format(*unparsed)
            case "spliced":
                source = "({0}[:{1}] + {3}[{1}:{2}] + {0}[{2}:])".format(*unparsed)
            case "put":
                source = "({0}[:{1}] + [{2}] + {0}[{1} + 1:])".format(*unparsed)
            case _:
                return node
        return _located(ast.parse(source, mode="eval").body, node)


def ask_early(every: ast.GeneratorExp) -> None:
    """Ask each part of the condition of `all(implies(…) for …)` as soon as the variables that it reads have values.

    The parts are asked in the order of the text, so each is read only where those before it hold. The loops are put in
    the order in which the parts need their variables. An inner loop runs only where the outer parts hold; where the
    first part of a loop says what its variable equals, only that is tried.
    """
    parts = list[ast.expr]()
    while isinstance(every.elt, ast.Call) and isinstance(every.elt.func, ast.Name) and every.elt.func.id == "implies":
        condition, every.elt = every.elt.args
        parts += _conjuncts(condition)
    every.generators.sort(key=lambda loop: _first_part(_variable(loop), parts))
    later = {_variable(loop) for loop in every.generators}
    for loop in every.generators:
        later.remove(variable := _variable(loop))
        while parts and not later & _names_in(parts[0]):
            loop.ifs.append(parts.pop(0))
        match loop.ifs:
            case [ast.Compare(ast.Name(name), [ast.Eq()], [value]), *_] if name == variable not in _names_in(value):
                domain = ast.Compare(ast.Name(name, ast.Load()), [ast.In()], [loop.iter])
                loop.iter, loop.ifs[0] = ast.Tuple([value], ast.Load()), domain


def _conjuncts(condition: ast.expr) -> list[ast.expr]:
    if isinstance(condition, ast.BoolOp) and isinstance(condition.op, ast.And):
        return [part for value in condition.values for part in _conjuncts(value)]
    return [condition]


def _first_part(variable: str, parts: Sequence[ast.expr]) -> int:
    """The place of the first part that reads a variable; beyond the last if none does."""
    return next((place for place, part in enumerate(parts) if variable in _names_in(part)), len(parts))


def _variable(loop: ast.comprehension) -> str:
    assert isinstance(loop.target, ast.Name)
    return loop.target.id


def _names_in(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


Node = TypeVar("Node", bound=ast.AST)


def _located(parsed: Node, at: ast.AST) -> Node:
    for node in ast.walk(parsed):
        ast.copy_location(node, at)
    return parsed


@functools.lru_cache(maxsize=4096)
def _compiled(
    function: ast.FunctionDef, file: str, ghosts_left_out: frozenset[str], with_checks: bool, has_transfers: bool
) -> tuple[CodeType, dict[str, Any]]:
    """The code of one function, and the constants that it uses. Cached, so that a mutant compiles one function only.

    Without checks, what only they read is left out as well.
    """
    has_ghosts = fields_in(function, ghosts_left_out)
    function = without_ghosts(function, ghosts_left_out) if has_ghosts else copied(function)
    runnable = _Runnable(function, with_checks, has_transfers)  # before names change, which messages show
    rename_hiding(function)
    function = runnable.visit(function)
    if not with_checks:
        function = without_ghosts(function, frozenset())
    function.decorator_list, function.returns = [], None
    function.args.defaults, function.args.kw_defaults = [], [None for _ in function.args.kwonlyargs]
    for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
        argument.annotation = None
    module = compile(ast.fix_missing_locations(ast.Module([function], [])), file, "exec")
    return next(one for one in module.co_consts if isinstance(one, CodeType)), runnable.constants


NUM_SIZES_KEPT_MAX = 256  # of a walk, whose worlds have thousands; one takes 30 KB, and 0.2 ms to make again


@functools.lru_cache(maxsize=NUM_SIZES_KEPT_MAX)
def namespace(sizes: SizesOf[Any], with_ghosts: bool, with_checks: bool) -> dict[str, Any]:
    constants, codes = _compiled_text(sizes.system, with_ghosts, with_checks, sizes.has_transfers)
    names = constants | sizes.names()
    for name, code in codes:
        names[name] = FunctionType(code, names, name)
    return names


@functools.cache
def _compiled_text(
    system: System, with_ghosts: bool, with_checks: bool, has_transfers: bool
) -> tuple[dict[str, Any], list[tuple[str, CodeType]]]:
    """The constants of the text of a system, and the code of each function by its name; they have no sizes yet."""
    constants: dict[str, Any] = {**system.constants}
    codes = []
    left_out = frozenset[str]() if with_ghosts else system.ghosts
    for name, (function, file) in functions(system).items():
        code, own = _compiled(function, file, left_out, with_checks, has_transfers)
        constants |= own
        codes.append((name, code))
    return constants, codes


@functools.cache
def sized_function(name: str, block_size: int) -> Callable[..., Any]:
    """A function that depends on no other size than the slots of a block, for blocks of so many slots."""
    function: Callable[..., Any] = namespace(Sizes(0, 0, block_size, 0, 0, has_transfers=False), False, False)[name]
    return function


def names_of(sizes: SizesOf[Any], text: Functions, with_ghosts: bool, with_checks: bool) -> dict[str, Any]:
    names: dict[str, Any] = {**sizes.system.constants, **sizes.names()}
    left_out = frozenset[str]() if with_ghosts else sizes.system.ghosts
    define(text, names, left_out, with_checks, sizes.has_transfers)
    return names


def define(
    text: Functions,
    names: dict[str, Any],
    ghosts_left_out: frozenset[str],
    with_checks: bool,
    has_transfers: bool = True,
) -> None:
    for name, (function, file) in text.items():
        code, constants = _compiled(function, file, ghosts_left_out, with_checks, has_transfers)
        if constants:
            names |= constants
        names[name] = FunctionType(code, names, name)
