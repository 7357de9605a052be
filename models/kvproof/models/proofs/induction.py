"""The proof of the specification, for all sizes, by induction over the rules.

The first state satisfies every invariant; each rule, from any state that satisfies them all, leaves a state that does.
So every reachable state does, for any number of blocks, sequences, slots and steps. In addition, every `check` holds
where a rule reaches it; every theorem follows from the invariants; every subscript is in range, and every operation on
a row within its row; and each derived field is determined by the real ones.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import z3

from kvproof.models.obligation import WELL_DEFINED, Hypothesis, Obligation, Unit
from kvproof.models.translation.conditions import Demand
from kvproof.models.translation.dependencies import fields_read
from kvproof.models.translation.maps import SymbolicState
from kvproof.models.translation.rules import Outcome, Required
from kvproof.models.translation.terms import Truth, are_same, conjunction, equal
from kvproof.models.translation.text import Text
from kvproof.models.translation.translator import Translator

SUITE = "specification"
INITIAL, THEOREM = "initial", "theorem"  # subjects that are no rule
DERIVED_PROPERTY = "lists-agree"

Rule = Callable[..., Any]


def units(text: Text | None = None) -> Iterator[Unit]:
    """The units of the specification, or of another text."""
    return Induction(Translator(text=text)).units()


class Induction:
    """The obligations of one text of a specification."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self.suite, self.collected = translator.system.name, translator.system.collected
        self.before = translator.unknown_state()

    def units(self) -> Iterator[Unit]:
        """The first state, the theorems, each claim, each rule."""
        yield Unit(self.suite, INITIAL, self.initial)
        yield Unit(self.suite, THEOREM, self.theorems)
        for claim in (*self.collected.invariants, *self.collected.theorems):
            yield Unit(self.suite, claim.name, partial(self.claim_is_defined, claim.name))
        for rule in self.collected.rules:
            yield Unit(self.suite, rule.__name__, partial(self.rule, rule))

    @cached_property
    def _depends(self) -> dict[str, frozenset[str]]:
        """The fields that each invariant reads."""
        return {claim.name: fields_read(self.translator.text, claim.name) for claim in self.collected.invariants}

    @cached_property
    def sizes(self) -> tuple[Hypothesis, ...]:
        """The assumptions about the sizes."""
        return tuple(Hypothesis(f"sizes: {one}", one) for one in self.translator.universe.assumptions())

    @cached_property
    def invariants(self) -> dict[str, Truth]:
        """Each invariant of the state before, by name."""
        return {claim.name: self.translator.holds(claim.name, self.before) for claim in self.collected.invariants}

    @cached_property
    def assumed(self) -> tuple[Hypothesis, ...]:
        """The assumptions about the sizes, and every invariant of the state before."""
        return self.sizes + hypotheses(self.invariants.items())

    def initial(self) -> Iterator[Obligation]:
        """Each invariant holds of the first state."""
        state = self.translator.first_state()
        for claim in self.collected.invariants:
            goal = self.translator.holds(claim.name, state)
            yield Obligation(self.suite, INITIAL, claim.name, claim.property, self.sizes, goal)

    def theorems(self) -> Iterator[Obligation]:
        """Each theorem follows from the invariants, and derived fields from the real ones."""
        for claim in self.collected.theorems:
            goal = self.translator.holds(claim.name, self.before)
            yield Obligation(self.suite, THEOREM, claim.name, claim.property, self.assumed, goal)
        yield from self._derived_fields()

    def _derived_fields(self) -> Iterator[Obligation]:
        """Two states with the same real fields have the same derived ones."""
        twin = self.translator.unknown_state("twin_")
        fields = self.translator.system.fields
        real = {name: self.before.maps[name] for name, field in fields.items() if field.kind == "real"}
        twin = SymbolicState({**twin.maps, **real})
        known = {f"{name} of the twin": self._invariant(name, twin) for name in self.invariants}
        for name, field in fields.items():
            if field.kind != "derived":
                continue
            indexes = [z3.Int(f"{domain.name.lower()}_{place}") for place, domain in enumerate(field.domains)]
            within = [
                self.translator.universe.contains(domain, index)
                for domain, index in zip(field.domains, indexes, strict=True)
            ]
            assumed = self.assumed + hypotheses([*known.items(), ("indexes", conjunction(*within))])
            goal = equal(self.before.maps[name].read(*indexes), twin.maps[name].read(*indexes))
            claim = f"{name} is determined by the real fields"
            yield Obligation(self.suite, THEOREM, claim, DERIVED_PROPERTY, assumed, goal)

    def claims_are_defined(self) -> Iterator[Obligation]:
        """Every read of an invariant or theorem is in range."""
        for claim in (*self.collected.invariants, *self.collected.theorems):
            yield from self.claim_is_defined(claim.name)

    def claim_is_defined(self, name: str) -> Iterator[Obligation]:
        """Every read of this invariant or theorem is in range."""
        yield from defined(self.suite, name, self.translator.run(name, self.before).demands, self.assumed)

    def rule(self, rule: Rule) -> Iterator[Obligation]:
        """A rule reads and writes in range, its checks hold, and it keeps every invariant."""
        name = rule.__name__
        parameters = list(self.translator.parameters(rule))
        known = self.assumed + hypotheses((f"parameter {one.name}", one.known) for one in parameters)
        outcome = self.translator.run(name, self.before, *(one.value for one in parameters))
        yield from defined(self.suite, name, outcome.demands, known)
        enabled = known + guards(outcome)
        yield from checked(self.suite, name, outcome.checks, enabled)
        for claim in self.collected.invariants:
            goal = self._invariant(claim.name, outcome.state)
            yield Obligation(self.suite, name, claim.name, claim.property, enabled, goal)

    def _invariant(self, name: str, state: SymbolicState) -> Truth:
        """The invariant of a state. If no field that it reads was written, it is the invariant of the state before."""
        changed = {field for field, map in state.maps.items() if map is not self.before.maps[field]}
        if not changed & self._depends[name]:
            return self.invariants[name]
        return self.translator.holds(name, state)


