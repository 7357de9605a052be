"""The contracts of operations: what their proofs are about, at each moment of a native run, against that run.

The instance of each contract runs natively from its beginning to its end (`proofs.contract_instances`). At its
beginning, before each firing and at its end, every hypothesis and every goal of the obligations about that moment is
evaluated: all must be true. And each function of the contract is evaluated in both ways, there and at *varied* moments,
where one cell of a state or one number that the operation is given is another: precondition, loop invariant, variant,
choices, `can_choose` and postcondition.
"""

import contextlib
import copy
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from kvproof.audit.crosscheck.comparison import (
    OUT_OF_RANGE,
    Crosscheck,
    Formulas,
    ListEnds,
    Mismatch,
    Situation,
    picture,
    run_natively,
)
from kvproof.audit.crosscheck.walk import corrupted
from kvproof.models.counterexamples.replay import watched, watched_values
from kvproof.models.crosscheck.evaluation import Evaluator
from kvproof.models.crosscheck.interpretation import Interpretation, OutOfDomain, Undecided, given, interpretation
from kvproof.models.obligation import Obligation
from kvproof.models.proofs.contract_instances import begun, firings, machine_of
from kvproof.models.proofs.contracts import Proof
from kvproof.models.translation.maps import Map
from kvproof.spec.language import Contract
from kvproof.spec.native import Machine
from kvproof.spec.text.state import State

BEGIN, END = "begin", "end"  # moments, beside those before a firing, which have the name of the rule
VARIED = 8  # moments for each moment of a run
OF_AN_ORDER = {"one_block": 0, "other_block": 1, "third_block": 2}  # what the lemma of the least element quantifies


@dataclass(frozen=True, eq=False)
class Moment:
    """A moment of a run. kind: BEGIN, END or the rule that fires next. values, chosen: arguments by name."""

    kind: str
    start: State
    state: State
    values: Mapping[str, Any]
    chosen: Mapping[str, Any]


def moments(contract: Contract, machine: Machine) -> Iterator[Moment]:
    """The moments of the run of a contract's instance."""
    run = begun(contract, machine)

    def now(kind: str, chosen: Mapping[str, Any]) -> Moment:
        return Moment(kind, run.start, machine.copy(run.state), dict(run.values), chosen)

    yield now(BEGIN, {})
    for rule, chosen in firings(run):
        yield now(rule, chosen)
    yield now(END, {})


@dataclass(eq=False)
class Function:
    """A function of a contract. counts: of its values."""

    name: str
    value: Evaluator
    demands: Formulas
    counts: Counter[int]


