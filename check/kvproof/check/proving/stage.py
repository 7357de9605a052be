"""The prover as a judge of `kvproof verify`: a property is proved if every obligation that names it is proved.

The proofs are about the specification, for every size, and about the arithmetic and the lists of copies that it uses.
They say nothing about the subject: the other judges check that. A store is judged by the specification of stores, so
its obligations are asked for a store, and those of block managers for every other subject.

It asks as `kvproof prove` does (`asked`): if a lint finds something in the text, or what is proved is not what is
pinned, nothing is proved, and every property is unknown with the reason. `kvproof prove` lists the single obligations,
and also proves facts about kvproof's own code, some of them for small objects only.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from kvproof.check.oracle.level import Level
from kvproof.check.proving.asked import Asked
from kvproof.check.proving.questions import deciding
from kvproof.check.runs.session import NOT_RUN, Stage, StageBudget, StageOutput
from kvproof.check.search.result import UNLIMITED
from kvproof.models.obligation import WELL_DEFINED, Obligation
from kvproof.models.solvers.solving import SEED_MAX, TIMEOUT_SECONDS, ProofOutcome, Settings
from kvproof.models.suites import refutation_of
from kvproof.reports.evidence import BrokenObligation, refuted
from kvproof.reports.result import Check
from kvproof.spec.store.machine import STORES
from kvproof.spec.systems import BLOCK_MANAGERS
from kvproof.spec.text.properties import MEANINGS
from kvproof.spec.verdict import Verdict

PROVER = "prover"
OF_BLOCKS = ("specification", "operations", "arithmetic", "mapping")
OF_SYSTEMS = {BLOCK_MANAGERS.name: OF_BLOCKS, STORES.name: (STORES.name,)}  # by the specification
NOTHING_TO_PROVE = "no obligation names this property"
NUM_PROCESSES = 2
LEAST_SECONDS = 0.5  # with less time, no solver process is started
COUNTEREXAMPLES_MAX = 3  # obligations of one property for which a counterexample is searched


def prover_stage(share: float, level: Level, num_processes: int = NUM_PROCESSES) -> Stage:
    """The stage that proves the specification of a level for every size, with one check for each property."""
    planned_checks = [Check(_id(name), PROVER, name, Verdict.UNKNOWN, text=NOT_RUN) for name in MEANINGS]
    suites = OF_SYSTEMS[level.system.name]

    def run(budget: StageBudget) -> Iterator[StageOutput]:
        asked = Asked(suites)
        return Proofs(budget, num_processes, asked.why_meaningless).checks(asked.obligations())

    return Stage(PROVER, share, planned_checks, run)


def _id(property: str) -> str:
    return f"{PROVER}/{property}"


@dataclass
class Proofs:
    """The obligations decided so far, by property.

    why_meaningless: asked when all are decided; why no proof counts, or nothing. meaningless: its answer. is_whole: all
    obligations are decided.
    """

    budget: StageBudget
    num_processes: int = NUM_PROCESSES
    why_meaningless: Callable[[], str] = lambda: ""
    proved: dict[str, int] = field(default_factory=dict)
    open: dict[str, list[Obligation]] = field(default_factory=dict)
    num_decided: int = 0
    is_whole: bool = False
    meaningless: str = ""

    def checks(self, obligations: Iterable[Obligation]) -> Iterator[StageOutput]:
        """Decide as many obligations as there is time for, then yield a check for each property."""
        began = time.monotonic()
        if self.budget.seconds >= LEAST_SECONDS:
            self._decide(obligations, began + self.budget.seconds)
        if self.is_whole:
            self.meaningless = self.why_meaningless()
        seconds = round(time.monotonic() - began, 3)
        counts = {"obligations": self.num_decided}
        names = [*MEANINGS, WELL_DEFINED] if WELL_DEFINED in self.open else list(MEANINGS)
        for name in names:
            check = self._check(name)
            yield check if check.verdict is Verdict.UNSUPPORTED else replace(check, seconds=seconds, counts=counts)

    def _decide(self, obligations: Iterable[Obligation], deadline: float) -> None:
        settings = Settings.by_effort(TIMEOUT_SECONDS, self.budget.seed % SEED_MAX)
        settings = replace(settings, timeout_seconds=min(settings.timeout_seconds, self.budget.seconds))
        with deciding(str(self.num_processes)) as decide:
            for one in decide(_until(deadline, obligations), settings):
                self._count(one)
                if time.monotonic() > deadline:
                    self.budget.stopped_after(self.num_decided, UNLIMITED, "obligations")
                    return
        self.is_whole = time.monotonic() <= deadline

    def _count(self, one: ProofOutcome) -> None:
        name = one.obligation.property
        if one.answer.verdict is Verdict.PROVED:
            self.proved[name] = self.proved.get(name, 0) + 1
        else:
            self.open.setdefault(name, []).append(one.obligation)
        self.num_decided += 1
        self.budget.advance(self.num_decided)

    def _check(self, name: str) -> Check:
        """The check of a property. No property is proved while a subscript may be out of range."""
        check = Check(_id(name), PROVER, name, Verdict.UNKNOWN)
        if name in self.open:
            return self._open_check(check, self.open[name])
        if not self.is_whole:
            return replace(check, text=f"the time ended after {self.num_decided:,} obligations")
        if name not in self.proved:
            return replace(check, verdict=Verdict.UNSUPPORTED, text=NOTHING_TO_PROVE)
        if self.meaningless:
            return replace(check, text=self.meaningless)
        if WELL_DEFINED in self.open:
            first = min(one.id for one in self.open[WELL_DEFINED])
            return replace(check, text=f"not proved to be well-defined: {first}")
        return replace(check, verdict=Verdict.PROVED)

    def _open_check(self, check: Check, obligations: list[Obligation]) -> Check:
        """Refuted if a run breaks one of these obligations, otherwise unknown."""
        obligations = sorted(obligations, key=lambda one: one.id)  # their answers arrive in any order
        for one in obligations[:COUNTEREXAMPLES_MAX]:
            if (found := refutation_of(one)) is not None:
                text = f"the specification itself: {one.id}\n{found.text}"
                return refuted(check, BrokenObligation(text, one.id, found.data))
        more = f", and {len(obligations) - 1} more" if len(obligations) > 1 else ""
        return replace(check, text=f"neither proved nor refuted: {obligations[0].id}{more}")


def _until(deadline: float, obligations: Iterable[Obligation]) -> Iterator[Obligation]:
    for one in obligations:
        if time.monotonic() > deadline:
            return
        yield one
