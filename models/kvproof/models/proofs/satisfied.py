"""Native states in which hypotheses hold: the very formulas that a solver is given, evaluated there.

For a rule it is a state that rules have reached and from which the rule fires; for a contract, the states of the run of
its instance (`contract_instances`), at its beginning, before each firing and at its end. `kvproof.models.crosscheck`
evaluates a formula for every size, so a state in which all hypotheses hold is a model of them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from inspect import signature
from itertools import product
from typing import Any

from kvproof.models.crosscheck.evaluation import Evaluators
from kvproof.models.crosscheck.interpretation import Interpretation, OutOfDomain, Undecided, given, interpretation
from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.proofs import stores
from kvproof.models.proofs.contract_instances import (
    INSTANCES,
    REMAINING_RULES,
    NotReached,
    begun,
    fired,
    firings,
    machine_of,
)
from kvproof.models.proofs.induction import SUITE
from kvproof.models.translation.text import Text, specification
from kvproof.models.translation.translator import Translator
from kvproof.spec.contract_run import PARAMETERS, ContractBroken
from kvproof.spec.contract_texts import CONTRACTS
from kvproof.spec.language import COLLECTED, Contract
from kvproof.spec.native import FIELDS, MachineOf
from kvproof.spec.store.machine import STORES
from kvproof.spec.text.state import State

RULES = {rule.__name__: rule for rule in COLLECTED.rules}


class NativeStates:
    """The native states in which the hypotheses of one text are evaluated."""

    def __init__(self, text: Text | None = None) -> None:
        text = text or specification()
        self._machine, self._translator, self._evaluators = machine_of(text), Translator(text=text), Evaluators()
        self._of_contracts: dict[str, list[Interpretation]] = {}

    def satisfy(self, obligation: Obligation) -> bool:
        """Whether all hypotheses of an obligation of the specification, or of a contract, hold in one of the states."""
        return any(self._holds(obligation.hypotheses, values) for values in self._values(obligation))

    def _holds(self, hypotheses: tuple[Hypothesis, ...], values: Interpretation) -> bool:
        try:
            return all(self._evaluators.of(one.formula).under(values)() for one in hypotheses)
        except (OutOfDomain, Undecided, KeyError):  # a formula is about something else, such as another rule's choice
            return False

    def _values(self, obligation: Obligation) -> Iterator[Interpretation]:
        if obligation.suite == STORES.name:
            yield from self._of_stores
            return
        if obligation.suite == SUITE:
            if obligation.subject in self._of_rules:
                yield self._of_rules[obligation.subject]
            elif obligation.subject not in RULES:
                yield self._of_claims
            return
        contract = next((one for one in CONTRACTS if one.name == obligation.subject), None)
        if contract is not None:
            if contract.name not in self._of_contracts:
                self._of_contracts[contract.name] = list(self._of_run(contract))
            yield from self._of_contracts[contract.name]

    @cached_property
    def _of_rules(self) -> dict[str, Interpretation]:
        """The first firing of each rule on the way to the instances, and in them."""
        found: dict[str, Interpretation] = {}
        for state, rule, arguments in self._fired():
            if rule not in found:
                parameters = list(self._translator.parameters(RULES[rule]))
                named = dict(zip((one.name for one in parameters), arguments, strict=True))
                values = interpretation(self._machine, state=state)
                found[rule] = values.extended(given(self._machine, parameters, named))
        return found

    def _fired(self) -> Iterator[tuple[State, str, tuple[object, ...]]]:
        for one in (REMAINING_RULES, *(instance.before for instance in INSTANCES.values())):
            with suppress(NotReached):
                yield from fired(self._machine, self._machine.first_state(), one)
        for contract in CONTRACTS:
            with suppress(NotReached, ContractBroken, IndexError):
                run = begun(contract, self._machine)
                for rule, chosen in firings(run):
                    arguments = tuple((run.values | chosen)[name] for name in PARAMETERS[rule])
                    yield self._machine.copy(run.state), rule, arguments

    @cached_property
    def _of_stores(self) -> list[Interpretation]:
        """The states of the runs of stores, with the rule that fires there, or with two that may fire in any order."""
        translator, machine = Translator(text=specification(STORES)), stores.machine_of()
        marked = {rule.__name__: rule for rule in STORES.collected.rules}
        found = list[Interpretation]()
        for state, rule, arguments, _ in stores.fired(machine):
            twins = {f"{domain.name.lower()}_0": 0 for domain in STORES.domains.values()}
            values = interpretation(machine, state=state, twin=state).extended(twins)
            found.append(values.extended(_arguments(machine, translator, marked[rule], arguments)))
        *_, (*_, busy) = stores.fired(machine, stores.BUSY)
        for (one, (first, _)), (other, (_, second)) in product(stores.AT_ONCE.items(), repeat=2):
            values = interpretation(machine, state=busy)
            values = values.extended(_arguments(machine, translator, marked[one], first, "first_"))
            found.append(values.extended(_arguments(machine, translator, marked[other], second, "second_")))
        return found

    @cached_property
    def _of_claims(self) -> Interpretation:
        """A state in which sequences share blocks, its twin, which is equal, and an index of each domain."""
        state = self._machine.first_state()
        with suppress(NotReached):  # then the state is an earlier one
            for _ in fired(self._machine, state, INSTANCES["move_entry"].before):
                pass
        indexes = {
            f"{domain.name.lower()}_{place}": 0 for one in FIELDS.values() for place, domain in enumerate(one.domains)
        }
        return interpretation(self._machine, state=state, twin=state).extended(indexes)

    def _of_run(self, contract: Contract) -> Iterator[Interpretation]:
        """The states of the run of a contract's instance, each with what is given, and what is chosen there."""
        parameters = [self._translator.unknown(name, annotation) for name, annotation in contract.values.items()]
        with suppress(NotReached, ContractBroken, IndexError):
            run = begun(contract, self._machine)
            for rule, chosen in firings(run):
                values = interpretation(self._machine, start=run.start, state=run.state)
                values = values.extended(given(self._machine, parameters, run.values))
                of_rule = [one for one in self._translator.parameters(RULES[rule]) if one.name in chosen]
                yield values.extended(given(self._machine, of_rule, chosen))
            values = interpretation(self._machine, start=run.start, state=run.state)
            yield values.extended(given(self._machine, parameters, run.values))


def _arguments(
    machine: MachineOf[Any],
    translator: Translator,
    rule: Callable[..., Any],
    arguments: Sequence[Any],
    prefix: str = "",
) -> dict[str, Any]:
    """The symbols of the arguments of a rule. prefix: of the names of its parameters."""
    named = list(signature(rule).parameters.values())[1:]
    parameters = [translator.unknown(prefix + one.name, one.annotation) for one in named]
    return given(machine, parameters, {prefix + one.name: each for one, each in zip(named, arguments, strict=True)})
