"""A run of an operation, held against its contract, firing by firing, by the contract's own text.

For every size this is proved. Here it is evaluated natively for one operation: with it a contract is shown to be about
something, and the programs of operations are held against the contracts that speak of them.
"""

import functools
from collections import Counter
from collections.abc import Iterator, Mapping
from inspect import signature
from typing import Any

from kvproof.spec.compilation import CheckFailed
from kvproof.spec.language import COLLECTED, Contract, Least
from kvproof.spec.native import Machine
from kvproof.spec.text.state import State

NUM_FIRED = "num_fired"  # the parameter of a contract that counts its firings
Values = dict[str, Any]
PARAMETERS = {rule.__name__: tuple(signature(rule).parameters)[1:] for rule in COLLECTED.rules}


class ContractBroken(Exception):
    """A run does not do what its contract says. The message has the contract, the part of it, and what was run."""


class ContractRun:
    """One operation on a copy of a state. The machine must have ghosts.

    values: of each parameter of the contract and each field of its records, by name. state: where the operation is.
    fired: how often each rule fired.
    """

    def __init__(self, machine: Machine, contract: Contract, start: State, values: Mapping[str, Any]) -> None:
        self.machine, self.contract = machine, contract
        self.values: Values = {**values, NUM_FIRED: 0}
        self.start, self.state = machine.copy(start), machine.copy(start)
        self.fired: Counter[str] = Counter()
        self._arguments = contract.arguments(self.values)

    def value(self, name: str, **chosen: Any) -> Any:
        """The value of a function of the contract. chosen: the parameters that are chosen for a firing."""
        function, names = _function(self.machine, name)
        known = {"start": self.start, "state": self.state, **self._arguments, **chosen}
        return function(*[known[one] for one in names])

    def can_begin(self) -> bool:
        """Whether the precondition holds."""
        return bool(self.value(self.contract.precondition))

    def left(self) -> int:
        """The variant: how much is left to do."""
        return int(self.value(self.contract.variant))

    def begin(self) -> None:
        """Hold the start against the loop invariant and the variant. Raises ContractBroken."""
        self._require(self.value(self.contract.loop_invariant), "the loop invariant does not hold at the start")
        self._require(self.left() >= 0, "less than nothing is left at the start")

    def choices(self) -> Iterator[tuple[str, Values]]:
        """The rules that may fire next, each with what its witnesses choose for it."""
        for rule, choice in self.contract.firings:
            witnesses = self.contract.witnesses.get(rule, {})
            chosen = {name: self._chosen(name, witness) for name, witness in witnesses.items()}
            if choice is None or self.value(choice, **chosen):
                yield rule, chosen

    def _chosen(self, parameter: str, witness: str | Least) -> Any:
        if isinstance(witness, str):
            return self.value(witness)
        best = self.value(witness.some)
        for block in range(len(self.state.status)):
            if self.value(witness.among, **{parameter: block}) and self.value(
                witness.before, **{parameter: block}, other=best
            ):
                best = block
        return best

    def fire(self, rule: str, chosen: Values) -> None:
        """Fire a rule, and hold the firing against the contract. Raises ContractBroken."""
        contract, left = self.contract, self.left()
        called = f"{rule}({', '.join(f'{name} {value}' for name, value in chosen.items())})"
        choice = dict(contract.firings)[rule]
        self._require(left > 0, f"{called} fires although nothing is left")
        self._require(
            contract.can_choose is None or self.value(contract.can_choose), f"{called} fires where can_choose is false"
        )
        self._require(choice is None or self.value(choice, **chosen), f"{called} is not what {choice} allows")
        try:
            refused = self.machine.rules[rule](
                self.state, *[{**self.values, **chosen}[one] for one in PARAMETERS[rule]]
            )
        except (CheckFailed, IndexError) as error:
            raise self._broken(f"{called} raises {type(error).__name__}: {error}") from error
        self._require(refused is None, f"{called} is refused: {refused.sentence if refused else ''}")
        self.values[NUM_FIRED] += 1
        self._arguments = contract.arguments(self.values)
        self.fired[rule] += 1
        self._require(self.value(contract.loop_invariant), f"the loop invariant does not hold after {called}")
        left_after = self.left()
        self._require(0 <= left_after < left, f"{left} was left before {called}, {left_after} after it")

    def end(self) -> None:
        """Hold the end against the postcondition. Raises ContractBroken."""
        self._require(self.left() == 0, f"{self.left()} is left at the end")
        self._require(self.value(self.contract.name), "the postcondition does not hold")

    def _require(self, condition: object, text: str) -> None:
        if not condition:
            raise self._broken(text)

    def _broken(self, text: str) -> ContractBroken:
        given = ", ".join(f"{name} {value}" for name, value in self.values.items())
        return ContractBroken(f"{self.contract.name}: {text}; with {given}")


@functools.lru_cache(maxsize=4096)
def _function(machine: Machine, name: str) -> tuple[Any, tuple[str, ...]]:
    """A function of a machine's text, and the names of its parameters."""
    function = machine.function(name)
    return function, tuple(signature(function).parameters)
