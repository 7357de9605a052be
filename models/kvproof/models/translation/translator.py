"""The translator: runs the functions of the specification on unknown or initial states."""

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import z3

from kvproof.models.translation.errors import NotInLanguage
from kvproof.models.translation.maps import Map, SymbolicState, Value
from kvproof.models.translation.rules import Outcome, Run
from kvproof.models.translation.sizes import Universe
from kvproof.models.translation.terms import Term, Truth, is_truth
from kvproof.models.translation.text import Text, parameters_of, returned, specification
from kvproof.spec.language import Domain, Field
from kvproof.spec.sizes import SizesOf


@dataclass(frozen=True, eq=False)
class Parameter:
    """An unknown argument of a rule, and what is known from its domain; a truth value or a row has no domain."""

    name: str
    value: Value
    known: Truth
    domain: Domain | None = None


class Translator:
    """Reads the specification for all sizes, or for those of one instance. text: another text, such as a mutant."""

    def __init__(self, sizes: SizesOf[Any] | None = None, text: Text | None = None) -> None:
        self.text = text or specification()
        self.system = self.text.system
        self.universe = Universe(sizes, self.system)

    # States

    def unknown_state(self, prefix: str = "") -> SymbolicState:
        """A state about which nothing is known. Another prefix gives another state."""
        return SymbolicState({name: self._unknown(prefix + name, field) for name, field in self.system.fields.items()})

    def _unknown(self, name: str, field: Field) -> Map:
        sort = z3.BoolSort() if field.to.name == "Flag" else z3.IntSort()
        return Map(field.domains, z3.Function(name, *[z3.IntSort()] * len(field.domains), sort))

    def first_state(self) -> SymbolicState:
        """The state in which nothing has happened."""
        return SymbolicState(
            {name: Map(field.domains, self._start(field)) for name, field in self.system.fields.items()}
        )

    def _start(self, field: Field) -> Callable[..., Term]:
        if not callable(field.start):
            return lambda *indexes: field.start
        name = field.start.__name__

        def start(*indexes: Term) -> Term:
            value = self.call(name, *field.start_arguments(indexes), has_demands=False).value
            assert not isinstance(value, Map)
            return value

        return start

    # Functions

    def run(self, function: str, state: SymbolicState, *arguments: Value) -> Outcome:
        """Run a rule, a step or a claim on a state. Raises NotInLanguage."""
        return Run(self.text, self.universe, state).call(function, state, *arguments)

    def call(self, name: str, *arguments: SymbolicState | Value, has_demands: bool = True) -> Outcome:
        """Read a predicate or function, given its arguments in order. Raises NotInLanguage."""
        outcome = Run(self.text, self.universe, SymbolicState({}), has_demands).call(name, *arguments)
        function, file = self.text.functions[name]
        if returned(function) is None:
            what = f"{name} has no value: it is not one `return`"
            raise NotInLanguage(file, function, what, "write one `return` of an expression, after the docstring")
        return outcome

    def holds(self, claim: str, state: SymbolicState) -> Truth:
        """Whether an invariant or a theorem holds of a state. Raises NotInLanguage."""
        value = self.call(claim, state, has_demands=False).value
        if not is_truth(value):
            function, file = self.text.functions[claim]
            raise NotInLanguage(file, function, f"{claim} is no truth value", "compare it: `return … != 0`")
        found: Truth = value  # type: ignore[assignment]  # a truth value is no map
        return found

    def value(self, name: str, values: Mapping[str, Any], has_demands: bool = True) -> Outcome:
        """Read a predicate or function, given those of the values that its parameters name. Raises NotInLanguage."""
        return self.call(
            name, *(values[one] for one in parameters_of(*self.text.functions[name])), has_demands=has_demands
        )

    def parameters(self, rule: Callable[..., Any]) -> Iterator[Parameter]:
        """An unknown for each argument of a rule after the state."""
        for parameter in list(inspect.signature(rule).parameters.values())[1:]:
            yield self.unknown(parameter.name, parameter.annotation)

    def unknown(self, name: str, annotation: Any) -> Parameter:
        """An unknown argument of that type."""
        base, *domains = typing.get_args(annotation)
        term = f"given_{name}"  # no field has such a name
        if typing.get_origin(base) is list:
            sorts = [z3.IntSort()] * (len(domains) + 1)
            return Parameter(name, Map(tuple(domains), z3.Function(term, *sorts)), True)
        if base is bool:
            return Parameter(name, z3.Bool(term), True)
        (domain,) = domains
        number = z3.Int(term)
        return Parameter(name, number, self.universe.contains(domain, number), domain)
