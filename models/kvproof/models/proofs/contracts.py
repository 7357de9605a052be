"""The contracts of operations, for all sizes: an operation that fires rules again and again does what it says.

`kvproof.spec.language.Contract` lists the obligations of one firing; induction on the number of firings gives the rest.
The state in which the operation began and the state in which it is are both reachable, so they satisfy every invariant.
The conjuncts of a predicate are proved one by one.
"""

import ast
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import z3

from kvproof.models.obligation import WELL_DEFINED, Hypothesis, Obligation, Unit
from kvproof.models.proofs.induction import Induction, guards, hypotheses
from kvproof.models.proofs.least_element_lemma import by_lemma
from kvproof.models.proofs.multiplication_lemma import by_lemma_where_divided
from kvproof.models.translation.conditions import Demand
from kvproof.models.translation.maps import SymbolicState, Value
from kvproof.models.translation.rules import Outcome
from kvproof.models.translation.terms import (
    Number,
    Truth,
    are_same,
    conjunction,
    disjunction,
    implication,
    is_truth,
    negation,
)
from kvproof.models.translation.text import Text
from kvproof.models.translation.translator import Parameter, Translator
from kvproof.spec.contract_texts import CONTRACTS
from kvproof.spec.language import BLOCKS, COLLECTED, Contract, Least
from kvproof.spec.syntax_trees import made_function

SUITE = "operations"
NUM_FIRED = "num_fired"  # the parameter of a contract that counts its firings
LEFT_AT_FIRST = "something is left, or nothing"  # the variant is not negative at the start
LOOP_INVARIANT = "so far"  # the hypothesis that the loop invariant holds


def units(text: Text | None = None) -> Iterator[Unit]:
    """One unit for each contract of the specification, or of another text."""
    induction = Induction(Translator(text=text))
    for contract in CONTRACTS:
        yield Unit(SUITE, contract.name, partial(contract_obligations, induction, contract))


def contract_obligations(induction: Induction, contract: Contract) -> Iterator[Obligation]:
    """The obligations of one contract, for the text of the induction."""
    return Proof(induction, contract).obligations()


def _rule(name: str) -> Callable[..., Any]:
    return next(one for one in COLLECTED.rules if one.__name__ == name)


def _distinct(demands: Sequence[Demand]) -> list[Truth]:
    """Each demanded formula once."""
    found: list[Truth] = []
    for demand in demands:
        if not any(are_same(one, demand.formula) for one in found):
            found.append(demand.formula)
    return found


@dataclass(frozen=True)
class _Reader:
    """Reads the predicates and functions of a contract. arguments: its parameters by name."""

    translator: Translator
    arguments: Mapping[str, Any]

    def truth(self, name: str, **values: Any) -> Truth:
        """A predicate, given the states and the choices by name."""
        value = self.translator.value(name, {**self.arguments, **values}, has_demands=False).value
        assert is_truth(value)
        return value  # type: ignore[return-value]  # a truth value is no map

    def term(self, name: str, **values: Any) -> Any:
        """A function, given the states by name: a number or a row."""
        return self.translator.value(name, {**self.arguments, **values}, has_demands=False).value

    def demands(self, name: str, **values: Any) -> list[Demand]:
        """What must hold for the value to be defined."""
        return self.translator.value(name, {**self.arguments, **values}).demands

    def parts(self, name: str, **values: Any) -> Iterator[tuple[str, Truth]]:
        """Each conjunct of a predicate, with its text."""
        function, _ = self.translator.text.functions[name]
        statement = function.body[-1]
        assert isinstance(statement, ast.Return)
        whole = statement.value
        assert whole is not None
        for part in whole.values if isinstance(whole, ast.BoolOp) and isinstance(whole.op, ast.And) else [whole]:
            returned: list[ast.stmt] = [ast.copy_location(ast.Return(part), part)]
            alone = made_function(name, function.args, returned, function)
            translator = copy.copy(self.translator)  # of the same sizes
            translator.text = self.translator.text.replaced(name, alone)
            yield ast.unparse(part), replace(self, translator=translator).truth(name, **values)


@dataclass(frozen=True)
class _Firing:
    """One rule that the operation fires: its choice, the unknowns that are chosen, and the outcome."""

    rule: str
    choice: str | None
    chosen: tuple[Parameter, ...]
    known: tuple[Hypothesis, ...]
    outcome: Outcome

    @property
    def arguments(self) -> dict[str, Value]:
        """The unknowns by name."""
        return {one.name: one.value for one in self.chosen}


