"""The contracts of operations, for all sizes: an operation that fires rules again and again does what it says.

`kvproof.spec.language.Contract` lists what has to be shown of one firing; induction on the number of firings gives
the rest. The states where the operation began and where it is can be reached, so they satisfy every invariant. What
has several parts joined by `and` is proved part by part.
"""

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvproof.models.proofs.induction import Induction, hypotheses
from kvproof.models.proofs.multiplication_lemma import by_lemma_where_divided
from kvproof.models.proofs.obligation import WELL_DEFINED, Hypothesis, Obligation
from kvproof.models.translation.conditions import Demand
from kvproof.models.translation.maps import SymbolicState, Value
from kvproof.models.translation.rules import Outcome
from kvproof.models.translation.terms import Number, Truth, are_same, conjunction, is_truth
from kvproof.models.translation.text import Text
from kvproof.models.translation.translator import Parameter, Translator
from kvproof.spec.language import COLLECTED, Contract

SUITE = "operations"
FIRED = "fired"  # the parameter of a contract that counts its firings
LEFT_AT_FIRST = "something is left, or nothing"  # what is left is counted from the beginning
SO_FAR = "so far"  # the hypothesis that says what holds after any number of them


def obligations(text: Text | None = None) -> Iterator[Obligation]:
    """What is to be proved of every contract of the specification, or of another text."""
    induction = Induction(Translator(text=text))
    for contract in COLLECTED.contracts:
        yield from contract_obligations(induction, contract)


def contract_obligations(induction: Induction, contract: Contract) -> Iterator[Obligation]:
    """What is to be proved of one contract, of the text that the induction is about."""
    return Proof(induction, contract).obligations()


def _function(name: str) -> Callable[..., Any]:
    return next(one for one in (*COLLECTED.words, *COLLECTED.rules) if one.__name__ == name)


def _different(demands: Sequence[Demand]) -> list[Truth]:
    """What is demanded, once."""
    found: list[Truth] = []
    for demand in demands:
        if not any(are_same(one, demand.formula) for one in found):
            found.append(demand.formula)
    return found


def _one_more(count: Any) -> Value:
    more: Value = count + 1
    return more


@dataclass
class _Words:
    """The parameters of a contract, and its words read at given states."""

    translator: Translator
    given: list[Parameter]

    def truth(self, word: str, *states: SymbolicState, chosen: tuple[Parameter, ...] = ()) -> Truth:
        value = self._value(word, *states, chosen=chosen)
        assert is_truth(value)
        return value  # type: ignore[return-value]  # a truth value is no map

    def number(self, word: str, *states: SymbolicState) -> Number:
        value: Any = self._value(word, *states)
        return value  # type: ignore[no-any-return]

    def _value(self, word: str, *states: SymbolicState, chosen: tuple[Parameter, ...] = ()) -> Value:
        return self.translator.call(word, *states, *(one.value for one in (*self.given, *chosen))).value

    def parts(self, word: str, *states: SymbolicState) -> Iterator[tuple[str, Truth]]:
        """What the word says, one part for each that it joins by `and`, with its text."""
        function, _ = self.translator.text.functions[word]
        statement = function.body[-1]
        assert isinstance(statement, ast.Return)
        whole = statement.value
        assert whole is not None
        for part in whole.values if isinstance(whole, ast.BoolOp) and isinstance(whole.op, ast.And) else [whole]:
            alone = ast.FunctionDef(word, function.args, [ast.copy_location(ast.Return(part), part)], [])
            translator = copy.copy(self.translator)  # of the same sizes
            translator.text = self.translator.text.replaced(word, ast.copy_location(alone, function))
            yield ast.unparse(part), _Words(translator, self.given).truth(word, *states)


@dataclass(frozen=True)
class _Firing:
    """One rule that the operation fires: what is chosen for it, and what it gives."""

    rule: str
    choice: str | None
    chosen: tuple[Parameter, ...]
    known: tuple[Hypothesis, ...]
    outcome: Outcome


