"""From a finding to a counterexample: minimised, run once more, described step by step, saved."""

from collections.abc import Callable
from dataclasses import dataclass

from kvproof.check.commands.claims import Refutation
from kvproof.check.finding import Finding
from kvproof.check.minimiser import minimise, replay
from kvproof.check.store import Store, explained
from kvproof.check.subject import Config, ManagerSubject
from kvproof.spec.trace import Operation, Trace

MINIMISE_SECONDS_MAX = 10.0


@dataclass
class Saving:
    """Where the counterexamples of a run go. `make` is None where the specification itself is explored."""

    make: Callable[[], ManagerSubject] | None
    subject: str
    seed: int
    version: str
    store: Store

    def save(
        self, judge: str, config: Config, operations: list[Operation], finding: Finding, num_before: int
    ) -> Refutation:
        """Save the shortest run found that refutes the same. Raises StoreError."""
        from kvproof.check import crash

        if self.make is not None:
            before = finding
            config, operations, finding = minimise(self.make, config, operations, finding, MINIMISE_SECONDS_MAX)
            again = replay(self.make(), config, operations)
            if again is None or again.kind != finding.kind:
                finding = _unrepeated(before, again)
        trace = Trace(
            subject=self.subject,
            property=finding.property,
            text=finding.text,
            config=config.as_dict(),
            operations=[list(operation) for operation in operations],
            judge=judge,
            seed=self.seed,
            num_operations_before=num_before,
            steps=[],
            version=self.version,
        )
        with explained(self.store.crashes):
            path = crash.save(self.store.crashes, trace)
        return Refutation(finding.property, finding.text, str(path.relative_to(self.store.folder)))


def _unrepeated(finding: Finding, again: Finding | None) -> Finding:
    now = "nothing is refuted" if again is None else f"{again.property} is refuted: {again.text}"
    return Finding("nondeterministic", f"first {finding.property} was refuted ({finding.text}); replayed, {now}")