class Proof:
    """The obligations of one contract."""

    def __init__(self, induction: Induction, contract: Contract) -> None:
        self.contract, self.induction = contract, induction
        translator = induction.translator
        self.given = [translator.unknown(name, annotation) for name, annotation in contract.values.items()]
        self.now = self._reader(lambda fired: fired)
        self.at_first = self._reader(lambda _: 0)
        self.afterwards = self._reader(lambda fired: fired + 1)
        self.start, self.state = translator.unknown_state("start_"), induction.before
        self.known = hypotheses((f"parameter {one.name}", one.known) for one in self.given)
        self.firings = [self._firing(rule, choice) for rule, choice in contract.firings]

    def _reader(self, num_fired: Callable[[Any], Any]) -> _Reader:
        """A reader for which the count of firings is a function of the present count."""
        values = {one.name: num_fired(one.value) if one.name == NUM_FIRED else one.value for one in self.given}
        return _Reader(self.induction.translator, self.contract.arguments(values))

    def _firing(self, rule: str, choice: str | None) -> _Firing:
        translator = self.induction.translator
        names = {one.name for one in self.given}
        parameters = list(translator.parameters(_rule(rule)))
        fresh = tuple(one for one in parameters if one.name not in names)
        arguments = {one.name: one.value for one in (*self.given, *fresh)}
        outcome = translator.run(rule, self.state, *(arguments[one.name] for one in parameters))
        known = hypotheses((f"parameter {one.name}", one.known) for one in fresh)
        return _Firing(rule, choice, fresh, known, outcome)

    def obligations(self) -> Iterator[Obligation]:
        """The kinds of obligations that `Contract` lists, conjunct by conjunct; and that every read is defined."""
        contract, start, state = self.contract, self.start, self.state
        at_start = self._reachable("start", start)
        started = at_start + hypotheses([("starts", self.at_first.truth(contract.precondition, start=start))])
        for text, part in self.at_first.parts(contract.loop_invariant, start=start, state=start):
            yield self._of(f"begins: {text}", started, part)
        left_at_first = self.at_first.term(contract.variant, state=start)
        yield self._of(f"begins: {LEFT_AT_FIRST}", started, 0 <= left_at_first)

        loop_invariant = self.now.truth(contract.loop_invariant, start=start, state=state)
        reachable = at_start + self.induction.assumed
        going = reachable + hypotheses([(LOOP_INVARIANT, loop_invariant)])
        left = self.now.term(contract.variant, state=state)
        unfinished = going + hypotheses([("something is left", left > 0)])
        if contract.can_choose:
            can_choose = self.now.truth(contract.can_choose, state=state)
            yield self._of("goes on", unfinished, can_choose)
            yield from self.has_choice(unfinished + hypotheses([("can choose", can_choose)]))
        for one in self.firings:
            yield from self._fired(one, unfinished + one.known, left)
        done = going + hypotheses([("nothing is left", left == 0)])
        for text, part in self.now.parts(contract.name, start=start, state=state):
            yield self._of(f"has done: {text}", done, part)
        yield from self._defined(at_start, reachable, unfinished, done)

    def has_choice(self, choosing: tuple[Hypothesis, ...]) -> Iterator[Obligation]:
        """The witnesses of one of the rules are in their domains and satisfy its choice."""
        choices, lemmas, read = list[Truth](), list[Hypothesis](), set[str]()
        for one in self.firings:
            witnesses = self.contract.witnesses.get(one.rule, {})
            values: dict[str, Any] = {}
            for parameter in one.chosen:
                witness = witnesses[parameter.name]
                if isinstance(witness, Least):
                    values[parameter.name] = parameter.value
                    yield from self._is_an_order(witness, parameter.name, choosing)
                    lemmas.append(self._least(witness, parameter))
                    continue
                values[parameter.name] = self.now.term(witness, state=self.state)
                if witness not in read:  # rules may share it
                    demands = self.now.demands(witness, state=self.state)
                    yield from self._read(witness, demands, choosing + self.known)
                read.add(witness)
            contains = self.induction.translator.universe.contains
            known = [contains(each.domain, values[each.name]) for each in one.chosen if each.domain is not None]
            choice = True if one.choice is None else self.now.truth(one.choice, state=self.state, **values)
            choices.append(conjunction(*known, choice))
        yield self._of("has choice", choosing + tuple(lemmas), disjunction(*choices))

    def _least(self, witness: Least, parameter: Parameter) -> Hypothesis:
        """The lemma of the least element, for the set and the order that a witness names."""
        name, state = parameter.name, self.state
        return by_lemma(
            self.now.term(witness.some, state=state),
            parameter.value,  # type: ignore[arg-type]  # a block is no map
            self.induction.translator.universe.size(BLOCKS),  # type: ignore[arg-type]  # blocks have an end
            lambda one: self.now.truth(witness.among, state=state, **{name: one}),
            lambda one, other: self.now.truth(witness.before, state=state, **{name: one}, other=other),
        )

    def _is_an_order(self, witness: Least, name: str, choosing: tuple[Hypothesis, ...]) -> Iterator[Obligation]:
        """What the lemma of the least element requires of `before`."""
        one, other, third = z3.Ints("one_block other_block third_block")

        def before(first: z3.ArithRef, second: z3.ArithRef) -> Truth:
            return self.now.truth(witness.before, state=self.state, **{name: first}, other=second)

        yield self._of(f"{witness.before}: nothing goes before itself", choosing, negation(before(one, one)))
        leads = conjunction(before(one, other), before(other, third))
        yield self._of(f"{witness.before}: it is transitive", choosing, implication(leads, before(one, third)))

    def _fired(self, one: _Firing, firing: tuple[Hypothesis, ...], left: Number) -> Iterator[Obligation]:
        """The obligations of one firing of one rule."""
        contract, after = self.contract, one.outcome.state
        by = f", by {one.rule}" if contract.others else ""
        if one.choice:
            firing += hypotheses([("choice", self.now.truth(one.choice, state=self.state, **one.arguments))])
        for guard in one.outcome.guards:
            yield self._of(f"is enabled{by}: {guard.text}", firing, guard.formula)
        fired = firing + guards(one.outcome)
        for text, part in self.afterwards.parts(contract.loop_invariant, start=self.start, state=after):
            yield self._of(f"keeps on{by}: {text}", fired, part)
        left_after = self.afterwards.term(contract.variant, state=after)
        yield self._of(f"ends{by}: less is left", fired, conjunction(0 <= left_after, left_after < left))

    def _defined(
        self,
        at_start: tuple[Hypothesis, ...],
        reachable: tuple[Hypothesis, ...],
        unfinished: tuple[Hypothesis, ...],
        done: tuple[Hypothesis, ...],
    ) -> Iterator[Obligation]:
        """Every function of the contract is defined where it is read."""
        contract = self.contract
        read: list[tuple[str | None, dict[str, Value], tuple[Hypothesis, ...]]] = [
            (contract.precondition, {}, at_start),
            (contract.variant, {}, reachable),
            (contract.loop_invariant, {}, reachable),
            (contract.can_choose, {}, unfinished),
            (contract.name, {}, done),
            *((one.choice, one.arguments, unfinished + one.known) for one in self.firings),
        ]
        for name, chosen, assumed in read:
            if name is not None:
                demands = self.now.demands(name, start=self.start, state=self.state, **chosen)
                yield from self._read(name, demands, assumed + self.known)

    def _read(self, name: str, demands: Sequence[Demand], assumed: tuple[Hypothesis, ...]) -> Iterator[Obligation]:
        """The value is defined; the demands of each other function that it calls are one obligation."""
        by_function: dict[str, list[Demand]] = {}
        for demand in demands:
            by_function.setdefault(demand.chain[-1], []).append(demand)
        for function, read in by_function.items():
            inner = "" if function == name else f", in {function}"
            claim, goal = f"{name}: all that it reads is there{inner}", conjunction(*_distinct(read))
            yield Obligation(SUITE, self.contract.name, claim, WELL_DEFINED, assumed, goal, read[0].place)

    def _reachable(self, which: str, state: SymbolicState) -> tuple[Hypothesis, ...]:
        """Every invariant of one of the states."""
        names = self.induction.invariants
        return hypotheses((f"{name} of {which}", self.induction.translator.holds(name, state)) for name in names)

    def _of(self, claim: str, assumed: tuple[Hypothesis, ...], goal: Truth) -> Obligation:
        sizes = () if any(one in assumed for one in self.induction.sizes) else self.induction.sizes
        hypotheses_of_it = sizes + assumed + self.known
        if not isinstance(goal, bool) and not self.induction.translator.universe.is_concrete:
            size: Any = self.induction.translator.universe.numbers["BLOCK_SIZE"]
            hypotheses_of_it += by_lemma_where_divided(size, goal, *(one.formula for one in hypotheses_of_it))
        return Obligation(SUITE, self.contract.name, claim, self.contract.property, hypotheses_of_it, goal)
