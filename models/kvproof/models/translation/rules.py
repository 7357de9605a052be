"""Symbolic runs of rules and steps on a state: their guards, their obligations, and the state after.

Both sides of an `if` with an unknown condition are run, and the two states are merged.
"""

import ast
from dataclasses import dataclass, field
from typing import Any

from kvproof.models.translation.conditions import Conditions, Demand
from kvproof.models.translation.maps import Map, SymbolicState, Value, chosen, is_value, merged, shape
from kvproof.models.translation.sizes import Universe
from kvproof.models.translation.states import StateExpressions
from kvproof.models.translation.terms import Term, Truth, conjunction, is_truth, negation
from kvproof.models.translation.text import Frame, Text, element_left, parameters_of, returned
from kvproof.spec.language import FLAGS, SLOTS, Domain
from kvproof.spec.syntax_trees import called


@dataclass(frozen=True, eq=False)
class Required:
    """A guard or an obligation of a rule: its text, its property, and its place."""

    text: str
    property: str
    chain: tuple[str, ...]
    place: str
    formula: Truth


@dataclass
class Outcome:
    """The result of a run.

    guard: whether it is enabled. guards: each one, where the text reaches it. checks: what holds on the way. demands:
    what must hold for every value to be defined. value: what a function or claim returns. state: the state after.
    """

    state: SymbolicState
    guard: Truth = True
    guards: list[Required] = field(default_factory=list)
    checks: list[Required] = field(default_factory=list)
    demands: list[Demand] = field(default_factory=list)
    value: Value = True


NUM_TEXTS_MAX = {"require": 2, "check": 1}  # after the condition
IMMUTABLE = (SLOTS,)  # rows of slots are replaced as a whole, so they may have several names


class _Disabled(Exception):
    """A guard is known not to hold: the rest of the rule is not reached, and the state is unchanged."""


