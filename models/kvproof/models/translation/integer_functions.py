"""Plain functions on integers, from any module's own source, as terms of their arguments.

The translator reads local names, `if`/`elif`/`else` with returns anywhere, integer arithmetic, comparisons, min, max,
abs, members of enumerations (as their place among the members), and calls of functions of the same kind. A `raise` or a
failed `assert` gives a demand that it is not reached. For any other expression (`self.block_size`, `len(token_ids)`)
the caller gives a term, by its source text.
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
from kvproof.models.translation.maps import Map
from kvproof.models.translation.terms import Term, choice, is_unknown, negation
from kvproof.models.translation.text import Frame, parameters_of


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
    reader = _FunctionExpressions(Conditions(), dict(arguments), dict(functions or {}))
    value = reader.called(function, arguments, ())
    if isinstance(value, _Nothing) or (not is_unknown(value) and not isinstance(value, int)):
        node, file = _source(function)
        raise Frame(file, {}, ()).error(node, f"{function.__name__} gives no number", "return a number on every way")
    return Translated(value, tuple(reader.conditions.demands))


def translate_expression(function: Callable[..., Any], node: ast.expr, arguments: Mapping[str, Any]) -> Translated:
    """The value of one expression that stands in a function. arguments: as above, for locals too."""
    reader = _FunctionExpressions(Conditions(), dict(arguments), {})
    file = inspect.getsourcefile(function) or "?"
    frame = Frame(file, {**_globals_of(function), **arguments}, (function.__name__,))
    return Translated(reader.term(node, frame), tuple(reader.conditions.demands))


def source_of(function: Callable[..., Any]) -> ast.FunctionDef:
    """The syntax tree of a function, its lines numbered as in its file."""
    return _source(function)[0]


def ordinal(member: enum.Enum) -> int:
    """The number that represents a member of an enumeration: its place among the members, from 0."""
    return list(type(member)).index(member)


class _Nothing:
    """The value of a path that ends in a raise."""


NOTHING = _Nothing()


class _FunctionExpressions(Expressions):
    def __init__(self, conditions: Conditions, given: dict[str, Any], functions: dict[str, Callable[..., Any]]) -> None:
        super().__init__(conditions)
        self.given, self.functions = given, functions

    def called(self, function: Callable[..., Any], arguments: Mapping[str, Any], chain: tuple[str, ...]) -> Any:
        node, file = _source(function)
        parameters = parameters_of(node, file)
        defaults = {
            name: one.default
            for name, one in inspect.signature(function).parameters.items()
            if one.default is not inspect.Parameter.empty
        }
        plain = function.__func__ if isinstance(function, MethodType) else function
        names = {
            **_globals_of(plain),
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
        if isinstance(yes, _Nothing) or isinstance(no, _Nothing):
            return no if isinstance(yes, _Nothing) else yes
        if yes is None and no is None:
            return None
        if yes is None or no is None or isinstance(yes, Map) or isinstance(no, Map):
            raise frame.error(node, "one side gives a number and the other does not", "return a number on both")
        return choice(condition, yes, no)

    # Expressions

    def value(self, node: ast.expr, frame: Frame) -> Any:
        """The value of an expression; an expression that was given a term by its source text is that term."""
        if not isinstance(node, (ast.Name, ast.Constant)) and len(frame.chain) == 1:
            text = ast.unparse(node)
            if text in self.given:
                return self.given[text]
        found = super().value(node, frame)
        return ordinal(found) if isinstance(found, enum.Enum) else found

    def other(self, node: ast.expr, frame: Frame) -> Any:
        """Texts, None, members of enumerations, and calls of dotted names."""
        match node:
            case ast.Constant(value=str() | None):
                return node.value
            case ast.JoinedStr():
                return ast.unparse(node)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                owner = frame.names.get(name)
                if isinstance(owner, type) and issubclass(owner, enum.Enum):
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

    def _is_none(self, node: ast.Compare, one: ast.expr, other: ast.expr, is_wanted: bool, frame: Frame) -> bool:
        if not (isinstance(other, ast.Constant) and other.value is None):
            raise frame.error(node, "`is` of something else than None", "write ==")
        return (self.value(one, frame) is None) is is_wanted

    def call(self, name: str, node: ast.Call, frame: Frame) -> Any:
        """Read a function at its call, if it is given or in the same module."""
        function = self.functions.get(name, frame.names.get(name))
        if not isinstance(function, (FunctionType, MethodType)):
            if name in BUILT_IN:
                return super().call(name, node, frame)
            raise self._meaningless(node, frame)
        parameters = list(inspect.signature(function).parameters)
        values = {key: self.value(one, frame) for key, one in zip(parameters, node.args, strict=False)}
        values |= {str(keyword.arg): self.value(keyword.value, frame) for keyword in node.keywords}
        return self.called(function, values, frame.chain)


def _source(function: Callable[..., Any]) -> tuple[ast.FunctionDef, str]:
    """The syntax tree of a function, its lines numbered as in its file."""
    if hasattr(function, "__wrapped__"):
        file = inspect.getsourcefile(function) or "?"
        place = ast.Pass(lineno=function.__code__.co_firstlineno, col_offset=0)
        raise Frame(file, {}, ()).error(place, "a decorator changes this function", "prove the function without it")
    lines, first = inspect.getsourcelines(function)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    ast.increment_lineno(tree, first - 1)
    node = tree.body[0]
    if not isinstance(node, ast.FunctionDef):
        file = inspect.getsourcefile(function) or "?"
        raise Frame(file, {}, ()).error(node, "this is no function with a name", "write it with def")
    return node, inspect.getsourcefile(function) or "?"


def _globals_of(function: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = getattr(function, "__globals__", {})
    return found
