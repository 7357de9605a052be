"""Rules, steps, predicates, functions and claims of the text as C, from the syntax trees that `native` compiles.

Every size is a number at run time, so that one library serves all scopes. A state is one array of cells: the fields
one after the other, each in row-major order, from its own offset. A rule returns 0 if it fired, the number of the guard
that refuses it, or the negative number of the obligation that does not hold. Names of the text have a prefix in C:
`f_` functions, `v_` parameters and locals, `k_` sizes and constants, `o_` offsets of fields.

A subscript that is out of range is noted (`out_of_range`) and reads the first cell, where Python would count from the
end or raise; so are a splice that is not within its row, rows that are compared beyond their end, and a division by 0.
Ghost fields are cells like all others, after the real ones. What the translator does not know, it refuses; nothing is
skipped.
"""

import ast
from collections.abc import Iterable, Mapping
from itertools import count

from kvproof.spec.c_reader.claims import InC, claims_hold
from kvproof.spec.compilation import Guard, ask_early
from kvproof.spec.language import COLLECTED, Claim, Domain
from kvproof.spec.native import DOMAINS, FIELDS
from kvproof.spec.sizes import Sizes
from kvproof.spec.syntax_trees import Functions, functions, reads_ghosts
from kvproof.spec.text import state as state_text