class Run:
    """One run of a function of the text. has_demands: collect what must hold for every value to be defined."""

    def __init__(self, text: Text, universe: Universe, state: SymbolicState, has_demands: bool = True) -> None:
        self.conditions = Conditions(is_silent=not has_demands)
        self.expressions = StateExpressions(text, universe, self.conditions)
        self.text, self.universe = text, universe
        self.outcome = Outcome(state)

    def call(self, name: str, *arguments: SymbolicState | Value) -> Outcome:
        """Run the function on these arguments. Raises NotInLanguage."""
        function, file = self.text.functions[name]
        self.expressions.require_own_names(function, file)
        parameters = parameters_of(function, file)
        values = dict(zip(parameters, arguments, strict=True))
        frame = Frame(file, {**self.expressions.constants, **values}, (name,))
        result = returned(function)
        try:
            if result is not None:
                self.outcome.value = self.expressions.value(result, frame)
            else:
                frame = self._block(function.body, frame)
            for parameter, argument in values.items():
                if isinstance(argument, SymbolicState):
                    self.outcome.state = frame.names[parameter]
        except _Disabled:
            pass
        self.outcome.guard = self.conditions.guard
        self.outcome.demands = self.conditions.demands
        return self.outcome

    def _block(self, body: list[ast.stmt], frame: Frame) -> Frame:
        for statement in body:
            frame = self._statement(statement, frame)
        return frame

    def _statement(self, node: ast.stmt, frame: Frame) -> Frame:
        match node:
            case ast.Assign(targets=[target]):
                value = self.expressions.value(node.value, frame)
                self._require_own_lists(node.value, value, frame, ast.unparse(target))
                return self._assigned(target, value, frame)
            case ast.AugAssign():
                whole = ast.copy_location(ast.BinOp(node.target, node.op, node.value), node)
                return self._assigned(node.target, self.expressions.value(whole, frame), frame)
            case ast.If():
                return self._branch(node, frame)
            case ast.Return():
                what = f"{frame.chain[-1]} returns before its end, or after other statements"
                raise frame.error(
                    node, what, "let a predicate or function be one `return`; let rules and steps use if and else"
                )
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                return frame
            case ast.Expr(value=ast.Call() as call) if (name := called(node)) is not None:
                if name in ("require", "check"):
                    self._require(name, call, frame)
                    return frame
                return self._step(name, call, frame)
        kind = type(node).__name__
        raise frame.error(node, f"{kind} is not in the language", "write assignments, if, require, check and steps")

    def _require(self, kind: str, node: ast.Call, frame: Frame) -> None:
        if node.keywords:
            raise frame.error(node, "an argument given by name", "give the arguments in their order")
        texts = [one.value for one in node.args[1:] if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        if not texts or len(texts) != len(node.args) - 1:
            raise frame.error(node, f"{kind} without its sentence", "give the sentence as a text after the condition")
        if len(texts) > NUM_TEXTS_MAX[kind]:
            instead = "require(condition, sentence, property) or check(condition, property)"
            raise frame.error(node, f"{kind} takes no {len(node.args)} arguments", f"write {instead}")
        condition = self.conditions.under_path(self.expressions.truth(node.args[0], frame))
        if kind == "require":
            if len(frame.chain) > 1:  # natively the refusal of a function that is called is lost
                what = f"{frame.chain[-1]} is called, and has a guard"
                raise frame.error(node, what, "write the guard in the rule")
            property = texts[1] if len(texts) > 1 else ""
            found = Required(texts[0], property, frame.chain, frame.place(node), condition)
            self.outcome.guards.append(found)
            self.conditions.guard = conjunction(self.conditions.guard, condition)
            if self.conditions.guard is False:
                raise _Disabled
            return
        text = ast.unparse(node.args[0])
        self.outcome.checks.append(Required(text, texts[0], frame.chain, frame.place(node), condition))

    def _step(self, name: str, node: ast.Call, frame: Frame) -> Frame:
        """Run a step at its call; the caller continues with the state that the step leaves."""
        if name not in self.text.functions:
            raise frame.error(node, f"{name} is no step of the text", "call a step, require or check")
        function, file = self.text.functions[name]
        if returned(function) is not None:
            raise frame.error(node, f"{name} is a predicate or function, and its value is not used", "call a step")
        if node.keywords:
            raise frame.error(node, "an argument given by name", "give the arguments in their order")
        if not node.args or not isinstance(node.args[0], ast.Name):
            raise frame.error(node, f"{name} is called without the state", "give the state first")
        inner = self.expressions.inner_frame(name, node, frame)
        states = [one for one in parameters_of(function, file) if isinstance(inner.names[one], SymbolicState)]
        if states != parameters_of(function, file)[:1]:
            raise frame.error(
                node, f"{name} is called with {len(states)} states", "give one state, as the first argument"
            )
        for parameter, argument in zip(parameters_of(function, file)[1:], node.args[1:], strict=True):
            if not isinstance(argument, ast.Name):  # a step never changes the list that a local name stands for
                self._require_own_lists(argument, inner.names[parameter], frame)
        after = self._block(function.body, inner)
        return frame.named(**{node.args[0].id: after.names[parameters_of(function, file)[0]]})

    def _branch(self, node: ast.If, frame: Frame) -> Frame:
        condition = self.expressions.truth(node.test, frame)
        if isinstance(condition, bool):
            return self._block(node.body if condition else node.orelse, frame)
        with self.conditions.under(condition):
            yes = self._block(node.body, frame)
        with self.conditions.under(negation(condition)):
            no = self._block(node.orelse, frame)
        names: dict[str, Any] = {}  # a name without a value on one side has none afterwards
        for name in yes.names.keys() & no.names.keys():
            one, other = yes.names[name], no.names[name]
            if one is other:
                names[name] = one
            elif isinstance(one, SymbolicState):
                names[name] = merged(condition, one, other)
            elif shape(one) == shape(other):  # else a row on one side and a number on the other: it has no value
                names[name] = chosen(condition, one, other)
        return Frame(frame.file, names, frame.chain)

    def _require_own_lists(self, node: ast.expr, value: Any, frame: Frame, target: str = "") -> None:
        """Refuse a row that would have two names natively, so that a write in place would change both."""
        if isinstance(value, Map) and not _has_own_lists(node, value.domains, target):
            what = f"{ast.unparse(node)} would have two names"
            raise frame.error(node, what, "write copied(…) of a row, or a comprehension over the rows")

    def _assigned(self, target: ast.expr, value: Value | SymbolicState, frame: Frame) -> Frame:
        if not is_value(value):
            what = f"{ast.unparse(target)} is another name for a state or record"
            raise frame.error(target, what, "use the parameter itself")
        if isinstance(target, ast.Name):
            if isinstance(frame.names.get(target.id), SymbolicState):
                raise frame.error(target, f"{target.id} is a state and cannot be assigned", "use another name")
            return frame.named(**{target.id: value})
        path: list[ast.expr] = []
        whole = target
        while isinstance(whole, ast.Subscript):
            path.insert(0, whole.slice)
            whole = whole.value
        match whole:
            case ast.Attribute(value=ast.Name(id=name), attr=field_name) if field_name in self.text.system.fields:
                return self._written(target, name, field_name, path, value, frame)
        raise frame.error(
            target, "the target of the assignment is neither a local name nor a field", "write to a field of the state"
        )

    def _written(
        self, target: ast.expr, name: str, field_name: str, path: list[ast.expr], value: Value, frame: Frame
    ) -> Frame:
        state = frame.names.get(name)
        if not isinstance(state, SymbolicState):
            raise frame.error(target, f"{name} is no state", "write to a field of the state")
        before, indexes = state.maps[field_name], [self.expressions.number(one, frame) for one in path]
        if len(indexes) > before.arity:
            raise frame.error(target, "one subscript too many", "give a field as many as it has domains")
        if before.domains[-1:] == IMMUTABLE and len(indexes) == before.arity:
            raise frame.error(target, "a slot of a row is written in place", "replace the row: put(row, slot, value)")
        for index, domain in zip(indexes, before.domains, strict=False):
            self.expressions.in_range(index, domain, target, frame)
        if shape(value) != before.domains[len(indexes) :]:
            raise frame.error(
                target,
                "the value has another shape than what it is assigned to",
                "assign a value of the same domains",
            )
        if self.text.system.fields[field_name].to == FLAGS:
            value = _of_truths(value, target, frame)
        if not indexes:
            assert isinstance(value, Map)
            after = Map(before.domains, value.read)
        else:
            after = before.put(tuple(indexes), value)
        return frame.named(**{name: state.written(field_name, after)})


def _of_truths(value: Value, target: ast.expr, frame: Frame) -> Value:
    """The value, of which each term is a truth value: a flag has no other values in any state that is asked about."""

    def truth(term: Term) -> Term:
        if is_truth(term):
            return term
        what = f"{ast.unparse(target)} is a flag, and a number is assigned to it"
        raise frame.error(target, what, "assign a truth value: True, False, or a comparison")

    if isinstance(value, Map):
        rows = value
        return Map(rows.domains, lambda *indexes: truth(rows.read(*indexes)))
    return truth(value)


def _has_own_lists(node: ast.expr, domains: tuple[Domain, ...], in_place: str) -> bool:
    """Whether no list that a write can change natively has another name after the assignment of an expression.

    domains: of the value. in_place: the text of the target; what stays where it was has no second name.
    """
    if not domains or domains == IMMUTABLE or ast.unparse(node) == in_place:
        return True
    match node:
        case ast.IfExp():
            return all(_has_own_lists(side, domains, in_place) for side in (node.body, node.orelse))
        case ast.ListComp(generators=[ast.comprehension(target=ast.Name(id=name))]):
            return _has_own_lists(node.elt, domains[1:], element_left(in_place, name))
        case ast.Call(func=ast.Name(id="copied" | "put")):  # the lists within the copy are those of the original
            return domains[1:] in ((), IMMUTABLE)
    return False
