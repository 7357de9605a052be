"""From a finding to a saved counterexample: repeat it, shrink it, describe its steps, save it."""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kvproof.check.counterexample.keeping import KeptFinding
from kvproof.check.counterexample.steps import narrated
from kvproof.check.hunting.store import ResultStore
from kvproof.check.hunting.unit import Judged, ShortenUnit, Walk, shortened
from kvproof.check.isolation.messages import pack
from kvproof.check.oracle.method_called import Blame
from kvproof.check.oracle.replay import Counterexample, finding_of
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import ManagerSubject
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.known_findings import KnownFindings, known_findings
from kvproof.check.runs.run import RunOptions
from kvproof.check.runs.store import Store, StoreError, explained
from kvproof.check.runs.verdicts import NO_STEP, NOT_WANTED, refuted_by
from kvproof.check.search.result import UNLIMITED
from kvproof.check.search.shrinking_worlds import sizes_needed
from kvproof.check.search.suppression import Features, KnownFailure, features_of, is_duplicate
from kvproof.reports.baseline import ACCEPTED, findings, is_known, read_baseline
from kvproof.reports.document import DocumentError
from kvproof.reports.evidence import PrintedRun, SavedRun
from kvproof.reports.identity import Identity, what_broke
from kvproof.reports.result import Check
from kvproof.spec.trace import CodePlace, Trace

SHORTEN_SECONDS_MIN, SHORTEN_SECONDS_MAX = 2.0, 10.0
SHORTEN_SHARE = 1 / 8  # of the budget, to shorten one finding: there may be many
UNWANTED_SHARE = 0.2  # of the effort to shorten a finding, for one that is not hunted for


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
    max_operations: int = UNLIMITED  # replayed to shorten one finding
    wanted: frozenset[str] = frozenset()  # properties that are hunted for; all, if empty
    accepted: frozenset[Identity] = frozenset()  # findings that the baseline has
    isolation: bool | None = None  # of the subject, where a worker makes it
    budget: float | None = None  # of the run, in seconds
    fixed: Mapping[str, Any] = field(default_factory=dict)  # fields of the configuration that every run keeps
    results: ResultStore | None = None  # which keeps the shortest runs
    _saved: list[tuple[KnownFailure, Check]] = field(default_factory=list, init=False)
    # Of each finding without an exception: its property, what broke, and the method; and what it was reported as
    _reported: dict[tuple[str, str, CodePlace], Identity] = field(default_factory=dict, init=False)

    @property
    def judged(self) -> Judged:
        """The subject as a worker makes it."""
        return Judged(self.subject, self.isolation, self.budget)

    def walk(self, max_operations: int = UNLIMITED) -> Walk:
        """A walk of the subject with the seed of the run."""
        return Walk(self.judged, self.seed, max_operations, self.fixed)

    def save(self, judge: str, found: Counterexample, num_before: int) -> tuple[Check, Features]:
        """Save the shortest run that can be found, if the subject repeats itself: its check, and its features.

        num_before: operations of the search before this run. A run that cannot be saved is reported with its steps. The
        features are those that the shortest run uses and could do without.
        Raises AdapterError, and KeyboardInterrupt with the check as it is if the user interrupts it.
        """
        for kind, saved in self._saved:
            if saved.judge == judge and self._is_same(kind, found):
                return replace(saved), kind[-1]
        kept, folder = KeptFinding(found), self.store.crashes
        try:
            kept.keep(
                folder,
                self.subject,
                judge,
                self.seed,
                make=self.make,
                shorten=self._shortest,
                locate=self._method_called,
                num_operations_before=num_before,
            )
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(self._check_of(judge, kept)) from error
        check, features = self._check_of(judge, kept), features_of_both(found, kept.found)
        self._saved.append(((*found.kind, features), check))
        return replace(check), features

    def report_again(self, judge: str, path: Path, found: Counterexample) -> Check:
        """A finding whose run this file of the result's folder has."""
        text, place = narrated(found.finding, found.config, found.operations), str(path.relative_to(self.store.folder))
        return self._refuted(judge, found, found.identity, text, place, name=path.stem)

    def _identity_as_before(self, kept: KeptFinding) -> Identity:
        """The identity of the finding, or of an earlier one that says the same of the same method.

        Several operations may lead to one method: a leak of `release` shows when a sequence ends, and when it is
        preempted.
        """
        identity, method = kept.found.identity, None if kept.trace is None else kept.trace.method
        if kept.found.finding.cause or method is None or self._excuse_of(kept.found):
            return identity
        return self._reported.setdefault((identity.property, what_broke(identity.signature), method), identity)

    @staticmethod
    def _is_same(kind: KnownFailure, found: Counterexample) -> bool:
        try:
            return is_duplicate([kind], found)
        except Exception:  # a fault of kvproof: the finding counts as a new one
            return False

    def _check_of(self, judge: str, kept: KeptFinding) -> Check:
        """The finding with its file, or with its steps if it has none; and what could not be done with it."""
        path = kept.path or (kept.raw if kept.unsaved is None else None)
        trace = "" if path is None else str(path.relative_to(self.store.folder))
        text, steps = kept.text, "" if trace else run_as_text(kept)
        if needed := sizes_needed(kept.found.config):
            text += f"\n{needed}"
        if kept.unsaved is not None and kept.path is None:
            try:
                with explained(self.store.crashes):
                    raise kept.unsaved
            except StoreError as error:
                raw = "" if kept.raw is None else f"\nThe run as it was found is in {kept.raw}"
                steps += f"\nThis run is not saved: {error}{raw}"
        if kept.tracebacks:
            with suppress(StoreError):
                self.store.write_log("\n".join(kept.tracebacks))
        return self._refuted(judge, kept.found, self._identity_as_before(kept), text, trace, steps)

    def _refuted(
        self,
        judge: str,
        found: Counterexample,
        identity: Identity,
        text: str,
        trace: str,
        steps: str = "",
        name: str = "",
    ) -> Check:
        """The check of a finding, with the reason why it is no failure, or that it was none until a day."""
        excused = self._excuse_of(found) or self._excuse_of_identity(identity)
        if not excused and not self._is_wanted(found.finding):
            excused = NOT_WANTED
        if not excused and (expired := self.known.expired(identity, self.subject)):
            text += f"\n{expired}"
        shown = PrintedRun(text, steps) if steps else SavedRun(text, trace)
        return refuted_by(judge, identity, shown, excused, name)

    def is_excused(self, found: Counterexample) -> bool:
        """Whether the finding is excused for what it is, and not because another property is hunted for."""
        return bool(self._excuse_of(found))

    def _excuse_of(self, found: Counterexample) -> str:
        """Why a finding is no failure, whatever is hunted for; empty if it is one."""
        if (contract := found.finding.contract) and not self.contract_fails:
            return f"outside the contract of the engine: {contract}"
        return self._excuse_of_identity(found.identity)

    def _excuse_of_identity(self, identity: Identity) -> str:
        return self.known.excuse(identity, self.subject) or (ACCEPTED if is_known(identity, self.accepted) else "")

    def _is_wanted(self, finding: Finding) -> bool:
        return not self.wanted or finding.property in self.wanted

    def _method_called(self, found: Counterexample) -> Blame:
        from kvproof.check.isolation.remote_search import method_called

        return method_called(self.make, found)

    def unit_of(self, found: Counterexample) -> ShortenUnit:
        """The search for the shortest run of a finding, as a unit."""
        return ShortenUnit(self.judged, self.seed, pack(found), self._operations_for(found), tuple(sorted(self.fixed)))

    def _share_of(self, found: Counterexample) -> float:
        return 1.0 if self._is_wanted(found.finding) else UNWANTED_SHARE

    def _operations_for(self, found: Counterexample) -> int:
        return min(int(self.max_operations * self._share_of(found)), UNLIMITED)  # a float rounds the limit up

    def _shortest(self, found: Counterexample) -> Counterexample:
        """The shortest run; one that is in the store is replayed, because another process has made it."""
        seconds = self.seconds * self._share_of(found)
        if self.results is None or math.isfinite(seconds):
            return shortened(
                found, self.make, self.seed, self._operations_for(found), seconds, tuple(sorted(self.fixed))
            )
        unit = self.unit_of(found)
        if (short := self.results.result_of(unit.key, Counterexample)) is None:
            short = shortened(found, self.make, self.seed, unit.max_operations, fixed=unit.fixed)
            self.results.add(unit.key, "", 0.0, pack(short))
            return short
        again = finding_of(self.make(), short.config, short.operations)
        return found if again is None or replace(short, finding=again).kind != short.kind else short


