"""The contracts of operations, for all sizes: an operation that fires one rule again and again does what it says.

`kvproof.spec.language.Contract` lists what has to be shown of one firing; induction on the number of firings gives
the rest. The states where the operation began and where it is can be reached, so they satisfy every invariant. What
has several parts joined by `and` is proved part by part.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kvproof.models.induction import Induction, defined, hypotheses
from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.products import by_lemma_where_divided
from kvproof.models.translation.maps import SymbolicState, Value
from kvproof.models.translation.terms import Number, Truth, conjunction, is_truth
from kvproof.models.translation.text import Text
from kvproof.models.translation.translator import Parameter, Translator
from kvproof.spec.language import COLLECTED, Contract

SUITE = "operations"


def obligations(text: Text | None = None) -> Iterator[Obligation]:
    """What is to be proved of every contract of the specification, or of another text."""
    induction = Induction(Translator(text=text))
    for contract in COLLECTED.contracts:
        yield from contract_obligations(induction, contract)


def contract_obligations(induction: Induction, contract: Contract) -> Iterator[Obligation]:
    """What is to be proved of one contract, of the text that the induction is about."""
    return _Proof(induction, contract).obligations()


def _function(name: str) -> Callable[..., Any]:
    return next(one for one in (*COLLECTED.words, *COLLECTED.rules) if one.__name__ == name)


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
            translator = Translator(text=self.translator.text.replaced(word, ast.copy_location(alone, function)))
            yield ast.unparse(part), _Words(translator, self.given).truth(word, *states)


class _Proof:
    def __init__(self, induction: Induction, contract: Contract) -> None:
        self.contract, self.induction = contract, induction
        translator = induction.translator
        self.words = _Words(translator, list(translator.parameters(_function(contract.starts))))
        self.start, self.state = translator.unknown_state("start_"), induction.before
        names = {one.name for one in self.words.given}
        fresh = [one for one in translator.parameters(_function(contract.rule)) if one.name not in names]
        self.chosen = tuple(fresh)
        arguments = {one.name: one.value for one in (*self.words.given, *fresh)}
        order = [one.name for one in translator.parameters(_function(contract.rule))]
        self.fired = translator.run(contract.rule, self.state, *(arguments[name] for name in order))
        self.known = hypotheses((f"parameter {one.name}", one.known) for one in (*self.words.given, *fresh))

    def obligations(self) -> Iterator[Obligation]:
        """The six obligations of the contract, in their parts; and that all its words are defined."""
        contract, words = self.contract, self.words
        at_start = self._reachable("start", self.start)
        started = self._reachable("start", self.start) + hypotheses(
            [("starts", words.truth(contract.starts, self.start))]
        )
        for text, part in words.parts(contract.so_far, self.start, self.start):
            yield self._of(f"begins: {text}", started, part)
        yield self._of("begins: something is left, or nothing", started, 0 <= words.number(contract.left, self.start))

        so_far = words.truth(contract.so_far, self.start, self.state)
        reachable = at_start + self.induction.assumed
        going = reachable + hypotheses([("so far", so_far)])
        left = words.number(contract.left, self.state)
        unfinished = going + hypotheses([("something is left", left > 0)])
        if contract.can_choose:
            yield self._of("goes on", unfinished, words.truth(contract.can_choose, self.state))
        firing = unfinished
        if contract.choice:
            firing += hypotheses([("choice", words.truth(contract.choice, self.state, chosen=self.chosen))])
        for guard in self.fired.guards:
            yield self._of(f"is enabled: {guard.text}", firing, guard.formula)
        fired = firing + hypotheses((f"guard: {guard.text}", guard.formula) for guard in self.fired.guards)
        for text, part in words.parts(contract.so_far, self.start, self.fired.state):
            yield self._of(f"keeps on: {text}", fired, part)
        left_after = words.number(contract.left, self.fired.state)
        yield self._of("ends: less is left", fired, conjunction(0 <= left_after, left_after < left))
        done = going + hypotheses([("nothing is left", left == 0)])
        for text, part in words.parts(contract.name, self.start, self.state):
            yield self._of(f"has done: {text}", done, part)
        yield from self._defined(at_start, reachable, done)

    def _defined(
        self, at_start: tuple[Hypothesis, ...], reachable: tuple[Hypothesis, ...], done: tuple[Hypothesis, ...]
    ) -> Iterator[Obligation]:
        """Every word of the contract reads only what is there, where it is asked."""
        contract = self.contract
        read: list[tuple[str | None, tuple[SymbolicState, ...], tuple[Parameter, ...], tuple[Hypothesis, ...]]] = [
            (contract.starts, (self.start,), (), at_start),
            (contract.left, (self.state,), (), reachable),
            (contract.so_far, (self.start, self.state), (), reachable),
            (contract.can_choose, (self.state,), (), reachable),
            (contract.choice, (self.state,), self.chosen, reachable),
            (contract.name, (self.start, self.state), (), done),
        ]
        for word, states, chosen, assumed in read:
            if word is not None:
                arguments = [one.value for one in (*self.words.given, *chosen)]
                demands = self.induction.translator.call(word, *states, *arguments).demands
                for one in defined(SUITE, contract.name, demands, assumed + self.known):
                    yield Obligation(
                        SUITE, one.subject, f"{word}: {one.claim}", one.property, one.hypotheses, one.goal, one.place
                    )

    def _reachable(self, which: str, state: SymbolicState) -> tuple[Hypothesis, ...]:
        """Every invariant, of one of the states."""
        names = self.induction.invariants
        return hypotheses((f"{name} of {which}", self.induction.translator.holds(name, state)) for name in names)

    def _of(self, claim: str, assumed: tuple[Hypothesis, ...], goal: Truth) -> Obligation:
        sizes = () if any(one in assumed for one in self.induction.sizes) else self.induction.sizes
        hypotheses_of_it = sizes + assumed + self.known
        if not isinstance(goal, bool):
            size: Any = self.induction.translator.universe.numbers["BLOCK_SIZE"]
            hypotheses_of_it += by_lemma_where_divided(size, goal, *(one.formula for one in hypotheses_of_it))
        return Obligation(SUITE, self.contract.name, claim, self.contract.property, hypotheses_of_it, goal)
