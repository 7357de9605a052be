"""Plain functions on integers, from any module's own source, as terms of their arguments.

The translator reads local names, `if`/`elif`/`else` with returns anywhere, integer arithmetic, comparisons, min, max,
abs, members of enumerations, and calls of functions of the same kind. A `raise` or a failed `assert` gives a demand
that it is not reached. For any other expression (`self.block_size`, `len(token_ids)`) the caller gives a term, by its
source text.

A member of an `IntEnum` is its value. A member of any other enumeration is no number: it equals members of its own
enumeration only, and its place among them represents it in the result. Names mean what they mean in Python: what a
function assigns anywhere is local to it everywhere.
"""

import ast
import enum
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any

from kvproof.models.translation.conditions import Conditions, Demand
from kvproof.models.translation.errors import NotInLanguage
from kvproof.models.translation.expressions import BUILT_IN, Expressions
from kvproof.models.translation.terms import Term, Truth, choice, equal, is_unknown, negation
from kvproof.models.translation.text import Frame, names_bound, parameters_of


@dataclass(frozen=True, eq=False)
class Translated:
    """A function's value as a term, and what must hold for it to be defined: divisors positive, no raise reached."""

    value: Term
    demands: tuple[Demand, ...]


def translate_function(
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any]] | None = None,
) -> Translated:
    """The value of a function for these arguments.

    arguments: a term for each parameter, or for an expression by its source text. functions: what a call means, by the
    text of the callee; plain functions of the same module need not be given. Raises NotInLanguage.
    """
    node, file = _source(function)
    frame = Frame(file, {}, ())
    unknown = [name for name in arguments if name.isidentifier() and name not in parameters_of(node, file)]
    if unknown:
        raise frame.error(node, f"{function.__name__} has no parameter {unknown[0]}", "give terms for its parameters")
    reader = _FunctionExpressions(Conditions(), dict(arguments), dict(functions or {}), _stored(node))
    value = reader.called(function, arguments, ())
    if isinstance(value, Member):
        value = value.place
    if isinstance(value, _Nothing) or (not is_unknown(value) and not isinstance(value, int)):
        raise frame.error(node, f"{function.__name__} gives no number", "return a number on every way")
    return Translated(value, tuple(reader.conditions.demands))


def translate_expression(function: Callable[..., Any], node: ast.expr, arguments: Mapping[str, Any]) -> Translated:
    """The value of one expression that stands in a function. arguments: as above, for locals too."""
    reader = _FunctionExpressions(Conditions(), dict(arguments), {})
    file = inspect.getsourcefile(function) or "?"
    frame = Frame(file, {**_names_outside(function), **arguments}, (function.__name__,))
    return Translated(reader.term(node, frame), tuple(reader.conditions.demands))


def source_of(function: Callable[..., Any]) -> ast.FunctionDef:
    """The syntax tree of a function, its lines numbered as in its file."""
    return _source(function)[0]


def ordinal(member: enum.Enum) -> int:
    """The number that represents a member of an enumeration: its place among the members, from 0."""
    return list(type(member)).index(member)


@dataclass(frozen=True, eq=False)
class Member:
    """A member of an enumeration that is no `IntEnum`, known or not. place: its place among the members."""

    enumeration: type[enum.Enum]
    place: Term


class _Nothing:
    """The value of a path that ends in a raise."""


NOTHING = _Nothing()

COMPARED = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")


