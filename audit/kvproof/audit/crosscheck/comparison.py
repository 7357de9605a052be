"""A rule or a function of a text: what the translator made of it for every size, against a native run.

A `Crosscheck` translates each function of a text once, with every size unknown, by the calls that the prover makes, and
evaluates the same terms in any number of native states. Natively and symbolically these must agree:

    guard     the first guard that does not hold
    check     the first check that does not hold
    demand    all hold if every subscript of the native run is in range; one does not hold if a subscript is not
    cell      each value of the state after
    value     what a predicate, function, invariant or theorem returns

The states need not be reachable: where a text is defined, its two readings agree.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from kvproof.models.counterexamples.replay import OutOfRange, TooSmall, watched
from kvproof.models.crosscheck.evaluation import Evaluator, Evaluators
from kvproof.models.crosscheck.interpretation import (
    Interpretation,
    OutOfDomain,
    Undecided,
    field_rows,
    given,
    interpretation,
)
from kvproof.models.proofs.induction import Induction
from kvproof.models.translation.conditions import Demand
from kvproof.models.translation.maps import Map
from kvproof.models.translation.rules import Outcome, Required
from kvproof.models.translation.terms import Truth
from kvproof.models.translation.text import Text, specification
from kvproof.models.translation.translator import Parameter, Translator
from kvproof.spec.compilation import CheckFailed, Guard
from kvproof.spec.native import MachineOf
from kvproof.spec.sizes import SizesOf

OUT_OF_RANGE = "a subscript is out of range"  # the result of a native run that reads or writes where nothing is


class Mismatch(AssertionError):
    """The translator and the native run differ. The message has the place, both values, the arguments and the state."""


class ListEnds(Exception):
    """A native run reads past the end of a list that is endless in the specification, so nothing can be compared."""


@dataclass(frozen=True, eq=False)
class Situation:
    """A native state of a machine, and what it means for the symbols of terms."""

    machine: MachineOf[Any]
    state: Any

    @functools.cached_property
    def values(self) -> Interpretation:
        """The sizes and the fields."""
        return interpretation(self.machine, state=self.state)

    @functools.cached_property
    def watched(self) -> Any:
        """The state in lists that check their subscripts, to be read only."""
        return watched(self.state, self.machine.system)


class Formulas:
    """Formulas that hold together, in the order of the text. first_false: how often each was the first not to hold."""

    def __init__(self, evaluators: Evaluators, named: Iterable[tuple[str, Truth]]) -> None:
        self._named = list(named)
        self._first_false = evaluators.of_first_false([formula for _, formula in self._named])
        self._lenient: set[str] = set()
        self._num_false = Counter[str]()

    @classmethod
    def of_demands(cls, evaluators: Evaluators, demands: Iterable[Demand]) -> "Formulas":
        """Demands, under the texts that they are made by."""
        found = cls(evaluators, _named(demands))
        found._lenient = {one.text for one in demands if _may_be_unnoticed(one)}
        return found

    def is_lenient(self, demand: str) -> bool:
        """Whether the native run may be defined although this demand does not hold."""
        return demand in self._lenient

    def __len__(self) -> int:
        return len(self._named)

    def num_false(self) -> list[tuple[str, int]]:
        """The name of each, and how often it was the first that did not hold."""
        return [(name, self._num_false[name]) for name, _ in self._named]

    def first_false(self, values: Interpretation) -> str | None:
        """The name of the first that does not hold; None if all hold. Raises OutOfDomain or Undecided."""
        place = self._first_false.under(values)()
        if place < 0:
            return None
        name, _ = self._named[place]
        self._num_false[name] += 1
        return name


class SymbolicRule:
    """A rule, translated once for every size. cells: for each field, its value after the rule, of the indexes."""

    def __init__(self, name: str, parameters: Sequence[Parameter], outcome: Outcome, evaluators: Evaluators) -> None:
        self.name, self.parameters = name, tuple(parameters)
        self.guards = Formulas(evaluators, _named(outcome.guards))
        self.checks = Formulas(evaluators, _named(outcome.checks))
        self.demands = Formulas.of_demands(evaluators, outcome.demands)
        self.cells = {field_name: cells(map, evaluators) for field_name, map in outcome.state.maps.items()}

    def given(self, situation: Situation, arguments: Sequence[Any]) -> Interpretation:
        """The situation, and the arguments of the rule."""
        named = {one.name: value for one, value in zip(self.parameters, arguments, strict=True)}
        return situation.values.extended(given(situation.machine, self.parameters, named))


def _named(formulas: Iterable[Required | Demand]) -> list[tuple[str, Truth]]:
    return [(one.text, one.formula) for one in formulas]


def cells(map: Map, evaluators: Evaluators) -> Evaluator:
    """A map as a function of its indexes."""
    indexes = [z3.Int(f"cell_{place}") for place in range(map.arity)]
    return evaluators.of(map.read(*indexes), indexes)


class SymbolicValue:
    """A predicate, function, invariant or theorem, translated once for every size. counts: of each value."""

    def __init__(self, name: str, outcome: Outcome, evaluators: Evaluators) -> None:
        assert not isinstance(outcome.value, Map)
        self.name, self.value = name, evaluators.of(outcome.value)
        self.demands = Formulas.of_demands(evaluators, outcome.demands)
        self.counts = Counter[int]()


@dataclass(frozen=True, eq=False)
class _Firing:
    """A rule with its arguments in a situation."""

    rule: SymbolicRule
    situation: Situation
    arguments: Sequence[Any]

    @functools.cached_property
    def values(self) -> Interpretation:
        return self.rule.given(self.situation, self.arguments)

    def mismatch(self, place: str, symbolic: object, native: object) -> Mismatch:
        return mismatch(self.rule.name, place, symbolic, native, self.situation, self.arguments)


class Crosscheck:
    """A text: its functions are translated when they are compared first. text: by default the specification.

    rules, claims: those that were translated so far. num_cells: the cells of states after rules that were compared so
    far. num_values: guards, checks, demands and claims.
    """

    def __init__(self, text: Text | None = None) -> None:
        self.text = text or specification()
        self.induction = Induction(Translator(text=self.text))
        self.translator, self.before = self.induction.translator, self.induction.before
        self.evaluators = Evaluators()
        self.num_cells = self.num_values = 0
        self._machines: dict[tuple[SizesOf[Any], bool], MachineOf[Any]] = {}
        self.rules: dict[str, SymbolicRule] = {}
        self.claims: dict[str, SymbolicValue] = {}

    def machine(self, sizes: SizesOf[Any], with_checks: bool = True) -> MachineOf[Any]:
        """The native machine of the text, with ghosts."""
        key = sizes, with_checks
        if key not in self._machines:
            self._machines[key] = MachineOf(sizes, with_ghosts=True, with_checks=with_checks, text=self.text.functions)
        return self._machines[key]

    def rule(self, name: str, annotations: Mapping[str, Any]) -> SymbolicRule:
        """A rule. annotations: of its parameters after the state."""
        if name not in self.rules:
            parameters = [self.translator.unknown(*one) for one in annotations.items()]
            outcome = self.translator.run(name, self.before, *(one.value for one in parameters))
            self.rules[name] = SymbolicRule(name, parameters, outcome, self.evaluators)
        return self.rules[name]

    def claim(self, name: str) -> SymbolicValue:
        """An invariant, a theorem, or another function of the state alone."""
        if name not in self.claims:
            self.claims[name] = SymbolicValue(name, self.translator.run(name, self.before), self.evaluators)
        return self.claims[name]

    # Rules

    def compare_rule(self, rule: SymbolicRule, situation: Situation, arguments: Sequence[Any]) -> Any:
        """Run the rule in both ways. Returns the native state after, None if there is none.

        Raises Mismatch, or ListEnds.
        """
        firing = _Firing(rule, situation, arguments)
        after = watched(situation.state, situation.machine.system)
        found = run_natively(situation.machine.function(rule.name), after, *arguments)
        failed = found.text if isinstance(found, CheckFailed) else None
        if failed is not None:
            after = watched(situation.state, situation.machine.system)
            unchecked = self.machine(situation.machine.sizes, with_checks=False)
            found = run_natively(unchecked.function(rule.name), after, *arguments)
        try:
            return after if self._agree(firing, found, failed, after) else None
        except (OutOfDomain, Undecided) as error:
            raise firing.mismatch("its formulas", repr(error), found) from error

    def _agree(self, firing: _Firing, found: object, failed: str | None, after: Any) -> bool:
        """Whether the rule fired, in both ways.

        found: what the rule returned natively, without checks. failed: the first check that did not hold.
        """
        rule, values = firing.rule, firing.values
        demand = rule.demands.first_false(values)
        if demand is not None:
            if found != OUT_OF_RANGE and failed is None and not rule.demands.is_lenient(demand):
                raise firing.mismatch("demands", demand, found)
            return False
        if found == OUT_OF_RANGE:
            raise firing.mismatch("demands", "that all hold", found)
        guard, sentence = rule.guards.first_false(values), found.sentence if isinstance(found, Guard) else None
        if guard != sentence:
            raise firing.mismatch("the first guard that does not hold", guard, sentence)
        self.num_values += len(rule.demands) + len(rule.guards)
        if guard is not None:
            return False
        check = rule.checks.first_false(values)
        if check != failed:
            raise firing.mismatch("the first check that does not hold", check, failed)
        self.num_values += len(rule.checks)
        for name, evaluator in rule.cells.items():
            symbolic, rows = evaluator.under(values), field_rows(firing.situation.machine, name, getattr(after, name))
            for at, native in rows.cells():
                if symbolic(*at) != native:
                    raise firing.mismatch(f"{name}{list(at)} afterwards", symbolic(*at), native)
            self.num_cells += len(rows)
        return True

    # Claims

    def compare_claim(self, claim: SymbolicValue, situation: Situation) -> bool | int | None:
        """Evaluate a claim in both ways. Returns its value, None if a subscript is out of range.

        Raises Mismatch, or ListEnds.
        """
        native = run_natively(situation.machine.function(claim.name), situation.watched)
        try:
            demand = claim.demands.first_false(situation.values)
            if demand is not None:
                if native != OUT_OF_RANGE and not claim.demands.is_lenient(demand):
                    raise mismatch(claim.name, "demands", demand, native, situation)
                return None
            symbolic = claim.value.under(situation.values)()
        except (OutOfDomain, Undecided) as error:
            raise mismatch(claim.name, "its formulas", repr(error), native, situation) from error
        if symbolic != native:
            raise mismatch(claim.name, "its value", symbolic, native, situation)
        self.num_values += 1 + len(claim.demands)
        claim.counts[symbolic] += 1
        return symbolic


def run_natively(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns, a check that failed, or OUT_OF_RANGE. Raises ListEnds."""
    try:
        return function(*arguments)
    except CheckFailed as failed:
        return failed
    except OutOfRange:
        return OUT_OF_RANGE
    except (TooSmall, IndexError) as error:
        raise ListEnds from error


def _may_be_unnoticed(demand: Demand) -> bool:
    """Whether a native run may be defined although the demand does not hold.

    A slice, natively, has no range; and a quantifier stops at the first element that decides it.
    """
    return demand.text.startswith(("put(", "same(", "spliced(")) or z3.is_quantifier(demand.formula)


def mismatch(
    subject: str, place: str, symbolic: object, native: object, situation: Situation, arguments: Sequence[Any] = ()
) -> Mismatch:
    """The error that the readers differ at a place of a subject."""
    called = f"{subject}({', '.join(map(str, arguments))})"
    return Mismatch(
        f"{called}, {place}: the translator gives {symbolic}, the native run gives {native}, in\n{picture(situation)}"
    )


def picture(situation: Situation) -> str:
    """The sizes, and the fields of a state that are not as in the first state, a line each."""
    first, state = situation.machine.first_state(), situation.state
    changed = [name for name in situation.machine.system.fields if getattr(first, name) != getattr(state, name)]
    return "\n".join([f"  {situation.machine.sizes}", *(f"  {name}: {getattr(state, name)}" for name in changed)])
