"""The shrinker: takes a candidate in the place of the best run so far, if it is simpler and refutes in the same way.

`sort_key` says which of two runs is simpler, and `Shrinker.consider` decides on one candidate. Everything else is ideas
for candidates, which are passes (`passes.PASSES`): they need not be sound or cheap to check, because a candidate counts
only if it refutes the same property and, for an exception, in the same call and with the same type. Without that,
shrinking slides from one fault to another. No candidate is run twice, so a pass may propose again what another one
proposed before.

Every accepted candidate is strictly simpler than the one before, and no run has infinitely many simpler ones, so
shrinking ends. The same passes serve all levels.
"""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from kvproof.check.oracle.level import settings_of
from kvproof.check.oracle.replay import Counterexample, finding_of
from kvproof.check.protocol.manager import Config
from kvproof.spec.trace import Operation


def sort_key(config: Config, operations: Sequence[Operation]) -> tuple[Any, ...]:
    """The simpler of two runs has the smaller key: fewer operations, then smaller arguments, then a plainer
    configuration."""
    num_values, total = _size(tuple(operations))
    return len(operations), num_values, total, [s.rank(getattr(config, s.field)) for s in settings_of(config)]


def _size(value: Any) -> tuple[int, int]:
    """How many values an argument holds, and their sum. What is left out or empty counts nothing."""
    if isinstance(value, tuple | list):
        sizes = [_size(item) for item in value]
        return sum(number for number, _ in sizes), sum(total for _, total in sizes)
    if value is None or value is False:
        return 0, 0
    return 1, value if isinstance(value, int) else 1


class Shrinker:
    """Shrinks one counterexample on one subject, which is opened again for each candidate."""

    def __init__(self, subject: Any, found: Counterexample, deadline: float) -> None:
        self.subject, self.best, self.deadline = subject, found, deadline
        self.tried: set[tuple[Config, tuple[Operation, ...]]] = {(found.config, tuple(found.operations))}

    def is_out_of_time(self) -> bool:
        """Whether the deadline has passed."""
        return monotonic() > self.deadline

    def consider(self, config: Config, operations: list[Operation]) -> bool:
        """Take the candidate if it is simpler than the best run and refutes in the same way; whether it was taken."""
        candidate = config, tuple(operations)
        if self.is_out_of_time() or candidate in self.tried:
            return False
        self.tried.add(candidate)
        if sort_key(config, operations) >= sort_key(self.best.config, self.best.operations):
            return False
        finding = finding_of(self.subject, config, operations)
        if finding is None or finding.kind != self.best.finding.kind:
            return False
        self.best = Counterexample(config, operations, finding)
        return True

    def consider_operations(self, operations: list[Operation]) -> bool:
        """Consider other operations in the same configuration."""
        return self.consider(self.best.config, operations)

    def run(self, passes: Sequence[Callable[["Shrinker"], None]]) -> Counterexample:
        """Run the passes until none helps or the time is over; after each success, the cheap first passes again."""
        at = 0
        while at < len(passes) and not self.is_out_of_time():
            before = self.best
            passes[at](self)
            at = 0 if at and self.best is not before else at + 1
        return self.best