class _FunctionExpressions(Expressions):
    """stored: the names that the function assigns, so that an expression with one has no one value."""

    def __init__(
        self,
        conditions: Conditions,
        given: dict[str, Any],
        functions: dict[str, Callable[..., Any]],
        stored: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(conditions)
        self.given, self.functions, self.stored = given, functions, stored

    def called(self, function: Callable[..., Any], arguments: Mapping[str, Any], chain: tuple[str, ...]) -> Any:
        node, file = _source(function)
        parameters = parameters_of(node, file)
        defaults = {
            name: one.default
            for name, one in inspect.signature(function).parameters.items()
            if one.default is not inspect.Parameter.empty
        }
        names = {
            **_names_outside(function),
            **defaults,
            **{name: arguments[name] for name in parameters if name in arguments},
        }
        frame = Frame(file, names, (*chain, function.__name__))
        if function.__name__ in chain:
            raise frame.error(node, f"{function.__name__} calls itself", "write it without recursion")
        return self._result(node.body, frame)

    # Statements

    def _result(self, body: list[ast.stmt], frame: Frame) -> Any:
        """The value that the statements return. What follows an `if` is read on each side that does not return."""
        for place, node in enumerate(body):
            rest = body[place + 1 :]
            match node:
                case ast.Return(value=None):
                    return None
                case ast.Return(value=ast.expr() as result):
                    return self.value(result, frame)
                case ast.Raise():
                    text = ast.unparse(node).splitlines()[0]
                    self.conditions.demand(False, f"not reached: {text}", frame.chain, frame.place(node))
                    return NOTHING
                case ast.If():
                    return self._either_way(node, rest, frame)
                case ast.Assert():
                    text = ast.unparse(node)
                    self.conditions.demand(self.truth(node.test, frame), text, frame.chain, frame.place(node))
                case ast.Assign(targets=[ast.Name(id=name)]):
                    frame = frame.named(**{name: self.value(node.value, frame)})
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    frame = frame.named(**{name: self.value(value, frame)})
                case ast.AugAssign(target=ast.Name(id=name)):
                    left = ast.copy_location(ast.Name(name, ast.Load()), node)
                    whole = ast.copy_location(ast.BinOp(left, node.op, node.value), node)
                    frame = frame.named(**{name: self.value(whole, frame)})
                case ast.Expr(value=ast.Constant()) | ast.Pass():
                    pass
                case ast.Expr(value=ast.Call() as call):
                    self.value(call, frame)
                case _:
                    kind = type(node).__name__
                    raise frame.error(node, f"{kind} is not in the language", "write assignments, if and return")
        return None

    def _either_way(self, node: ast.If, rest: list[ast.stmt], frame: Frame) -> Any:
        condition = self.truth(node.test, frame)
        if isinstance(condition, bool):
            return self._result([*(node.body if condition else node.orelse), *rest], frame)
        with self.conditions.under(condition):
            yes = self._result([*node.body, *rest], frame)
        with self.conditions.under(negation(condition)):
            no = self._result([*node.orelse, *rest], frame)
        return self._merged(condition, yes, no, node, frame)

    def _merged(self, condition: Truth, yes: Any, no: Any, node: ast.stmt | ast.expr, frame: Frame) -> Any:
        """The value `yes` if the condition holds, else `no`. A side that always raises has a demand, and no value."""
        if isinstance(yes, _Nothing) or isinstance(no, _Nothing):
            return no if isinstance(yes, _Nothing) else yes
        if yes is None and no is None:
            return None
        if isinstance(yes, Member) and isinstance(no, Member) and yes.enumeration is no.enumeration:
            return Member(yes.enumeration, choice(condition, yes.place, no.place))
        if not (_is_number(yes) and _is_number(no)):
            what = "one side gives a number and the other does not, or both give something else"
            raise frame.error(node, what, "give numbers, or members of one enumeration, on both sides")
        return choice(condition, yes, no)

    # Expressions

    def value(self, node: ast.expr, frame: Frame) -> Any:
        """The value of an expression; an expression that was given a term by its source text is that term."""
        if not isinstance(node, (ast.Name, ast.Constant)) and len(frame.chain) == 1:
            text = ast.unparse(node)
            if text in self.given:
                self._require_unchanged(node, frame)
                return self.given[text]
        found = super().value(node, frame)
        return self._member(found, node, frame) if isinstance(found, enum.Enum) else found

    def _require_unchanged(self, node: ast.expr, frame: Frame) -> None:
        """Refuse an expression with one given term if the function assigns a name that it reads."""
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id in self.stored:
                what = f"{ast.unparse(node)} is given one term, and the function assigns {part.id}"
                raise frame.error(node, what, "assign another name in the function")

    def _member(self, found: enum.Enum, node: ast.expr, frame: Frame) -> Member | int:
        """A member of an enumeration: a number if it is one in Python. Raises NotInLanguage if it compares oddly."""
        kind = type(found)
        base = int if isinstance(found, int) else object
        if any(getattr(kind, name) is not getattr(base, name) for name in COMPARED):
            what = f"members of {kind.__name__} compare in their own way"
            raise frame.error(node, what, "use an Enum or IntEnum without comparisons of its own")
        return int(found) if isinstance(found, int) else Member(kind, ordinal(found))

    def _choice(self, node: ast.IfExp, frame: Frame) -> Any:
        condition = self.truth(node.test, frame)
        if isinstance(condition, bool):
            return self.value(node.body if condition else node.orelse, frame)
        yes = self.assuming(condition, node.body, frame)
        return self._merged(condition, yes, self.assuming(negation(condition), node.orelse, frame), node, frame)

    def other(self, node: ast.expr, frame: Frame) -> Any:
        """Texts, None, members of enumerations, and calls of dotted names."""
        match node:
            case ast.Constant(value=str() | None):
                return node.value
            case ast.JoinedStr():
                return ast.unparse(node)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                owner = frame.names.get(name)
                if isinstance(owner, type) and issubclass(owner, enum.Enum) and attribute in owner.__members__:
                    return owner[attribute]
            case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot() as operator], comparators=[right]):
                return self._is_none(node, left, right, isinstance(operator, ast.Is), frame)
            case ast.Call():
                return self.call(ast.unparse(node.func), node, frame)
        raise self._meaningless(node, frame)

    def _meaningless(self, node: ast.expr, frame: Frame) -> NotInLanguage:
        text = ast.unparse(node)
        return frame.error(node, f"{text} has no value here", f"give it a term: arguments={{{text!r}: …}}")

    def _compared(self, node: ast.Compare, operator: ast.cmpop, one: ast.expr, other: ast.expr, frame: Frame) -> Any:
        if isinstance(operator, (ast.Is, ast.IsNot)):
            return self._is_none(node, one, other, isinstance(operator, ast.Is), frame)
        return super()._compared(node, operator, one, other, frame)

    def _are_equal(self, one: ast.expr, other: ast.expr, frame: Frame) -> Truth:
        left, right = self.value(one, frame), self.value(other, frame)
        if isinstance(left, Member) and isinstance(right, Member):
            return left.enumeration is right.enumeration and equal(left.place, right.place)
        return equal(self.as_term(left, one, frame), self.as_term(right, other, frame))

    def as_term(self, found: Any, node: ast.expr, frame: Frame) -> Term:
        """The value as a number or truth value. Raises NotInLanguage; also for a member of an enumeration."""
        if isinstance(found, Member):
            raise frame.error(node, f"a member of {found.enumeration.__name__} is no number", "compare it by == or !=")
        return super().as_term(found, node, frame)

    def _is_none(self, node: ast.Compare, one: ast.expr, other: ast.expr, is_wanted: bool, frame: Frame) -> bool:
        if not (isinstance(other, ast.Constant) and other.value is None):
            raise frame.error(node, "`is` of something else than None", "write ==")
        return (self.value(one, frame) is None) is is_wanted

    def call(self, name: str, node: ast.Call, frame: Frame) -> Any:
        """Read a function at its call, if it is given or in the same module."""
        held = frame.names.get(name)
        function = held if name in frame.names and not callable(held) else self.functions.get(name, held)
        if not isinstance(function, (FunctionType, MethodType)):
            if name in BUILT_IN and name not in frame.names:
                return super().call(name, node, frame)
            raise self._meaningless(node, frame)
        keywords = {one.arg: self.value(one.value, frame) for one in node.keywords if one.arg is not None}
        if len(keywords) < len(node.keywords):
            raise frame.error(node, "arguments given as **", "name each argument")
        try:
            values = inspect.signature(function).bind(*(self.value(one, frame) for one in node.args), **keywords)
        except TypeError as error:
            raise frame.error(node, f"{name} cannot be called so: {error}", "give each argument once") from None
        return self.called(function, values.arguments, frame.chain)


