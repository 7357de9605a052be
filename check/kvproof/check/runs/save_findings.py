"""From a finding to a saved counterexample: repeat it, shrink it, describe its steps, save it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kvproof.check.oracle.level import level_of_config
from kvproof.check.oracle.replay import Counterexample, confirm
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import ManagerSubject
from kvproof.check.runs.known_findings import KnownFindings
from kvproof.check.runs.store import Store, StoreError, explained
from kvproof.check.runs.verdicts import ReportedFinding
from kvproof.check.search.suppression import KnownFailure, features_of, is_duplicate
from kvproof.spec.trace import Trace

SHORTEN_SECONDS_MIN, SHORTEN_SECONDS_MAX = 2.0, 10.0
NOT_WANTED = "not what is hunted for"
LONG = 12  # operations; for a longer run, other walks look for a shorter one
NUM_WALKS_MAX = 4  # of these walks


@dataclass
class Saving:
    """Saves the counterexamples of a subject."""

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

    def remember(self, judge: str, kind: KnownFailure, found: ReportedFinding) -> None:
        """Do not save again what a judge found in an earlier part of this hunt."""
        self._saved.append((judge, kind, found))

    def save(self, judge: str, found: Counterexample, num_before: int) -> ReportedFinding:
        """Save the shortest run that can be found, if the subject repeats itself.

        num_before: operations of the search before this run. A run that cannot be saved is reported with its steps.
        """
        from kvproof.check.counterexample import store

        for by, kind, saved in self._saved:
            if by == judge and is_duplicate([kind], found):
                return replace(saved)
        short = confirm(self.make, found)
        if short.finding.property != "nondeterministic":
            short = self._shortest(short)
        trace = store.make_trace(
            self.subject, short, judge, self.seed, make=self.make, num_operations_before=num_before
        )
        reported = ReportedFinding(trace.property, trace.text, signature=short.kind[1])
        try:
            with explained(self.store.crashes):
                path = store.save(self.store.crashes, trace, self.make, short.finding)
            reported.trace = str(path.relative_to(self.store.folder))
        except StoreError as error:
            reported.text += f"\n{steps_of(trace)}\nThis run is not saved: {error}"
        used = features_of(short.config, short.operations)  # another walk may have found it, with other features
        reported.features = tuple(name for name in features_of(found.config, found.operations) if name in used)
        self._excuse(reported, short.finding)
        self._saved.append((judge, (*found.kind, reported.features), reported))
        return replace(reported)

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

    def _shortest(self, found: Counterexample) -> Counterexample:
        from kvproof.check.isolation.remote_search import shortest
        from kvproof.check.search.strategies import STRATEGIES

        seconds = self.seconds if self._is_wanted(found.finding) else min(self.seconds, SHORTEN_SECONDS_MIN)
        strategy = STRATEGIES[level_of_config(found.config).name]
        return shortest(strategy, self.make, found, seconds=seconds, seed=self.seed, long=LONG, walks=NUM_WALKS_MAX)


def steps_of(trace: Trace) -> str:
    """The steps of a run that has no file, as text."""
    config = ", ".join(f"{name} {value}" for name, value in trace.config.items())
    steps = "\n".join(f"  {number}  {step}" for number, step in enumerate(trace.steps, start=1))
    return f"The steps, with {config}:\n{steps}"
