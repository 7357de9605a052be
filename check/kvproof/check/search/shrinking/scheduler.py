"""A shorter run of the loop that refutes the same property in the same way; see `delta_debugging`."""

from collections.abc import Callable
from typing import cast

from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import ManagerSubject
from kvproof.check.protocol.scheduler import SchedulerConfig, SchedulerSubject
from kvproof.check.search.shrinking.delta_debugging import Minimiser
from kvproof.spec.trace import Operation


class SchedulerMinimiser(Minimiser):
    """Shrinks one counterexample of the loop until a deadline."""

    def _fewer_operations(self) -> None:
        self._drain_in_one()
        super()._fewer_operations()

    def _drain_in_one(self) -> None:
        """What follows when nobody arrives any more, said as one operation."""
        names = [operation[0] for operation in self.operations]
        if "stop" in names:
            at = names.index("stop")
            sampled = [rest[0] for name, *rest in self.operations[at:] if rest and name in ("launch", "complete")]
            for tokens in ((0,), *sampled[:1]):
                if self.accepts(self.config, [*self.operations[:at], ("drain", tokens)]):
                    break


def minimise_loop(
    make: Callable[[], SchedulerSubject],
    config: SchedulerConfig,
    operations: list[Operation],
    finding: Finding,
    seconds: float,
) -> tuple[SchedulerConfig, list[Operation], Finding]:
    """The smallest run found within `seconds` that refutes the same property in the same way."""
    minimiser = SchedulerMinimiser(cast(Callable[[], ManagerSubject], make), config, list(operations), finding)
    minimiser.run(seconds)
    return cast(SchedulerConfig, minimiser.config), minimiser.operations, minimiser.finding
