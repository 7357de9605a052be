"""The text of the specification of stores, run beside what is opened: a state of some sizes, and its rules.

A guard that refuses a rule is the finding. Stores, caches of encoder outputs and pairs of engines are judged so.
"""

from collections import Counter
from typing import Any

from kvproof.check.protocol.finding import Finding
from kvproof.spec.compilation import Guard
from kvproof.spec.store.machine import StoreMachine, StoreSizes


class RunningText:
    """A state, and what fires rules on it."""

    def __init__(self, sizes: StoreSizes, coverage: Counter[str]) -> None:
        self.machine, self.coverage = StoreMachine(sizes, with_ghosts=False, with_checks=False), coverage
        self.state: Any = self.machine.first_state()
        self.rules = self.machine.rules

    def fire(self, name: str, context: str, *arguments: Any) -> None:
        """Fire a rule that explains the call `context`. Raises Finding if a guard refuses."""
        self.coverage[name] += 1
        guard = self.rules[name](self.state, *arguments)
        if guard is None:
            return
        if not guard.property:
            raise AssertionError(f"the judge fired {name}{arguments} for {context}; a guard refused: {guard.sentence}")
        raise self.refused(guard, name, arguments, context)

    def refused(self, guard: Guard, name: str, arguments: tuple[Any, ...], context: str) -> Finding:
        """The finding that a guard has refused a rule."""
        return Finding(guard.property, f"it must be that {guard.sentence}", call=context, rule=name)
