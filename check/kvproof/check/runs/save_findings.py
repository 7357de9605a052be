"""From a finding to a counterexample: minimised, run again, told step by step, saved."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config, ManagerSubject
from kvproof.check.runs.known_findings import KnownFindings
from kvproof.check.runs.store import Store, StoreError, explained
from kvproof.check.runs.verdicts import ReportedFinding
from kvproof.check.search.suppression import KnownFailure, features_of, is_duplicate
from kvproof.spec.trace import Operation, Trace

SHORTEN_SECONDS_MIN, SHORTEN_SECONDS_MAX = 2.0, 10.0
NOT_WANTED = "not what is hunted for"
LONG = 12  # operations; a longer run is sought again
NUM_WALKS_MAX = 4  # so often


@dataclass
class Saving:
    """Where the counterexamples of a subject go."""

    make: Callable[[], ManagerSubject]
    subject: str
    seed: int
    store: Store
    known: KnownFindings = field(default_factory=KnownFindings)
    contract_fails: bool = False
    seconds: float = SHORTEN_SECONDS_MAX  # to shorten one finding
    wanted: frozenset[str] = frozenset()  # properties that are hunted for; all, if empty
    _saved: list[tuple[str, KnownFailure, ReportedFinding]] = field(
        default_factory=list, init=False
    )  # with their judges

    def remember(self, judge: str, told: KnownFailure, found: ReportedFinding) -> None:
        """What a judge found in an earlier part of this hunt is not saved again."""
        self._saved.append((judge, told, found))

    def save(
        self, judge: str, config: Config, operations: list[Operation], finding: Finding, num_before: int
    ) -> ReportedFinding:
        """Save the shortest run found that refutes the same, if the subject repeats it; if it cannot be, tell it."""
        from kvproof.check.counterexample import store
        from kvproof.check.oracle.replay import confirm

        for by, told, saved in self._saved:
            if by == judge and is_duplicate([told], finding, config, operations):
                return replace(saved)
        kind, features = finding.key(operations), features_of(config, operations)
        finding = confirm(self.make, config, operations, finding)
        if finding.property != "nondeterministic":
            config, operations, finding = self._shorter(config, operations, finding)
        trace = store.make_trace(
            self.subject,
            finding,
            config,
            operations,
            judge,
            self.seed,
            make=self.make,
            num_operations_before=num_before,
        )
        _, signature = finding.key(operations)
        found = ReportedFinding(trace.property, trace.text, signature=signature)
        try:
            with explained(self.store.crashes):
                path = store.save(self.store.crashes, trace, self.make, finding)
            found.trace = str(path.relative_to(self.store.folder))
        except StoreError as error:
            found.text += f"\n{steps_of(trace)}\nThis run is not saved: {error}"
        shortest = features_of(config, operations)  # of a run that may have been found anew, with other features
        found.features = tuple(feature for feature in features if feature in shortest)
        self._excuse(found, finding)
        self._saved.append((judge, (*kind, found.features), found))
        return replace(found)

    def _excuse(self, found: ReportedFinding, finding: Finding) -> None:
        """Say why the finding is no failure, or that it was none until a day."""
        if finding.contract and not self.contract_fails:
            found.excused = f"outside the contract of the engine: {finding.contract}"
            return
        context = found.property, found.signature, self.subject
        found.excused = self.known.excuse(*context)
        if not found.excused and not self._is_wanted(finding):
            found.excused = NOT_WANTED
        if not found.excused and (expired := self.known.expired(*context)):
            found.text += f"\n{expired}"

    def _is_wanted(self, finding: Finding) -> bool:
        return not self.wanted or finding.property in self.wanted

    def _shorter(
        self, config: Config, operations: list[Operation], finding: Finding
    ) -> tuple[Config, list[Operation], Finding]:
        from kvproof.check.isolation.remote_search import minimise_loop, minimise_pool, shortest
        from kvproof.check.protocol.pool import PoolConfig
        from kvproof.check.protocol.scheduler import SchedulerConfig

        seconds = self.seconds if self._is_wanted(finding) else min(self.seconds, SHORTEN_SECONDS_MIN)
        for kind, minimise in ((SchedulerConfig, minimise_loop), (PoolConfig, minimise_pool)):
            if isinstance(config, kind):
                return minimise(self.make, finding, seconds=seconds, config=config, operations=operations)
        return shortest(
            self.make,
            finding,
            seconds=seconds,
            config=config,
            operations=operations,
            seed=self.seed,
            long=LONG,
            walks=NUM_WALKS_MAX,
        )


def steps_of(trace: Trace) -> str:
    """The steps of a run that has no file, as text."""
    config = ", ".join(f"{name} {value}" for name, value in trace.config.items())
    steps = "\n".join(f"  {number}  {step}" for number, step in enumerate(trace.steps, start=1))
    return f"The steps, with {config}:\n{steps}"
