"""The prover as a judge of `kvproof verify`: a property is proved if every obligation that names it is.

Proved is the specification, for all sizes, with the arithmetic and the lists of copies that it rests on; what the
subject does is for the other judges. `kvproof prove` shows the single obligations, and proves classes besides.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace

from kvproof.check.runs.session import NOT_RUN, Stage, StageBudget, StageOutput
from kvproof.models.proofs.obligation import WELL_DEFINED, Obligation
from kvproof.models.solvers.solving import SEED_MAX, TIMEOUT_SECONDS, ProofOutcome, Settings
from kvproof.models.solvers.workers import decide_all
from kvproof.models.suites import obligations_of, refutation_of
from kvproof.reports.result import Check
from kvproof.spec.text.properties import SENTENCES
from kvproof.spec.verdict import Verdict

PROVER = "prover"
PROVED_SUITES = ("specification", "operations", "arithmetic", "mapping")
NOTHING_TO_PROVE = "nothing that is proved belongs to it"
NUM_PROCESSES = 2
LEAST_SECONDS = 0.5  # fewer are not worth a process
COUNTEREXAMPLE_SECONDS = 5.0  # for each property that is open


def prover_stage(share: float) -> Stage:
    """What is claimed of the specification for all sizes, property by property."""
    planned_checks = [Check(_id(name), PROVER, name, Verdict.UNKNOWN, text=NOT_RUN) for name in SENTENCES]
    return Stage(PROVER, share, planned_checks, lambda stint: Proofs(stint).checks(_obligations()))


def _id(property: str) -> str:
    return f"{PROVER}/{property}"


def _obligations() -> Iterator[Obligation]:
    for suite in PROVED_SUITES:
        yield from obligations_of(suite)


@dataclass
class Proofs:
    """What has been decided so far, by property. is_whole: nothing is left to decide."""

    stint: StageBudget
    proved: dict[str, int] = field(default_factory=dict)
    open: dict[str, list[Obligation]] = field(default_factory=dict)
    num_decided: int = 0
    is_whole: bool = False

    def checks(self, obligations: Iterable[Obligation]) -> Iterator[StageOutput]:
        """Decide as many as there is time for, then say of each property what came of it."""
        began = time.monotonic()
        if self.stint.seconds >= LEAST_SECONDS:
            self._decide(obligations, began + self.stint.seconds)
        seconds = round(time.monotonic() - began, 3)
        counts = {"obligations": self.num_decided}
        names = [*SENTENCES, WELL_DEFINED] if WELL_DEFINED in self.open else list(SENTENCES)
        for name in names:
            check = self._check(name)
            is_said = check.verdict is not Verdict.UNSUPPORTED
            yield replace(check, seconds=seconds, counts=counts) if is_said else check

    def _decide(self, obligations: Iterable[Obligation], deadline: float) -> None:
        timeout = min(TIMEOUT_SECONDS, self.stint.seconds)
        settings = Settings(seed=self.stint.seed % SEED_MAX, timeout_seconds=timeout)
        with closing(decide_all(_until(deadline, obligations), settings, NUM_PROCESSES)) as answers:  # type: ignore[type-var]
            for one in answers:
                self._note(one)
                if time.monotonic() > deadline:
                    return
        self.is_whole = time.monotonic() <= deadline

    def _note(self, one: ProofOutcome) -> None:
        name = one.obligation.property
        if one.answer.verdict is Verdict.PROVED:
            self.proved[name] = self.proved.get(name, 0) + 1
        else:
            self.open.setdefault(name, []).append(one.obligation)
        self.num_decided += 1
        self.stint.advance(self.num_decided)

    def _check(self, name: str) -> Check:
        """What stands of a property; one that reads what may not be there is proved of nothing."""
        check = Check(_id(name), PROVER, name, Verdict.UNKNOWN)
        if name in self.open:
            return self._opened(check, self.open[name])
        if not self.is_whole:
            return replace(check, text=f"the time ended after {self.num_decided:,} obligations")
        if name not in self.proved:
            return replace(check, verdict=Verdict.UNSUPPORTED, text=NOTHING_TO_PROVE)
        if WELL_DEFINED in self.open:
            return replace(check, text=f"not shown to be in range: {self.open[WELL_DEFINED][0].id}")
        return replace(check, verdict=Verdict.PROVED)

    def _opened(self, check: Check, obligations: list[Obligation]) -> Check:
        deadline = time.monotonic() + COUNTEREXAMPLE_SECONDS
        for one in obligations:
            left = deadline - time.monotonic()
            found = refutation_of(one, seconds=left) if left > 0 else None
            if found is not None:
                text = f"the specification itself: {one.id}\n{found.text}"
                return replace(check, verdict=Verdict.REFUTED, text=text, counterexample=found.data)
        more = f", and {len(obligations) - 1} more" if len(obligations) > 1 else ""
        return replace(check, text=f"neither proved nor refuted: {obligations[0].id}{more}")


def _until(deadline: float, obligations: Iterable[Obligation]) -> Iterator[Obligation]:
    """The obligations as long as there is time to ask."""
    for one in obligations:
        if time.monotonic() > deadline:
            return
        yield one
