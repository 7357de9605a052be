"""From a finding to a counterexample: minimised, run again, told step by step, saved."""

from collections.abc import Callable
from dataclasses import dataclass

from kvproof.check.commands.claims import Refutation
from kvproof.check.finding import Finding
from kvproof.check.store import Store, explained
from kvproof.check.subject import Config, ManagerSubject
from kvproof.spec.trace import Operation

SHORTEN_SECONDS_MAX = 10.0
LONG = 12  # operations; a longer run is sought again
NUM_WALKS_MAX = 4  # so often


@dataclass
class Saving:
    """Where the counterexamples of a subject go."""

    make: Callable[[], ManagerSubject]
    subject: str
    seed: int
    store: Store

    def save(
        self, judge: str, config: Config, operations: list[Operation], finding: Finding, num_before: int
    ) -> Refutation:
        """Save the shortest run found that refutes the same, if the subject repeats it. Raises StoreError."""
        from kvproof.check import crash

        finding = crash.confirm(self.make, config, operations, finding)
        if finding.property != "nondeterministic":
            config, operations, finding = self._shorter(config, operations, finding)
        trace = crash.make_trace(
            self.subject,
            finding,
            config,
            operations,
            judge,
            self.seed,
            make=self.make,
            num_operations_before=num_before,
        )
        with explained(self.store.crashes):
            path = crash.save(self.store.crashes, trace)
        return Refutation(trace.property, trace.text, str(path.relative_to(self.store.folder)))

    def _shorter(
        self, config: Config, operations: list[Operation], finding: Finding
    ) -> tuple[Config, list[Operation], Finding]:
        from kvproof.check.isolation.searching import minimise_loop, shortest
        from kvproof.check.loop import LoopConfig

        if isinstance(config, LoopConfig):
            return minimise_loop(self.make, finding, seconds=SHORTEN_SECONDS_MAX, config=config, operations=operations)
        return shortest(
            self.make,
            finding,
            seconds=SHORTEN_SECONDS_MAX,
            config=config,
            operations=operations,
            seed=self.seed,
            long=LONG,
            walks=NUM_WALKS_MAX,
        )
