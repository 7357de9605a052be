"""Fire rules and count: an error that a rule raises refutes the specification, and witnesses are counted."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from kvproof.check.protocol.finding import Finding
from kvproof.check.search.exhaustive.breadth_first import Operation, RefutedAt
from kvproof.spec.native import CheckFailed, Guard, Machine
from kvproof.spec.text.operations import RuleCall
from kvproof.spec.text.state import State
from kvproof.spec.text.witnesses import SEEN_AFTER, SEEN_BEFORE, witnesses_after, witnesses_before

BROKEN = (CheckFailed, IndexError, TypeError, ValueError)  # what a wrong rule may raise


class Firings:
    """Fires rules of one machine, and counts."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.fired: Counter[str] = Counter()
        self.witnesses: Counter[str] = Counter()

    def fire(self, state: State, rule: str, arguments: tuple[Any, ...], operation: Operation) -> Guard | None:
        """Fire one rule in place; the guard that refuses it, if any. Raises RefutedAt, for `operation`."""
        try:
            return self.machine.rules[rule](state, *arguments)
        except BROKEN as error:
            raise refuted(error, (rule, *arguments), operation) from error

    def run(self, state: State, program: Iterator[RuleCall], operation: Operation) -> Guard | None:
        """Fire a program in place up to the guard that refuses it, if any. Raises RefutedAt, for `operation`."""
        rules, fired, witnesses = self.machine.rules, self.fired, self.witnesses
        firing: tuple[Any, ...] = ()
        try:
            for rule, arguments in program:
                firing = (rule, *arguments)
                observed = witnesses_before(state, rule, arguments) if rule in SEEN_BEFORE else []
                if refused := rules[rule](state, *arguments):
                    return refused
                if rule in SEEN_AFTER:
                    observed += witnesses_after(state, rule, arguments)
                fired[rule] += 1
                for name in observed:
                    witnesses[name] += 1
        except BROKEN as error:
            raise refuted(error, firing, operation) from error
        return None

    def count(self, rule: str, observed: Iterable[str]) -> None:
        """Count that a rule has fired, and that these witnesses were observed."""
        self.fired[rule] += 1
        for name in observed:
            self.witnesses[name] += 1


def refuted(error: Exception, firing: tuple[Any, ...], operation: Operation) -> RefutedAt:
    """The refutation that an error in a rule means."""
    if isinstance(error, CheckFailed):
        return RefutedAt(Finding(error.property, f"{error.rule}: {error.text}"), operation)
    rule, *arguments = firing or ("nothing",)
    text = f"{rule}{tuple(arguments)} raises {type(error).__name__}: {error}"
    return RefutedAt(Finding("total-calls", text), operation)
