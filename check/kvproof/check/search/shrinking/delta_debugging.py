"""The minimiser: a shorter run that refutes the same property in the same way.

Delta debugging on operations, then simpler configurations, then simpler arguments, until nothing helps. A candidate
counts only if its finding is of the same kind: the same property, and for an exception the same call and type; without
that, shrinking slides from one fault to another. Every candidate runs on a newly opened subject.
"""

from collections.abc import Callable
from dataclasses import replace
from time import monotonic

from kvproof.check.oracle.replay import finding_of
from kvproof.check.protocol.features import settings_of
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config, ManagerSubject
from kvproof.check.protocol.operations import simpler_operations
from kvproof.spec.trace import Operation


class Minimiser:
    """Shrinks one counterexample until a deadline."""

    def __init__(
        self, make: Callable[[], ManagerSubject], config: Config, operations: list[Operation], finding: Finding
    ) -> None:
        self.subject = make()
        self.config, self.operations, self.finding = config, operations, finding
        self.deadline = 0.0

    def is_out_of_time(self) -> bool:
        """Whether the deadline has passed."""
        return monotonic() > self.deadline

    def accepts(self, config: Config, operations: list[Operation]) -> bool:
        """Take a candidate if it refutes the same property in the same way."""
        if self.is_out_of_time():
            return False
        found = finding_of(self.subject, config, operations)
        if found is None or found.kind != self.finding.kind:
            return False
        self.config, self.operations, self.finding = config, operations, found
        return True

    def run(self, seconds: float) -> None:
        """Shrink until nothing helps or time is up."""
        self.deadline = monotonic() + seconds
        while not self.is_out_of_time():
            before = (self.config, self.operations)
            self._fewer_operations()
            self._simpler_configuration()
            self._simpler_arguments()
            if (self.config, self.operations) == before:
                return

    def _fewer_operations(self) -> None:
        size = max(1, len(self.operations) // 2)
        while True:
            at, has_shrunk = 0, False
            while at < len(self.operations):
                if self.accepts(self.config, self.operations[:at] + self.operations[at + size :]):
                    has_shrunk = True
                else:
                    at += size
            if size == 1 and not has_shrunk:
                return
            size = max(1, size // 2)

    def _simpler_configuration(self) -> None:
        for setting in settings_of(self.config):
            for value in setting.simpler(self.config):
                if value != getattr(self.config, setting.field) and self.accepts(
                    replace(self.config, **{setting.field: value}), self.operations
                ):
                    break

    def _simpler_arguments(self) -> None:
        at = 0
        while at < len(self.operations):
            operations = self.operations
            for simpler in simpler_operations(operations[at]):
                if self.accepts(self.config, [*operations[:at], simpler, *operations[at + 1 :]]):
                    break
            else:
                at += 1


def minimise(
    make: Callable[[], ManagerSubject], config: Config, operations: list[Operation], finding: Finding, seconds: float
) -> tuple[Config, list[Operation], Finding]:
    """The smallest run found within `seconds` that refutes the same property in the same way."""
    minimiser = Minimiser(make, config, list(operations), finding)
    minimiser.run(seconds)
    return minimiser.config, minimiser.operations, minimiser.finding
