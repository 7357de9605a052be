"""Expressions about a state: fields with subscripts, rows, comprehensions, quantifiers, and calls of predicates.

`all` and `any` are quantifiers over unknown domains, and are unrolled over known ones. A comprehension is a map whose
values are read on demand, from the state at the place of the comprehension.
"""

import ast
from contextlib import AbstractContextManager
from dataclasses import fields, is_dataclass
from typing import Any

from kvproof.models.translation.conditions import Conditions
from kvproof.models.translation.errors import NotInLanguage
from kvproof.models.translation.expressions import Expressions
from kvproof.models.translation.maps import Map, SymbolicState, shape
from kvproof.models.translation.sizes import Universe
from kvproof.models.translation.terms import (
    Number,
    Term,
    Truth,
    choice,
    conjunction,
    disjunction,
    equal,
    for_all,
    for_some,
    implication,
    is_between,
)
from kvproof.models.translation.text import (
    Frame,
    Text,
    names_bound,
    names_called,
    parameters_of,
    require_plain,
    returned,
    words,
)
from kvproof.spec.language import SLOTS, Domain

ROW_OPERATIONS = {"copied": 1, "put": 3, "spliced": 4, "same": 3, "implies": 2}


class StateExpressions(Expressions):
    """Reads the expressions of the specification."""

    def __init__(self, text: Text, universe: Universe, conditions: Conditions) -> None:
        super().__init__(conditions)
        self.text, self.universe = text, universe
        found = {**text.constants, **universe.numbers}
        self.domains = {name: one for name, one in found.items() if isinstance(one, Domain)}
        self.constants: dict[str, Any] = {name: one for name, one in found.items() if name not in self.domains}

    def other(self, node: ast.expr, frame: Frame) -> Any:
        """Fields, subscripts and comprehensions."""
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=field):
                owner: Any = frame.names.get(name)
                if isinstance(owner, SymbolicState) and field in owner.maps:
                    return owner.maps[field]
                is_record = is_dataclass(owner) and not isinstance(owner, (SymbolicState, Domain, type))
                if is_record and field in (one.name for one in fields(owner)):
                    return getattr(owner, field)
                what = f"{name}.{field} is no field of a state or record"
                raise frame.error(node, what, "name a field of `State`, or of the record of a contract")
            case ast.Subscript():
                whole = self.value(node.value, frame)
                if not isinstance(whole, Map):
                    raise frame.error(node, "one subscript too many", "give a field as many as it has domains")
                index = self.number(node.slice, frame)
                self.in_range(index, whole.domains[0], node, frame)
                return whole.at(index)
            case ast.ListComp():
                return self._bulk(node, frame)
        return super().other(node, frame)

    def in_range(self, index: Number, domain: Domain, node: ast.expr, frame: Frame) -> None:
        """Demand that an index is in its domain."""
        if self.conditions.is_silent:  # the text and the formula take time
            return
        text = f"{words(node)} has a {domain.name} in range"
        self.conditions.demand(self.universe.contains(domain, index), text, frame.chain, frame.place(node))

    def map(self, node: ast.expr, frame: Frame) -> Map:
        """The value of an expression that is a row, or rows. Raises NotInLanguage."""
        found = self.value(node, frame)
        if not isinstance(found, Map):
            raise frame.error(node, "a row is needed here", "leave its last index out")
        return found

    def call(self, name: str, node: ast.Call, frame: Frame) -> Any:
        """Quantifiers, operations on rows, and predicates and functions of the text."""
        if node.keywords:
            raise frame.error(node, "an argument given by name", "give the arguments in their order")
        if name in ("all", "any"):
            return self._quantified(name, node, frame)
        if name in ROW_OPERATIONS:
            if len(node.args) != ROW_OPERATIONS[name]:
                raise frame.error(node, f"{name} takes {ROW_OPERATIONS[name]} arguments", "see kvproof.spec.language")
            return self._row_operation(name, node, frame)
        if name in self.text.functions:
            return self._function(name, node, frame)
        return super().call(name, node, frame)

    # Rows

    def _row_operation(self, name: str, node: ast.Call, frame: Frame) -> Any:
        arguments = node.args
        match name:
            case "implies":
                condition = self.truth(arguments[0], frame)
                if condition is False:
                    return True
                with self.conditions.under(condition):
                    return implication(condition, self.truth(arguments[1], frame))
            case "copied":
                return self.map(arguments[0], frame)
            case "put":
                row, index = self.map(arguments[0], frame), self.number(arguments[1], frame)
                self.in_range(index, row.domains[0], node, frame)
                value = self.value(arguments[2], frame)
                if shape(value) != row.domains[1:]:
                    raise frame.error(
                        node, "the value has another shape than what it replaces", "put a value of the row"
                    )
                return row.put((index,), value)
            case "same":
                one, other = self._slots(arguments[0], frame), self._slots(arguments[1], frame)
                return self._are_same(one, other, self._stop(0, arguments[2], node, frame))
        row, source = self._slots(arguments[0], frame), self._slots(arguments[3], frame)
        start = self.number(arguments[1], frame)
        stop = self._stop(start, arguments[2], node, frame)
        self.conditions.demand(0 <= start, f"{words(node)} starts at a slot", frame.chain, frame.place(node))
        return Map(row.domains, lambda slot: choice(is_between(start, slot, stop), source.read(slot), row.read(slot)))

    def _slots(self, node: ast.expr, frame: Frame) -> Map:
        """The value of an expression that is a row of slots. Raises NotInLanguage."""
        found = self.map(node, frame)
        if found.domains != (SLOTS,):
            raise frame.error(node, "a row of slots is needed here", "compare other rows with all(… for …)")
        return found

    def _stop(self, start: Number, stop_node: ast.expr, node: ast.Call, frame: Frame) -> Number:
        stop = self.number(stop_node, frame)
        is_one = conjunction(start <= stop, stop <= self.constants["BLOCK_SIZE"])
        text = f"{words(node)} stops within the row, after its start"
        self.conditions.demand(is_one, text, frame.chain, frame.place(node))
        return stop

    def _are_same(self, one: Map, other: Map, stop: Number) -> Truth:
        slots = self.universe.members(SLOTS)
        if slots is not None:
            return conjunction(*[implication(slot < stop, equal(one.read(slot), other.read(slot))) for slot in slots])
        slot = self.conditions.fresh("slot")
        known = is_between(0, slot, stop)
        with self.conditions.binding([(slot, known)]):  # the rows may contain quantifiers
            return for_all([slot], known, equal(one.read(slot), other.read(slot)))

    # Predicates and functions

    def _function(self, name: str, node: ast.Call, frame: Frame) -> Any:
        """The value of a predicate or function, read at its call with its parameters as names."""
        function, _ = self.text.functions[name]
        inner = self.inner_frame(name, node, frame)
        result = returned(function)
        if result is None:
            raise inner.error(function, f"{name} is used as a value", "let it be one `return` of an expression")
        return self.value(result, inner)

    def inner_frame(self, name: str, node: ast.Call, frame: Frame) -> Frame:
        """The frame for a function of the text that is called here: its parameters and the constants."""
        function, file = self.text.functions[name]
        if name in frame.chain:
            raise frame.error(node, f"{name} calls itself", "write it without recursion")
        self.require_own_names(function, file)
        parameters = parameters_of(function, file)
        if len(parameters) != len(node.args):
            raise frame.error(node, f"{name} takes {len(parameters)} arguments", f"give {', '.join(parameters)}")
        values = {key: self.value(one, frame) for key, one in zip(parameters, node.args, strict=True)}
        return Frame(file, {**self.constants, **values}, (*frame.chain, name))

    def require_own_names(self, function: ast.FunctionDef, file: str) -> None:
        """Refuse a local name that is also a constant, or a function that is called here: Python takes the local."""
        require_plain(function, file)
        called = names_called(function)
        for node, name in names_bound(function):
            if name in self.constants or name in self.domains or name in called:
                what = f"{name} is a local name here, and also a constant or a function that is used here"
                raise NotInLanguage(file, node, what, "use another name")
        if function.args.defaults:
            what = f"{function.name} has a parameter with a default"
            raise NotInLanguage(file, function, what, "give every argument at each call")
        if function.args.kwonlyargs:
            what = f"{function.name} has parameters that are given by name"
            raise NotInLanguage(file, function, what, "give all arguments in their order")

    # Quantifiers and comprehensions

    def _domain(self, generator: ast.comprehension, frame: Frame) -> tuple[str, Domain]:
        domain = self.domains.get(generator.iter.id) if isinstance(generator.iter, ast.Name) else None
        if not isinstance(generator.target, ast.Name) or domain is None or generator.is_async:
            raise frame.error(
                generator.iter, "the generator does not run over a domain", "write `for b in BLOCKS` or the like"
            )
        if domain.size is None:
            raise frame.error(
                generator.iter, f"{domain.name} is a domain without end", "name a domain of ids or places"
            )
        return generator.target.id, domain

    def without_value(self, name: str, node: ast.expr, frame: Frame) -> NotInLanguage:
        """The error that a name has no value; the name of a domain has none outside `for … in`."""
        if name in self.domains:
            return frame.error(node, f"{name} is a domain, not a value", "name it in `for … in` only")
        return super().without_value(name, node, frame)

    def _quantified(self, name: str, node: ast.Call, frame: Frame) -> Truth:
        match node.args:
            case [ast.GeneratorExp(elt=element, generators=generators)]:
                pass
            case _:
                raise frame.error(node, f"{name} of no generator", f"write {name}(… for b in BLOCKS)")
        if any(generator.ifs for generator in generators):
            raise frame.error(node, "an `if` in a generator", "write implies(condition, …), or `and`")
        domains = [self._domain(generator, frame) for generator in generators]
        if all(self.universe.members(domain) is not None for _, domain in domains):
            values = self._unrolled(domains, element, frame)
            return conjunction(*values) if name == "all" else disjunction(*values)
        if self.universe.is_concrete:
            raise frame.error(node, "a quantifier over a domain without end", "quantify over ids, places or slots")
        variables = [self.conditions.fresh(key, further) for further, (key, _) in enumerate(domains)]
        known = [self.universe.contains(domain, v) for v, (_, domain) in zip(variables, domains, strict=True)]
        bound = {key: variable for (key, _), variable in zip(domains, variables, strict=True)}
        with self.conditions.binding(list(zip(variables, known, strict=True))):
            body = self.truth(element, frame.named(**bound))
        quantifier = for_all if name == "all" else for_some
        return quantifier(variables, conjunction(*known), body)

    def _unrolled(self, domains: list[tuple[str, Domain]], element: ast.expr, frame: Frame) -> list[Truth]:
        if not domains:
            return [self.truth(element, frame)]
        (name, domain), *others = domains
        members = self.universe.members(domain) or ()
        return [value for one in members for value in self._unrolled(others, element, frame.named(**{name: one}))]

    def _bulk(self, node: ast.ListComp, frame: Frame) -> Map:
        match node.generators:
            case [ast.comprehension(ifs=[]) as generator]:
                name, domain = self._domain(generator, frame)
            case _:
                raise frame.error(node, "a comprehension with an `if` or over two domains", "use `… if … else …`")

        def point(index: Term, *rest: Term) -> Term:
            with self.conditions.silently():
                found = self.value(node.elt, frame.named(**{name: index}))
            value: Term = found.read(*rest) if isinstance(found, Map) else found
            return value

        inner: tuple[Domain, ...] = ()
        for sample, binding in self._samples(name, domain):
            with binding:
                found = self.value(node.elt, frame.named(**{name: sample}))
            inner = found.domains if isinstance(found, Map) else ()
        return Map((domain, *inner), point)

    def _samples(self, name: str, domain: Domain) -> list[tuple[Number, AbstractContextManager[None]]]:
        """The values for which the element of a comprehension is read once, to collect its demands."""
        members = self.universe.members(domain)
        if members is not None:
            return [(member, self.conditions.binding(())) for member in members]
        variable = self.conditions.fresh(name)
        return [(variable, self.conditions.binding([(variable, self.universe.contains(domain, variable))]))]