def hypotheses(named: Iterable[tuple[str, Truth]]) -> tuple[Hypothesis, ...]:
    """The formulas as hypotheses, except those that are trivially true."""
    found = []
    for name, formula in named:
        if not isinstance(formula, bool):
            found.append(Hypothesis(name, formula))
        elif not formula:
            found.append(Hypothesis(name, z3.BoolVal(False)))
    return tuple(found)


def guards(outcome: Outcome) -> tuple[Hypothesis, ...]:
    """The guards of a rule as hypotheses. Each name has the property of the guard, so that the pin has it too."""
    properties = [f" ({guard.property})" if guard.property else "" for guard in outcome.guards]
    named = zip(outcome.guards, properties, strict=True)
    return hypotheses((f"guard: {guard.text}{property}", guard.formula) for guard, property in named)


def defined(
    suite: str, subject: str, demands: Sequence[Demand], assumed: tuple[Hypothesis, ...]
) -> Iterator[Obligation]:
    """Every value that is read is defined. The demands of one place, however it is reached, are one obligation."""
    formulas: dict[tuple[str, ...], list[Truth]] = {}
    places: dict[tuple[str, ...], str] = {}
    for demand in demands:
        key = (demand.text, *demand.chain[1:][-1:])
        known = formulas.setdefault(key, [])
        if not any(are_same(one, demand.formula) for one in known):
            known.append(demand.formula)
        places[key] = demand.place
    for key, parts in formulas.items():
        yield Obligation(suite, subject, _claim(*key), WELL_DEFINED, assumed, conjunction(*parts), places[key])


def checked(
    suite: str, subject: str, checks: Sequence[Required], enabled: tuple[Hypothesis, ...]
) -> Iterator[Obligation]:
    """Every check holds where it is reached."""
    formulas: dict[tuple[str, ...], list[Required]] = {}
    for check in checks:
        formulas.setdefault((f"check {check.text}", *check.chain[1:]), []).append(check)
    for key, parts in formulas.items():
        goal = conjunction(*(one.formula for one in parts))
        yield Obligation(suite, subject, _claim(*key), parts[0].property, enabled, goal, parts[0].place)


def _claim(text: str, *chain: str) -> str:
    return f"{text}, in {' > '.join(chain)}" if chain else text