def features_of_both(found: Counterexample, short: Counterexample) -> Features:
    """The features of both runs: another walk may have found the shorter one, with other features."""
    try:
        used = features_of(short.config, short.operations)
        return tuple(name for name in features_of(found.config, found.operations) if name in used)
    except Exception:  # a fault of kvproof: then later runs avoid no feature for it
        return ()


def saving_of(options: RunOptions, make: Callable[[], ManagerSubject], isolation: bool | None = None) -> Saving:
    """The saver of a run's counterexamples. Raises ConfigurationError, UsageError."""
    known = known_findings(options.known)
    seconds = math.inf
    if options.seconds is not None:
        seconds = min(SHORTEN_SECONDS_MAX, max(SHORTEN_SECONDS_MIN, options.seconds * SHORTEN_SHARE))
    saving = Saving(make, options.subject, options.seed, options.store, known, options.contract_fails, seconds)
    saving.max_operations = options.effort.shrinking_operations
    saving.isolation, saving.budget = isolation, options.seconds
    if options.baseline is not None:
        try:
            saving.accepted = frozenset(findings(read_baseline(options.baseline, options.subject)))
        except DocumentError as error:
            raise UsageError(f"--baseline: {error}", "baseline") from error
    return saving


def run_as_text(kept: KeptFinding) -> str:
    """The run of a finding whose trace no file has, as text."""
    if kept.trace is not None:
        return steps_of(kept.trace)
    return "\n".join(f"  {number}  {one}" for number, one in enumerate(kept.found.operations, start=1)) or NO_STEP


def steps_of(trace: Trace) -> str:
    """The steps of a run that has no file, as text."""
    config = ", ".join(f"{name} {value}" for name, value in trace.config.items())
    steps = "\n".join(f"  {number}  {step}" for number, step in enumerate(trace.steps, start=1))
    return f"The steps, with {config}:\n{steps}"
