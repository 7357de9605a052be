"""Expressions that every text may use: numbers, truth values, comparisons, choices and calls."""

import ast
from collections.abc import Callable
from typing import Any

from kvproof.models.translation.conditions import Conditions
from kvproof.models.translation.errors import NotInLanguage
from kvproof.models.translation.maps import Value, chosen, is_value, shape
from kvproof.models.translation.terms import (
    COMPARISONS,
    Number,
    Term,
    Truth,
    conjunction,
    disjunction,
    equal,
    greatest,
    is_truth,
    is_unknown,
    least,
    negation,
    number,
    quotient,
    remainder,
)
from kvproof.models.translation.text import Frame

ARITHMETIC: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: lambda one, other: one + other,
    ast.Sub: lambda one, other: one - other,
    ast.Mult: lambda one, other: one * other,
    ast.FloorDiv: quotient,
    ast.Mod: remainder,
}

BUILT_IN = ("min", "max", "abs")


class Expressions:
    """Reads expressions into terms. A subclass reads the further constructs of its kind of text."""

    def __init__(self, conditions: Conditions) -> None:
        self.conditions = conditions

    def value(self, node: ast.expr, frame: Frame) -> Any:
        """The value of the expression: a term, a map, a state, or anything else that a name can mean."""
        match node:
            case ast.Constant(value=bool() | int()):
                return node.value
            case ast.Name(id=name):
                if name not in frame.names:
                    raise self.without_value(name, node, frame)
                return frame.names[name]
            case ast.UnaryOp(op=ast.Not()):
                return negation(self.truth(node.operand, frame))
            case ast.UnaryOp(op=ast.USub()):
                return -self.number(node.operand, frame)
            case ast.UnaryOp(op=ast.UAdd()):
                return self.number(node.operand, frame)
            case ast.BinOp():
                return self._arithmetic(node, frame)
            case ast.BoolOp():
                return self._connective(node, frame)
            case ast.Compare():
                return self._comparison(node, frame)
            case ast.IfExp():
                return self._choice(node, frame)
            case ast.Call(func=ast.Name(id=name)):
                if node.keywords and any(keyword.arg is None for keyword in node.keywords):
                    raise frame.error(node, "arguments given as **", "name each argument")
                return self.call(name, node, frame)
        return self.other(node, frame)

    def call(self, name: str, node: ast.Call, frame: Frame) -> Any:
        """The value of a call. Raises NotInLanguage."""
        if name in ("min", "max") and len(node.args) > 1 and not node.keywords:
            numbers = [self.number(argument, frame) for argument in node.args]
            return least(*numbers) if name == "min" else greatest(*numbers)
        if name == "abs" and len(node.args) == 1 and not node.keywords:
            one = self.number(node.args[0], frame)
            return greatest(one, -one)
        raise frame.error(
            node,
            f"{name} is no function of the language",
            "call one of the text, or min, max or abs",
        )

    def other(self, node: ast.expr, frame: Frame) -> Any:
        """The value of a construct that only some kinds of text may use. Raises NotInLanguage."""
        kind = type(node).__name__
        raise frame.error(
            node, f"{kind} is not in the language", "write it with numbers, comparisons, `and`/`or`/`not` and calls"
        )

    def without_value(self, name: str, node: ast.expr, frame: Frame) -> NotInLanguage:
        """The error that a name has no value."""
        return frame.error(node, f"the name {name} has no value here", "assign it on every path")

    def truth(self, node: ast.expr, frame: Frame) -> Truth:
        """The value of a condition. Raises NotInLanguage if it is no truth value."""
        found = self.value(node, frame)
        if not is_truth(found):
            raise frame.error(node, "a condition that is no truth value", "compare it: `… != 0`, `… is not None`")
        condition: Truth = found
        return condition

    def term(self, node: ast.expr, frame: Frame) -> Term:
        """The value of an expression that is a number or a truth value. Raises NotInLanguage."""
        return self.as_term(self.value(node, frame), node, frame)

    def as_term(self, found: Any, node: ast.expr, frame: Frame) -> Term:
        """The value of an expression as a number or truth value. Raises NotInLanguage."""
        if not is_unknown(found) and not isinstance(found, int):
            raise frame.error(node, "a number or a truth value is needed here", "give it all of its indexes")
        term: Term = found
        return term

    def number(self, node: ast.expr, frame: Frame) -> Number:
        """The value as a number; a truth value counts 0 or 1."""
        return number(self.term(node, frame))

    def assuming(self, condition: Truth, node: ast.expr, frame: Frame) -> Any:
        """The value of an expression that is evaluated only if the condition holds."""
        with self.conditions.under(condition):
            return self.value(node, frame)

    def _arithmetic(self, node: ast.BinOp, frame: Frame) -> Number:
        operation = ARITHMETIC.get(type(node.op))
        if operation is None:
            instead = "write -(-a // b) or a // b" if isinstance(node.op, ast.Div) else "use + - * // %"
            raise frame.error(node, f"{type(node.op).__name__} is not in the language", instead)
        left, right = self.number(node.left, frame), self.number(node.right, frame)
        if isinstance(node.op, (ast.FloorDiv, ast.Mod)):
            text = f"{ast.unparse(node)}: {ast.unparse(node.right)} is positive"
            self.conditions.demand(0 < right, text, frame.chain, frame.place(node))
            if isinstance(right, int) and right <= 0:
                raise frame.error(node, f"division by {right}", "divide by a positive number")
        return operation(left, right)

    def _connective(self, node: ast.BoolOp, frame: Frame) -> Truth:
        is_and = isinstance(node.op, ast.And)
        values: list[Truth] = []
        for part in node.values:
            before = values if is_and else [negation(value) for value in values]
            with self.conditions.under(*before):
                value = self.truth(part, frame)
            values.append(value)
            if value is not is_and and isinstance(value, bool):
                break
        return conjunction(*values) if is_and else disjunction(*values)

    def _comparison(self, node: ast.Compare, frame: Frame) -> Truth:
        parts: list[Truth] = []
        left_node = node.left
        for operator, right_node in zip(node.ops, node.comparators, strict=True):
            with self.conditions.under(*parts):  # Python stops at the first comparison that does not hold
                compared = self._compared(node, operator, left_node, right_node, frame)
            parts.append(compared)
            left_node = right_node
        return conjunction(*parts)

    def _compared(self, node: ast.Compare, operator: ast.cmpop, one: ast.expr, other: ast.expr, frame: Frame) -> Truth:
        name = type(operator).__name__
        if name in COMPARISONS:
            return COMPARISONS[name](self.number(one, frame), self.number(other, frame))
        if name not in ("Eq", "NotEq"):
            raise frame.error(node, f"the comparison {name} is not in the language", "use == != < <= > >=")
        are_equal = self._are_equal(one, other, frame)
        return are_equal if name == "Eq" else negation(are_equal)

    def _are_equal(self, one: ast.expr, other: ast.expr, frame: Frame) -> Truth:
        return equal(self.term(one, frame), self.term(other, frame))

    def _choice(self, node: ast.IfExp, frame: Frame) -> Value:
        condition = self.truth(node.test, frame)
        if isinstance(condition, bool):
            return self.value(node.body if condition else node.orelse, frame)  # type: ignore[no-any-return]
        yes = self.assuming(condition, node.body, frame)
        no = self.assuming(negation(condition), node.orelse, frame)
        if not is_value(yes) or not is_value(no):
            raise frame.error(
                node, "a choice between states or records", "choose between numbers, truth values or rows"
            )
        if shape(yes) != shape(no):
            raise frame.error(node, "a choice between values of different shapes", "choose between values of one shape")
        return chosen(condition, yes, no)