class Proof:
    """The obligations of one contract."""

    def __init__(self, induction: Induction, contract: Contract) -> None:
        self.contract, self.induction = contract, induction
        translator = induction.translator
        given = list(translator.parameters(_function(contract.starts)))
        self.words = _Words(translator, given)
        self.at_first = _Words(translator, [replace(one, value=0) if one.name == FIRED else one for one in given])
        self.afterwards = _Words(
            translator, [replace(one, value=_one_more(one.value)) if one.name == FIRED else one for one in given]
        )
        self.start, self.state = translator.unknown_state("start_"), induction.before
        self.known = hypotheses((f"parameter {one.name}", one.known) for one in given)
        self.firings = [self._firing(rule, choice) for rule, choice in contract.firings]

    def _firing(self, rule: str, choice: str | None) -> _Firing:
        given, translator = self.words.given, self.induction.translator
        names = {one.name for one in given}
        parameters = list(translator.parameters(_function(rule)))
        fresh = tuple(one for one in parameters if one.name not in names)
        arguments = {one.name: one.value for one in (*given, *fresh)}
        outcome = translator.run(rule, self.state, *(arguments[one.name] for one in parameters))
        known = hypotheses((f"parameter {one.name}", one.known) for one in fresh)
        return _Firing(rule, choice, fresh, known, outcome)

    def obligations(self) -> Iterator[Obligation]:
        """The six obligations of the contract, in their parts; and that all its words are defined."""
        contract, words = self.contract, self.words
        at_start = self._reachable("start", self.start)
        started = at_start + hypotheses([("starts", self.at_first.truth(contract.starts, self.start))])
        for text, part in self.at_first.parts(contract.so_far, self.start, self.start):
            yield self._of(f"begins: {text}", started, part)
        left_at_first = self.at_first.number(contract.left, self.start)
        yield self._of(f"begins: {LEFT_AT_FIRST}", started, 0 <= left_at_first)

        so_far = words.truth(contract.so_far, self.start, self.state)
        reachable = at_start + self.induction.assumed
        going = reachable + hypotheses([(SO_FAR, so_far)])
        left = words.number(contract.left, self.state)
        unfinished = going + hypotheses([("something is left", left > 0)])
        if contract.can_choose:
            yield self._of("goes on", unfinished, words.truth(contract.can_choose, self.state))
        for one in self.firings:
            yield from self._fired(one, unfinished + one.known, left)
        done = going + hypotheses([("nothing is left", left == 0)])
        for text, part in words.parts(contract.name, self.start, self.state):
            yield self._of(f"has done: {text}", done, part)
        yield from self._defined(at_start, reachable, unfinished, done)

    def _fired(self, one: _Firing, firing: tuple[Hypothesis, ...], left: Number) -> Iterator[Obligation]:
        """What has to be shown of one firing of one rule."""
        contract = self.contract
        by = f", by {one.rule}" if contract.others else ""
        if one.choice:
            firing += hypotheses([("choice", self.words.truth(one.choice, self.state, chosen=one.chosen))])
        for guard in one.outcome.guards:
            yield self._of(f"is enabled{by}: {guard.text}", firing, guard.formula)
        fired = firing + hypotheses((f"guard: {guard.text}", guard.formula) for guard in one.outcome.guards)
        for text, part in self.afterwards.parts(contract.so_far, self.start, one.outcome.state):
            yield self._of(f"keeps on{by}: {text}", fired, part)
        left_after = self.afterwards.number(contract.left, one.outcome.state)
        yield self._of(f"ends{by}: less is left", fired, conjunction(0 <= left_after, left_after < left))

    def _defined(
        self,
        at_start: tuple[Hypothesis, ...],
        reachable: tuple[Hypothesis, ...],
        unfinished: tuple[Hypothesis, ...],
        done: tuple[Hypothesis, ...],
    ) -> Iterator[Obligation]:
        """Every word of the contract reads only what is there, where it is asked."""
        contract = self.contract
        read: list[tuple[str | None, tuple[SymbolicState, ...], tuple[Parameter, ...], tuple[Hypothesis, ...]]] = [
            (contract.starts, (self.start,), (), at_start),
            (contract.left, (self.state,), (), reachable),
            (contract.so_far, (self.start, self.state), (), reachable),
            (contract.can_choose, (self.state,), (), unfinished),
            (contract.name, (self.start, self.state), (), done),
            *((one.choice, (self.state,), one.chosen, unfinished + one.known) for one in self.firings),
        ]
        for word, states, chosen, assumed in read:
            if word is not None:
                arguments = [one.value for one in (*self.words.given, *chosen)]
                demands = self.induction.translator.call(word, *states, *arguments).demands
                yield from self._read(word, demands, assumed + self.known)

    def _read(self, word: str, demands: Sequence[Demand], assumed: tuple[Hypothesis, ...]) -> Iterator[Obligation]:
        """What a word reads is there; what it reads through one other word is one obligation."""
        by_function: dict[str, list[Demand]] = {}
        for demand in demands:
            by_function.setdefault(demand.chain[-1], []).append(demand)
        for function, read in by_function.items():
            inner = "" if function == word else f", in {function}"
            claim, goal = f"{word}: all that it reads is there{inner}", conjunction(*_different(read))
            yield Obligation(SUITE, self.contract.name, claim, WELL_DEFINED, assumed, goal, read[0].place)

    def _reachable(self, which: str, state: SymbolicState) -> tuple[Hypothesis, ...]:
        """Every invariant, of one of the states."""
        names = self.induction.invariants
        return hypotheses((f"{name} of {which}", self.induction.translator.holds(name, state)) for name in names)

    def _of(self, claim: str, assumed: tuple[Hypothesis, ...], goal: Truth) -> Obligation:
        sizes = () if any(one in assumed for one in self.induction.sizes) else self.induction.sizes
        hypotheses_of_it = sizes + assumed + self.known
        if not isinstance(goal, bool) and not self.induction.translator.universe.is_concrete:
            size: Any = self.induction.translator.universe.numbers["BLOCK_SIZE"]
            hypotheses_of_it += by_lemma_where_divided(size, goal, *(one.formula for one in hypotheses_of_it))
        return Obligation(SUITE, self.contract.name, claim, self.contract.property, hypotheses_of_it, goal)
