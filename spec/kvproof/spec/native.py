"""The specification run natively: its own text, compiled for given sizes.

The text of the rules, predicates, functions and claims is parsed once. Three things are rewritten: a guard returns
a `Guard` (so a rule gives None when it was enabled), an obligation raises `CheckFailed`, and operations on rows become
list operations. Line numbers are kept, so a debugger steps through the text itself. What only ghost fields need may be
left out: their updates, locals that nothing else reads, branches that became empty. The sizes are globals of the
compiled functions, so a machine of other sizes costs microseconds.

The judges run machines of large pools after every call, so what a rule does must not cost more in a larger pool. A new
value for each block that a sequence holds is written by its table (without checks, as in a judge), and where no flight
is a transfer, the questions whether one fills a block are answered when the text is compiled.
"""

import ast
import functools
import inspect
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from types import CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any, ClassVar, Generic, TypeVar

from kvproof.spec.language import Domain, Field
from kvproof.spec.systems import BLOCK_MANAGERS, System
from kvproof.spec.text import flight_rules
from kvproof.spec.text.state import State
from kvproof.spec.texts import RULE_TEXTS

FIELDS = BLOCK_MANAGERS.fields
DOMAINS = BLOCK_MANAGERS.domains
AnyState = TypeVar("AnyState")


class SizesOf(Generic[AnyState]):
    """The sizes of a machine of one specification."""

    system: ClassVar[System]
    has_transfers: bool

    def numbers(self) -> dict[str, int]:
        """The sizes under the names that the text uses."""
        raise NotImplementedError

    def names(self) -> dict[str, Any]:
        """The sizes and domains under the names that the text uses."""
        numbers: dict[str, Any] = dict(self.numbers())
        domains = self.system.domains.items()
        return numbers | {name: range(_size(d, numbers)) for name, d in domains if d.size is not None}

    @property
    def longest(self) -> int:
        """A number above all places of a table or enumeration that rules have used."""
        raise NotImplementedError

    @property
    def unwritten(self) -> frozenset[str]:
        """Fields that no rule writes in a machine of these sizes, so that copies of a state may share them."""
        return frozenset()

    @property
    def left_out(self) -> tuple[str, ...]:
        """Rules that a machine of these sizes does not have."""
        return ()


@dataclass(frozen=True)
class Sizes(SizesOf[State]):
    """The sizes of a machine: blocks of each pool, slots of a block, and limits of sequences, entries and flights."""

    num_gpu_blocks: int
    num_host_blocks: int
    block_size: int
    num_seqs: int
    num_indexes: int
    num_flights: int = 0
    has_transfers: bool = True  # whether a flight may fill a block; if not, no rule begins such a flight

    system = BLOCK_MANAGERS

    def numbers(self) -> dict[str, int]:
        """The sizes under the names that the text uses."""
        num_blocks = self.num_gpu_blocks + self.num_host_blocks
        return {
            "NUM_GPU_BLOCKS": self.num_gpu_blocks,
            "NUM_BLOCKS": num_blocks,
            "NULL": num_blocks,
            "NUM_ENTRIES": num_blocks + 1,
            "NUM_SEQS": self.num_seqs,
            "NUM_INDEXES": self.num_indexes,
            "NUM_FLIGHTS": self.num_flights,
            "NUM_RANKS": max(num_blocks, self.num_seqs, self.num_flights) + 1,
            "NUM_STEPS": self.num_seqs * self.num_indexes + 1,
            "BLOCK_SIZE": self.block_size,
        }

    @property
    def longest(self) -> int:
        """One more than the entries of a table."""
        return self.num_indexes + 1

    @property
    def unwritten(self) -> frozenset[str]:
        """Without flights, the fields that only flights change."""
        return frozenset() if self.num_flights > 0 else _flight_fields()

    @property
    def left_out(self) -> tuple[str, ...]:
        """Without transfers, their rules."""
        return () if self.has_transfers else OF_TRANSFERS


def _size(domain: Domain, numbers: dict[str, Any]) -> int:
    assert domain.size is not None
    return int(numbers[domain.size]) if isinstance(domain.size, str) else domain.size


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


Rule = Callable[..., Guard | None]
Functions = Mapping[str, tuple[ast.FunctionDef, str]]  # by name, each with the file it stands in


# Reading the text --------------------------------------------------------------------------------------------------