def _is_number(value: Any) -> bool:
    return is_unknown(value) or isinstance(value, int)


def _stored(function: ast.FunctionDef) -> frozenset[str]:
    """The names to which the statements of a function give a value."""
    return frozenset(name for node, name in names_bound(function) if isinstance(node, ast.Name))


def _source(function: Callable[..., Any]) -> tuple[ast.FunctionDef, str]:
    """The syntax tree of a function, its lines numbered as in its file."""
    if hasattr(function, "__wrapped__"):
        inner = inspect.unwrap(function)  # a decorator need not give a function
        file = inspect.getsourcefile(inner) or "?"
        place = ast.Pass(lineno=inner.__code__.co_firstlineno, col_offset=0)
        raise Frame(file, {}, ()).error(place, "a decorator changes this function", "prove the function without it")
    lines, first = inspect.getsourcelines(function)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    ast.increment_lineno(tree, first - 1)
    node = tree.body[0]
    if not isinstance(node, ast.FunctionDef):
        file = inspect.getsourcefile(function) or "?"
        raise Frame(file, {}, ()).error(node, "this is no function with a name", "write it with def")
    return node, inspect.getsourcefile(function) or "?"


def _names_outside(function: Callable[..., Any]) -> dict[str, Any]:
    """What names mean in a function that are not its own: those of the functions around it, and of its module."""
    plain = function.__func__ if isinstance(function, MethodType) else function
    if not isinstance(plain, FunctionType):
        return {}
    code = plain.__code__
    around = zip(code.co_freevars, plain.__closure__ or (), strict=True)
    found = {**plain.__globals__, **{name: cell.cell_contents for name, cell in around}}
    own = {*code.co_varnames, *code.co_cellvars}
    return {name: value for name, value in found.items() if name not in own}