REAL_FIELDS = {name: field for name, field in FIELDS.items() if field.kind != "ghost"}
GHOST_FIELDS = {name: field for name, field in FIELDS.items() if field.kind == "ghost"}
CELLS = REAL_FIELDS | GHOST_FIELDS  # in the order of the cells
SIZES = [name for name, value in Sizes(1, 1, 1, 1, 1, 1).names().items() if isinstance(value, int)]
CONSTANTS = {k: v for k, v in vars(state_text).items() if isinstance(v, int) and k not in SIZES}
ROWS = ("Row", "list[int]")  # the annotations of parameters that are rows of slots
OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
PRELUDE = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
typedef int16_t cell;
static _Thread_local int out_of_range;
static inline int at(int i, int n) { if (i >= 0 && i < n) return i; out_of_range = 1; return 0; }
static inline int within(int i, int n) { if (i >= 0 && i <= n) return i; out_of_range = 1; return 0; }
static inline int quotient(int a, int b) {
  if (!b) { out_of_range = 1; return 0; }
  int q = a / b;
  return a % b && (a < 0) != (b < 0) ? q - 1 : q;
}
static inline int rest(int a, int b) { return a - b * quotient(a, b); }
static inline int least(int a, int b) { return a < b ? a : b; }
static inline int greatest(int a, int b) { return a > b ? a : b; }
static inline int same(const cell *a, const cell *b, int n) { return n <= 0 || !memcmp(a, b, n * sizeof(cell)); }
"""


class Unreadable(Exception):
    """Raised for a construct that this reader does not translate."""


def size_of(domain: Domain) -> str:
    """The number of ids of a domain, in C."""
    if domain.size is None:
        raise Unreadable(f"the domain {domain.name} has no end")
    return f"k_{domain.size}" if isinstance(domain.size, str) else str(domain.size)


def is_row(parameter: ast.arg) -> bool:
    """Whether a parameter is a row of slots, and not a number."""
    return parameter.annotation is not None and ast.unparse(parameter.annotation) in ROWS


class CTranslator:
    """Translates functions of one text, each as soon as another needs it. `out` has the C of those so far."""

    def __init__(self, text: Functions | None = None) -> None:
        self.text: Functions = functions() if text is None else text
        self.steps = {step.__name__ for step in COLLECTED.steps}
        self.rules = [rule.__name__ for rule in COLLECTED.rules]
        self.claims: list[Claim] = COLLECTED.invariants + COLLECTED.theorems
        self.guards: list[Guard] = []
        self.checks: list[tuple[str, str, str]] = []  # rule or step, property, condition
        self.prototypes: list[str] = []
        self.out: list[str] = []
        self.begun: set[str] = set()
        self._number = count()
        self._states: dict[str, str] = {}  # a name of the state -> where it is read, while a field is replaced
        self._in = ""  # the function that is being translated

    def declarations(self) -> str:
        """Sizes, offsets and constants; a function that sets the sizes; the number of cells."""
        lines = [f"static int {', '.join(f'k_{size}' for size in SIZES)};"]
        lines += [f"#define k_{name} ({value})" for name, value in CONSTANTS.items()]
        lines += [f"static int {', '.join(f'o_{name}' for name in CELLS)}, num_cells;"]
        lines += ["void set_sizes(const int *sizes) {"]
        lines += [f"  k_{size} = sizes[{number}];" for number, size in enumerate(SIZES)]
        lines += ["  num_cells = 0;"]
        for name, field in CELLS.items():
            lines += [f"  o_{name} = num_cells; num_cells += {' * '.join(map(size_of, field.domains))};"]
        return "\n".join([*lines, "}", "int cells(void) { return num_cells; }", ""])

    def require(self, names: Iterable[str]) -> None:
        """Translate these functions, and those that they call."""
        for name in names:
            self._function(name)

    def source(self, more: Iterable[str] = ()) -> str:
        """The rules and claims with all that they need, and functions that call them by number.

        `fire` fires a rule, `broken_claim` asks every claim, and `broken_claim_of_ghosts` those that read a ghost.
        more: further functions of the text.
        """
        self.require(self.rules)
        self.require(claim.name for claim in self.claims)
        self.require(more)
        lines = [f"enum {{ {', '.join(f'r_{rule}' for rule in self.rules)} }};"]
        claims = {claim.name: self.text[claim.name][0] for claim in self.claims}
        of_ghosts = {name: claim for name, claim in claims.items() if reads_ghosts(name, self.text)}
        lines += [claims_hold(claims, InC(self.number, self.loop))]
        lines += [claims_hold(of_ghosts, InC(self.number, self.loop), "_of_ghosts")]
        lines += ["static int fire(cell *v_state, int rule, const int *a, const cell *row) {", "  switch (rule) {"]
        lines += [f"    case {number}: return {self.fired(rule)};" for number, rule in enumerate(self.rules)]
        lines += ["  }", "  return -9999;", "}"]
        return "\n".join([*self.prototypes, *self.out, *lines, ""])

    def fired(self, rule: str) -> str:
        """The call of a rule with the arguments `a` and the row `row`."""
        arguments = ["row" if is_row(p) else f"a[{n}]" for n, p in enumerate(self.parameters(rule))]
        return f"f_{rule}({', '.join(['v_state', *arguments])})"

    def parameters(self, rule: str) -> list[ast.arg]:
        """The parameters of a rule after the state."""
        return self.text[rule][0].args.args[1:]

    # Functions -----------------------------------------------------------------------------------------------------

    def _function(self, name: str) -> None:
        if name in self.begun:
            return
        self.begun.add(name)
        tree = self.text[name][0]
        writes = name in self.rules or name in self.steps
        head = f"static int f_{name}({', '.join(self._parameter(p, writes) for p in tree.args.args) or 'void'})"
        outer, self._in = self._in, name
        locals_: dict[str, None] = {}
        body = "".join(self.statement(s, locals_) for s in tree.body)
        self._in = outer
        declared = f"  int {', '.join(f'v_{one}' for one in locals_)};\n" if locals_ else ""
        self.prototypes.append(head + ";")
        self.out.append(f"{head} {{\n{declared}{body}{'  return 0;' if writes else ''}\n}}")

    def _parameter(self, parameter: ast.arg, writes: bool) -> str:
        if parameter.annotation is not None and ast.unparse(parameter.annotation) == "State":
            return f"{'' if writes else 'const '}cell *v_{parameter.arg}"
        return f"const cell *v_{parameter.arg}" if is_row(parameter) else f"int v_{parameter.arg}"

    def refused(self, node: ast.AST) -> Unreadable:
        """The error for a construct that is not translated."""
        return Unreadable(f"{self._in}, line {getattr(node, 'lineno', '?')}: {ast.unparse(node)}")

    # Statements ----------------------------------------------------------------------------------------------------

    def statement(self, node: ast.stmt, locals_: dict[str, None]) -> str:
        """One statement; its new locals are added to `locals_`."""
        match node:
            case ast.Pass() | ast.Expr(ast.Constant()):
                return ""
            case ast.Return(ast.expr() as value):
                return f"  return {self.number(value)};\n"
            case ast.If():
                inner = "".join(self.statement(s, locals_) for s in node.body)
                other = "".join(self.statement(s, locals_) for s in node.orelse)
                return f"  if ({self.number(node.test)}) {{\n{inner}  }}\n" + (
                    f"  else {{\n{other}  }}\n" * bool(other)
                )
            case ast.Expr(ast.Call(ast.Name("require"), [condition, ast.Constant(sentence), *rest])):
                property = rest[0].value if rest and isinstance(rest[0], ast.Constant) else ""
                self.guards.append(Guard(self._in, str(sentence), str(property)))
                return f"  if (!{self.number(condition)}) return {len(self.guards)};\n"
            case ast.Expr(ast.Call(ast.Name("check"), [condition, ast.Constant(property)])):
                self.checks.append((self._in, str(property), ast.unparse(condition)))
                return f"  if (!{self.number(condition)}) return -{len(self.checks)};\n"
            case ast.Expr(ast.Call(ast.Name(step), arguments)) if step in self.steps:
                self._function(step)
                result = f"failed{next(self._number)}"
                values = ", ".join(self._arguments(step, arguments))
                return f"  {{ int {result} = f_{step}({values}); if ({result}) return {result}; }}\n"
            case ast.AugAssign(target, operator, value):
                return f"  {self.number(target)} {OPERATORS[type(operator)]}= {self.number(value)};\n"
            case ast.Assign([ast.Name(name)], value):
                locals_[name] = None
                return f"  v_{name} = {self.number(value)};\n"
            case ast.Assign([target], value):
                return self._assigned(target, value)
        raise self.refused(node)

    def _assigned(self, target: ast.expr, value: ast.expr) -> str:
        match target, value:
            case ast.Attribute(ast.Name(state)), ast.ListComp(
                each, [ast.comprehension(ast.Name(var), ast.Name(domain))]
            ):
                old, size = f"old{next(self._number)}", size_of(DOMAINS[domain])
                element = ast.Subscript(target, ast.Name(var, ast.Load()), ast.Store())
                place, num = self._place(element)
                self._states[state] = old
                inner = self._stored(place, each, num)
                del self._states[state]
                copy = f"cell {old}[num_cells]; memcpy({old}, v_{state}, sizeof {old});"
                return f"  {{ {copy} for (int v_{var} = 0; v_{var} < {size}; v_{var}++) {{ {inner} }} }}\n"
        place, num = self._place(target)
        return f"  {self._stored(place, value, num)}\n"

    def _place(self, target: ast.expr) -> tuple[str, str]:
        """The address of a cell, row or map of a field, and its number of cells; empty for one cell."""
        indexes: list[ast.expr] = []
        base = target
        while isinstance(base, ast.Subscript):
            indexes.insert(0, base.slice)
            base = base.value
        match base:
            case ast.Attribute(ast.Name(state), field) if field in CELLS:
                domains = CELLS[field].domains
                address = f"{self._states.get(state, f'v_{state}')} + o_{field}"
                for number, index in enumerate(indexes):
                    stride = "".join(f" * {size_of(domain)}" for domain in domains[number + 1 :])
                    address += f" + at({self.number(index)}, {size_of(domains[number])}){stride}"
                return f"({address})", " * ".join(size_of(domain) for domain in domains[len(indexes) :])
            case ast.Name(row):
                address = "".join(f" + at({self.number(index)}, k_BLOCK_SIZE)" for index in indexes)
                return f"(v_{row}{address})", "" if indexes else "k_BLOCK_SIZE"
        raise self.refused(target)

    def _stored(self, place: str, value: ast.expr, num: str) -> str:
        """Store a number, or a row or map of `num` cells."""
        if not num:
            return f"*{place} = {self.number(value)};"
        match value:
            case ast.IfExp():
                yes, no = self._stored(place, value.body, num), self._stored(place, value.orelse, num)
                return f"if ({self.number(value.test)}) {{ {yes} }} else {{ {no} }}"
            case ast.Call(ast.Name("copied"), [source]):
                return f"memmove({place}, {self.row(source)}, ({num}) * sizeof(cell));"
            case ast.Call(ast.Name("put"), [source, index, new]):
                moved = f"memmove({place}, {self.row(source)}, ({num}) * sizeof(cell))"
                return (
                    f"{{ int i = {self.number(index)}, n = {self.number(new)}; {moved}; {place}[at(i, {num})] = n; }}"
                )
            case ast.Call(ast.Name("spliced"), [source, start, stop, new]):
                bounds = f"int a = {self.number(start)}, b = {self.number(stop)}"
                rows = f"cell *t = {place}; const cell *r = {self.row(source)}, *n = {self.row(new)}"
                each = "t[o] = a <= o && o < b ? n[o] : r[o]"
                within = f"if (a < 0 || a > b || b > {num}) out_of_range = 1"
                return f"{{ {bounds}; {rows}; {within}; for (int o = 0; o < {num}; o++) {each}; }}"
        return f"memmove({place}, {self.row(value)}, ({num}) * sizeof(cell));"

    # Expressions ---------------------------------------------------------------------------------------------------

    def row(self, node: ast.expr) -> str:
        """The address of a row."""
        place, num = self._place(node)
        if not num:
            raise self.refused(node)
        return place

    def number(self, node: ast.expr) -> str:
        """A number or truth value."""
        match node:
            case ast.Constant(bool() | int() as value):
                return str(int(value))
            case ast.Name(name):
                return f"k_{name}" if name in CONSTANTS or name in SIZES else f"v_{name}"
            case ast.Subscript():
                place, num = self._place(node)
                if num:
                    raise self.refused(node)
                return f"(*{place})"
            case ast.BinOp(left, ast.FloorDiv(), right):
                return f"quotient({self.number(left)}, {self.number(right)})"
            case ast.BinOp(left, ast.Mod(), right):
                return f"rest({self.number(left)}, {self.number(right)})"
            case ast.BinOp(left, operator, right) if type(operator) in OPERATORS:
                return f"({self.number(left)} {OPERATORS[type(operator)]} {self.number(right)})"
            case ast.UnaryOp(ast.Not(), operand):
                return f"(!{self.number(operand)})"
            case ast.UnaryOp(ast.USub(), operand):
                return f"(-{self.number(operand)})"
            case ast.BoolOp(operator, values):
                sign = " && " if isinstance(operator, ast.And) else " || "
                return f"({sign.join(map(self.number, values))})"
            case ast.Compare(left, operators, others) if all(type(o) in OPERATORS for o in operators):
                pairs = zip([left, *others], operators, others, strict=False)
                return (
                    f"({' && '.join(f'{self.number(a)} {OPERATORS[type(o)]} {self.number(b)}' for a, o, b in pairs)})"
                )
            case ast.IfExp(test, body, orelse):
                return f"({self.number(test)} ? {self.number(body)} : {self.number(orelse)})"
            case ast.Call(ast.Name(name), arguments):
                return self._called(name, arguments, node)
        raise self.refused(node)

    def _called(self, name: str, arguments: list[ast.expr], node: ast.expr) -> str:
        match name, arguments:
            case "implies", [condition, then]:
                return f"(!{self.number(condition)} || {self.number(then)})"
            case "same", [row, other, stop]:
                return f"same({self.row(row)}, {self.row(other)}, within({self.number(stop)}, k_BLOCK_SIZE))"
            case "min" | "max", [left, right]:
                return f"{'least' if name == 'min' else 'greatest'}({self.number(left)}, {self.number(right)})"
            case "abs", [value]:
                return f"abs({self.number(value)})"
            case "all" | "any", [ast.GeneratorExp()]:
                return self._quantified(name == "all", arguments[0])
        if name in self.text and name not in self.steps and name not in self.rules:
            self._function(name)
            return f"f_{name}({', '.join(self._arguments(name, arguments))})"
        raise self.refused(node)

    def _arguments(self, name: str, arguments: list[ast.expr]) -> list[str]:
        found = []
        for parameter, argument in zip(self.text[name][0].args.args, arguments, strict=True):
            if parameter.annotation is not None and ast.unparse(parameter.annotation) == "State":
                assert isinstance(argument, ast.Name)
                found.append(self._states.get(argument.id, f"v_{argument.id}"))
            else:
                found.append(self.row(argument) if is_row(parameter) else self.number(argument))
        return found

    def _quantified(self, is_all: bool, every: ast.expr) -> str:
        """A loop for each domain, left at the first value that decides; see `compilation.ask_early`."""
        assert isinstance(every, ast.GeneratorExp)
        every = ast.parse(ast.unparse(every), mode="eval").body  # a copy: its conditions are moved
        assert isinstance(every, ast.GeneratorExp)
        if is_all:
            ask_early(every)
        result = f"decided{next(self._number)}"
        test = f"{'!' * is_all}{self.number(every.elt)}"
        body = f"if ({test}) {{ {result} = {int(not is_all)}; goto end_{result}; }}"
        for loop in reversed(every.generators):
            body = self.loop(loop, body)
        return f"({{ int {result} = {int(is_all)}; {body} end_{result}:; {result}; }})"

    def loop(self, loop: ast.comprehension, body: str) -> str:
        """A loop over a domain, with its conditions."""
        conditions = loop.ifs
        match loop.target, loop.iter:
            case ast.Name(var), ast.Name(domain):
                head = f"for (int v_{var} = 0; v_{var} < {size_of(DOMAINS[domain])}; v_{var}++)"
            case ast.Name(var), ast.Tuple([value]):
                # Only one value is tried; the first condition says that it is in the domain.
                first = conditions[0]
                assert isinstance(first, ast.Compare)
                assert isinstance(first.comparators[0], ast.Name)
                size = size_of(DOMAINS[first.comparators[0].id])
                number = self.number(value)
                head = f"for (int v_{var} = {number}, once = 0 <= v_{var} && v_{var} < {size}; once; once = 0)"
                conditions = conditions[1:]
            case _:
                raise self.refused(loop.iter)
        tests = "".join(f"if ({self.number(condition)}) " for condition in conditions)
        return f"{head} {tests}{{ {body} }}"


def numbered(values: Mapping[str, int]) -> list[int]:
    """The sizes in the order in which `set_sizes` takes them."""
    return [values[size] for size in SIZES]