def called(statement: ast.stmt) -> str | None:
    """The name that a statement of the form `f(…)` calls."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        return function.id if isinstance(function, ast.Name) else None
    return None


def target_of(statement: ast.stmt) -> tuple[str | None, bool]:
    """The field or local that a statement assigns, and whether it is a field."""
    if isinstance(statement, ast.AugAssign):
        target: ast.expr = statement.target
    elif isinstance(statement, ast.Assign):
        target = statement.targets[0]
    else:
        return None, False
    while isinstance(target, ast.Subscript):
        target = target.value
    if isinstance(target, ast.Attribute):
        return target.attr, True
    return (target.id, False) if isinstance(target, ast.Name) else (None, False)


@functools.cache
def functions(system: System = BLOCK_MANAGERS) -> dict[str, tuple[ast.FunctionDef, str]]:
    """Every function of the text by name, with its file. The contracts are not included."""
    return functions_of(system.texts)


@functools.cache
def contract_functions(system: System = BLOCK_MANAGERS) -> dict[str, tuple[ast.FunctionDef, str]]:
    """Every function of the contracts by name, with its file. The contracts are imported by the first call."""
    return functions_of(system.contract_texts())


def functions_of(texts: Iterable[ModuleType]) -> dict[str, tuple[ast.FunctionDef, str]]:
    """Every function of these modules by name, with its file."""
    found = {}
    for text in texts:
        file = inspect.getsourcefile(text) or text.__name__
        for node in _parsed(text).body:
            if isinstance(node, ast.FunctionDef):
                found[node.name] = (node, file)
    return found


@functools.cache
def _parsed(text: ModuleType) -> ast.Module:
    """The syntax tree of a module; who changes a part of it makes a copy first."""
    return ast.parse(inspect.getsource(text))


# Leaving the ghosts out --------------------------------------------------------------------------------------------


def without_ghosts(function: ast.FunctionDef, ghosts: frozenset[str]) -> ast.FunctionDef:
    """The function without the statements that only ghost fields need."""
    function, num_nodes = _copied(function), 0
    while len(nodes := list(ast.walk(function))) != num_nodes:  # leaving out a statement may leave a local unused
        num_nodes = len(nodes)
        live = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        function.body = list(_kept(function.body, live, ghosts)) or [ast.Pass()]
    return function


def _copied(function: ast.FunctionDef) -> ast.FunctionDef:
    """A copy of the whole tree, several times as fast as by `copy.deepcopy`: every process compiles the text."""
    copied: ast.FunctionDef = pickle.loads(pickle.dumps(function))
    return copied


def _kept(body: list[ast.stmt], live: set[str], ghosts: frozenset[str]) -> Iterable[ast.stmt]:
    for statement in body:
        name, is_field = target_of(statement)
        if isinstance(statement, ast.If):
            statement.body = list(_kept(statement.body, live, ghosts))
            statement.orelse = list(_kept(statement.orelse, live, ghosts))
            if not statement.body and not statement.orelse:
                continue
            statement.body = statement.body or [ast.Pass()]
        elif (name in ghosts) if is_field else (name is not None and name not in live):
            continue
        elif called(statement) == "check" and fields_in(statement, ghosts):
            continue
        yield statement


def fields_in(node: ast.AST, fields: Set[str]) -> set[str]:
    """Those of the fields that an expression or statement reads or writes."""
    return {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)} & fields


# Compiling ---------------------------------------------------------------------------------------------------------


ROW_OPERATIONS = frozenset({"copied", "same", "spliced", "put"})


class _Runnable(ast.NodeTransformer):
    """Rewrites guards to returns, obligations to exceptions, and operations on rows to list operations."""

    def __init__(self, rule: str, with_checks: bool, has_transfers: bool, constants: dict[str, Any]) -> None:
        self.rule, self.with_checks, self.has_transfers, self.constants = rule, with_checks, has_transfers, constants

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        name = called(node)
        text = ast.unparse(node.value.args[0]) if name in ("require", "check") else ""  # type: ignore[attr-defined]
        self.generic_visit(node)
        if name == "require":
            condition, sentence, *property = node.value.args  # type: ignore[attr-defined]
            guard = Guard(self.rule, sentence.value, property[0].value if property else "")
            return self.unless(condition, ast.Return(self.constant("GUARD", guard)), node)
        if name == "check":
            if not self.with_checks:
                return ast.copy_location(ast.Pass(), node)
            condition, property = node.value.args  # type: ignore[attr-defined]
            failed = CheckFailed(self.rule, property.value, text)
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
    constants: dict[str, Any] = {}
    has_ghosts = fields_in(function, ghosts_left_out)
    function = without_ghosts(function, ghosts_left_out) if has_ghosts else _copied(function)
    function = _Runnable(function.name, with_checks, has_transfers, constants).visit(function)
    if not with_checks:
        function = without_ghosts(function, frozenset())
    function.decorator_list, function.returns = [], None
    function.args.defaults, function.args.kw_defaults = [], [None for _ in function.args.kwonlyargs]
    for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
        argument.annotation = None
    module = compile(ast.fix_missing_locations(ast.Module([function], [])), file, "exec")
    return next(one for one in module.co_consts if isinstance(one, CodeType)), constants


NUM_SIZES_KEPT_MAX = 256  # of a walk, whose worlds have thousands; one takes 30 KB, and 0.2 ms to make again


@functools.lru_cache(maxsize=NUM_SIZES_KEPT_MAX)
def _namespace(sizes: SizesOf[Any], with_ghosts: bool, with_checks: bool) -> dict[str, Any]:
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
    function: Callable[..., Any] = _namespace(Sizes(0, 0, block_size, 0, 0, has_transfers=False), False, False)[name]
    return function


def _names(sizes: SizesOf[Any], text: Functions, with_ghosts: bool, with_checks: bool) -> dict[str, Any]:
    names: dict[str, Any] = {**sizes.system.constants, **sizes.names()}
    left_out = frozenset[str]() if with_ghosts else sizes.system.ghosts
    _define(text, names, left_out, with_checks, sizes.has_transfers)
    return names


def _define(
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


# States and machines -----------------------------------------------------------------------------------------------


def _depth(f: Field) -> int:
    """The levels of lists that a copy of the field must copy. Rows of slots are never changed in place."""
    return len(f.domains) - (f.domains[-1].name == "Slot")


def _kept_fields(system: System, with_ghosts: bool) -> dict[str, Field]:
    return {name: f for name, f in system.fields.items() if with_ghosts or f.kind != "ghost"}


def _written(*texts: ModuleType) -> set[str]:
    nodes = (node for text in texts for node in ast.walk(_parsed(text)))
    return {
        name
        for node in nodes
        if isinstance(node, ast.stmt)
        for name, is_field in [target_of(node)]
        if is_field and name
    }


OF_TRANSFERS = ("send_entry", "arrive")
SPARSE_MIN = 16_384  # blocks from which on the row of a sequence is sparse; worlds that are drawn have fewer


@functools.cache
def _flight_fields() -> frozenset[str]:
    """The fields that only rules of operations in flight write."""
    return frozenset(_written(flight_rules) - _written(*(text for text in RULE_TEXTS if text is not flight_rules)))


@functools.cache
def _copier(system: System, with_ghosts: bool, unwritten: frozenset[str]) -> Callable[[Any], Any]:
    """The function that copies a state. The copies share the fields that no rule writes."""
    lines = ["def copy_state(old):", "    new = State.__new__(State)"]
    for name, f in _kept_fields(system, with_ghosts).items():
        match 0 if name in unwritten else _depth(f):
            case 0:
                value = f"old.{name}"
            case 1:
                value = f"old.{name}[:]"
            case 2:
                value = f"[a[:] for a in old.{name}]"
            case _:
                value = f"[[b[:] for b in a] for a in old.{name}]"
        lines.append(f"    new.{name} = {value}")
    names: dict[str, Any] = {"State": system.state}
    exec("\n".join([*lines, "    return new"]), names)
    copier: Callable[[Any], Any] = names["copy_state"]
    return copier


@functools.cache
def _maker(system: System, with_ghosts: bool) -> CodeType:
    """The code of the function that makes a first state. It finds the sizes among its globals."""
    lines = ["def first_state(State, row_of_blocks):", "    new = State.__new__(State)"]
    lines += [f"    new.{name} = {_first_value(f)}" for name, f in _kept_fields(system, with_ghosts).items()]
    module = compile("\n".join([*lines, "    return new"]), "<first state>", "exec")
    return next(one for one in module.co_consts if isinstance(one, CodeType))


def _first_value(f: Field) -> str:
    """The first value of a field, as an expression. Rows that a copy of a state shares are shared here too."""
    ids = [domain.name.lower() for domain in f.domains]
    if callable(f.start):
        value, depth = f"{f.start.__name__}({', '.join(f.start_arguments(ids))})", len(ids) + 1
    else:
        value, depth = repr(f.start), _depth(f)
    for place in reversed(range(len(ids))):
        size = f.domains[place].size
        if place + 1 < depth:
            value = f"[{value} for {ids[place]} in range({size})]"
        elif place == depth - 1 > 0 and ids[place] == "block":
            value = f"row_of_blocks({value}, {size})"
        else:
            value = f"[{value}] * {size}"
    return value


def row_of_blocks(start: Any, num_blocks: int) -> Any:
    """The row of a sequence that has a cell for each block, in the first state."""
    return SparseRow(start) if num_blocks >= SPARSE_MIN else [start] * num_blocks


class _Functions(dict[str, Callable[..., Any]]):
    """The functions of a machine by their names; those of the contracts are compiled when the first is asked for."""

    def __init__(self, system: System, names: dict[str, Any], with_ghosts: bool, with_checks: bool) -> None:
        super().__init__()
        self.system, self.names, self.with_ghosts, self.with_checks = system, names, with_ghosts, with_checks

    def __missing__(self, name: str) -> Callable[..., Any]:
        names = self.names
        if name not in names:
            missing = {one: found for one, found in contract_functions(self.system).items() if one not in names}
            left_out = frozenset[str]() if self.with_ghosts else self.system.ghosts
            _define(missing, names, left_out, self.with_checks)
        function: Callable[..., Any] = names[name]
        self[name] = function
        return function


class MachineOf(Generic[AnyState]):
    """A specification for given sizes: its rules, predicates, functions and claims, and its first state.

    with_ghosts: keep the fields that only proofs and the invariants about enumerations need.
    with_checks: evaluate the obligations, and raise `CheckFailed` when one does not hold.
    text: other functions than those of the specification, such as a rule with a fault in it, or only some of them.
    """

    def __init__(
        self,
        sizes: SizesOf[AnyState],
        with_ghosts: bool = True,
        with_checks: bool = True,
        text: Functions | None = None,
    ) -> None:
        if text is None:
            names = _namespace(sizes, with_ghosts, with_checks)
        else:
            names = _names(sizes, text, with_ghosts, with_checks)
        self.sizes, self.system = sizes, sizes.system
        self.with_ghosts, self.with_checks = with_ghosts, with_checks
        self.names, left_out = names, sizes.left_out
        self.rules: dict[str, Rule] = {
            name: names[name]
            for name in (rule.__name__ for rule in self.system.collected.rules)
            if name in names and name not in left_out
        }
        self._make = FunctionType(_maker(self.system, with_ghosts), names)
        self.copy: Callable[[AnyState], AnyState] = _copier(self.system, with_ghosts, sizes.unwritten)
        # A function of the text, by its name. Searches ask for one in every state, so this is one look-up.
        self.function: Callable[[str], Callable[..., Any]] = _Functions(
            self.system, names, with_ghosts, with_checks
        ).__getitem__

    def value(self, name: str, values: Mapping[str, Any]) -> Any:
        """The value of a function, given those of the values that its parameters name."""
        found = self.function(name)
        return found(*(values[one] for one in inspect.signature(found).parameters))

    def first_state(self) -> AnyState:
        """The state in which nothing has happened."""
        made: AnyState = self._make(self.system.state, row_of_blocks)
        return made

    def broken_claims(self, state: AnyState) -> list[str]:
        """The names of the invariants and theorems that the state does not satisfy."""
        claims = self.system.collected.invariants + self.system.collected.theorems
        return [claim.name for claim in claims if not self.names[claim.name](state)]


class Machine(MachineOf[State]):
    """The specification of block managers for given sizes."""

    sizes: Sizes

    def __init__(
        self, sizes: Sizes, with_ghosts: bool = True, with_checks: bool = True, text: Functions | None = None
    ) -> None:
        super().__init__(sizes, with_ghosts, with_checks, text)
        self.null: int = self.names["NULL"]


class SparseRow(dict[int, Any]):
    """A long row of which only the values that differ from `start` are stored.

    A live server has hundreds of sequences and a million blocks, and a row of a sequence has a cell for each block.
    """

    def __init__(self, start: Any, values: Mapping[int, Any] = MappingProxyType({})) -> None:
        super().__init__(values)
        self.start = start

    def __getitem__(self, at: Any) -> Any:
        """The value of a cell, or a copy of the row for `[:]`."""
        return SparseRow(self.start, self) if at.__class__ is slice else self.get(at, self.start)

    def __setitem__(self, at: int, value: Any) -> None:
        if value == self.start:
            self.pop(at, None)
        else:
            super().__setitem__(at, value)