class ContractCheck:
    """Compares one contract. num_true: hypotheses and goals. num_values: of functions, in both ways."""

    def __init__(self, crosscheck: Crosscheck, contract: Contract, seed: int) -> None:
        self.crosscheck, self.contract, self.random = crosscheck, contract, Random(seed)
        self.machine = machine_of(crosscheck.text)
        self.proof = Proof(crosscheck.induction, contract)
        self.obligations = list(self.proof.obligations())
        self.num_true = self.num_values = 0
        self.functions = {name: self._function(name, chosen) for name, chosen in self._names()}

    def _names(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        contract = self.contract
        for name in (contract.precondition, contract.loop_invariant, contract.variant, contract.can_choose):
            if name is not None:
                yield name, {}
        yield contract.name, {}
        for one in self.proof.firings:
            if one.choice is not None:
                yield one.choice, one.arguments

    def _function(self, name: str, chosen: Mapping[str, Any]) -> Function:
        states = {"start": self.proof.start, "state": self.proof.state}
        outcome = self.crosscheck.translator.value(name, {**self.proof.now.arguments, **states, **chosen})
        assert not isinstance(outcome.value, Map)
        evaluators = self.crosscheck.evaluators
        return Function(name, evaluators.of(outcome.value), Formulas.of_demands(evaluators, outcome.demands), Counter())

    def run(self) -> None:
        """Compare at each moment of the run. Raises Mismatch."""
        formulas = self._formulas()
        for moment in moments(self.contract, self.machine):
            self._compare_obligations(moment, formulas[moment.kind])
            self._compare_functions(moment)
            for _ in range(VARIED):
                self._compare_functions(self._varied(moment))

    # Obligations

    def _formulas(self) -> dict[str, Formulas]:
        """For each kind of moment, the hypotheses and goals of the obligations about it."""
        kinds = [BEGIN, END, *(rule for rule, _ in self.contract.firings)]
        return {
            kind: Formulas(
                self.crosscheck.evaluators,
                {
                    formula.get_id() if hasattr(formula, "get_id") else name: (name, formula)
                    for obligation in self.obligations
                    if kind in self._kinds(obligation)
                    for name, formula in [
                        *((f"hypothesis {one.name}", one.formula) for one in obligation.hypotheses),
                        (f"goal {obligation.claim}", obligation.goal),
                    ]
                }.values(),
            )
            for kind in kinds
        }

    def _kinds(self, obligation: Obligation) -> set[str]:
        """The kinds of moments that an obligation is about."""
        contract, (head, _, _) = self.contract, obligation.claim.partition(":")
        if head in ("begins", contract.precondition):
            return {BEGIN}
        if head in ("has done", contract.name):
            return {END}
        rules = {rule for rule, _ in contract.firings}
        return {rule for rule, choice in contract.firings if head == choice or head.endswith(f", by {rule}")} or rules

    def _values(self, moment: Moment) -> Interpretation:
        parameters = list(self.proof.given)
        for one in self.proof.firings:
            parameters += [each for each in one.chosen if one.rule == moment.kind]
        found = interpretation(self.machine, start=moment.start, state=moment.state)
        named = given(self.machine, parameters, {**moment.values, **moment.chosen})
        return found.extended(named | OF_AN_ORDER)

    def _compare_obligations(self, moment: Moment, formulas: Formulas) -> None:
        try:
            false = formulas.first_false(self._values(moment))
        except (OutOfDomain, Undecided) as error:
            false = repr(error)
        if false is not None:
            raise self._mismatch(false, False, "a moment of a run", moment)
        self.num_true += len(formulas)

    # Functions

    def _compare_functions(self, moment: Moment) -> None:
        values = self._values(moment)
        choice = dict(self.contract.firings).get(moment.kind)
        choices = {one for _, one in self.contract.firings}
        for name, function in self.functions.items():
            if name in choices and name != choice:
                continue
            with contextlib.suppress(ListEnds):
                self._compare_function(function, moment, values)

    def _compare_function(self, function: Function, moment: Moment, values: Interpretation) -> None:
        arguments = {
            one.name: watched_values(moment.values[one.name], one.value.domains)
            if isinstance(one.value, Map)
            else moment.values[one.name]
            for one in self.proof.given
        }
        named = {**self.contract.arguments(arguments), "start": watched(moment.start), "state": watched(moment.state)}
        native = run_natively(lambda: self.machine.value(function.name, {**named, **moment.chosen}))
        symbolic: object = OUT_OF_RANGE
        if native != OUT_OF_RANGE:
            with contextlib.suppress(OutOfDomain, Undecided):
                symbolic = function.value.under(values)()
        if symbolic != native or native == OUT_OF_RANGE:
            if function.demands.first_false(values) is None:  # then the function is defined here
                raise self._mismatch(function.name, symbolic, native, moment)
            return
        function.counts[native] += 1
        self.num_values += 1

    def _varied(self, moment: Moment) -> Moment:
        """The moment with one cell of one of its states, or one number of what the operation is given, changed."""
        match self.random.randrange(3):
            case 0:
                return replace(moment, start=corrupted(self.random, self.machine, moment.start))
            case 1:
                return replace(moment, state=corrupted(self.random, self.machine, moment.state))
        chosen = self.random.random() < 0.5 and bool(moment.chosen)
        values = copy.deepcopy(dict(moment.chosen if chosen else moment.values))
        name = self.random.choice(list(values))
        values[name] = self._another(values[name])
        return replace(moment, chosen=values) if chosen else replace(moment, values=values)

    def _another(self, value: Any) -> Any:
        if not isinstance(value, list):
            return max(0, value + self.random.choice([-1, 1]))
        place = self.random.randrange(min(len(value), self.machine.sizes.num_indexes))  # a native run reads no others
        return [*value[:place], self._another(value[place]), *value[place + 1 :]]

    def _mismatch(self, place: str, symbolic: object, native: object, moment: Moment) -> Mismatch:
        states = "\n".join(
            f" {name}:\n{picture(Situation(self.machine, state))}"
            for name, state in (("start", moment.start), ("state", moment.state))
        )
        return Mismatch(
            f"{self.contract.name}, {place}: the translator gives {symbolic}, the native run gives {native}; given "
            f"{dict(moment.values)}, chosen {dict(moment.chosen)}, at {moment.kind}, in\n{states}"
        )
