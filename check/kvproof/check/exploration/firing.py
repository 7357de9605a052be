"""One firing of a rule under observation: what it may raise is a violation, and what it meets is counted."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Protocol

from kvproof.check.exploration.violation import Violated, Violation
from kvproof.spec.native import CheckFailed, Guard, Machine
from kvproof.spec.state import State

Operation = tuple[Any, ...]


class Level(Protocol):
    """What an exploration needs to know of a level: where it starts, what can be done, what must hold."""

    machine: Machine
    firings: "Firings"

    def form(self, state: State) -> Hashable:
        """What states are told apart by."""
        ...

    def successors(self, state: State) -> Iterator[tuple[Operation, State]]:
        """Every transition out of the state. Raises Violated."""
        ...

    def violation(self, state: State) -> Violation | None:
        """What the state breaks."""
        ...


class Firings:
    """Fires rules of one machine, and counts."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.fired: Counter[str] = Counter()
        self.witnesses: Counter[str] = Counter()

    def fire(self, state: State, rule: str, arguments: tuple[Any, ...], operation: Operation) -> Guard | None:
        """Fire a rule in place; the guard that refuses it, if any. Raises Violated, for the operation it is part of."""
        try:
            return self.machine.rules[rule](state, *arguments)
        except CheckFailed as failed:
            raise Violated(Violation(failed.property, f"{failed.rule}: {failed.text}"), operation) from failed
        except (IndexError, TypeError, ValueError) as error:
            text = f"{rule}{arguments} raises {type(error).__name__}: {error}"
            raise Violated(Violation("total-calls", text), operation) from error

    def count(self, rule: str, met: Iterable[str]) -> None:
        """A rule has fired, and met these witnesses."""
        self.fired[rule] += 1
        for name in met:
            self.witnesses[name] += 1
