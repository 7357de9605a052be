"""The part of `kvproof prove` that looks whether what is proved is proved of something."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from kvproof.models.counterexamples.case import RULES
from kvproof.models.proofs.obligation import Obligation
from kvproof.models.proofs.vacuity import FIRES, Hypotheses, firings
from kvproof.models.translation.text import Text
from kvproof.reports.result import Check
from kvproof.spec.verdict import Verdict

VACUITY, HYPOTHESES = "vacuity", "hypotheses"
NAMES = (*(f"{VACUITY}/{FIRES}/{rule}" for rule in RULES), f"{VACUITY}/{HYPOTHESES}")
SETS, WITH_MODEL = "sets", "with a model"


def fires(rules: list[str], text: Text | None) -> Iterator[Check]:
    """A check for each of these rules: a run has fired it from a state that satisfies every invariant."""
    for rule, is_fired in firings(rules, text):
        verdict = Verdict.PROVED if is_fired else Verdict.UNKNOWN
        reason = "" if is_fired else "no small state that satisfies every invariant was found from which it fires"
        yield Check(f"{VACUITY}/{FIRES}/{rule}", VACUITY, FIRES, verdict, text=reason)


@dataclass
class Noted:
    """The hypotheses of all that was asked for, suite by suite."""

    of_suites: dict[str, Hypotheses] = field(default_factory=dict)

    def noted(self, obligations: Iterator[Obligation]) -> Iterator[Obligation]:
        """The obligations, while their hypotheses are noted."""
        for one in obligations:
            self.of_suites.setdefault(one.suite, Hypotheses()).note(one)
            yield one

    def checks(self) -> Iterator[Check]:
        """A check for each suite: its hypotheses do not contradict each other."""
        for suite, found in self.of_suites.items():
            found.decide()
            verdict = Verdict.PROVED if found.num_satisfied == len(found.sets) else Verdict.NOT_REFUTED
            verdict = Verdict.REFUTED if found.contradictory else verdict
            text = "; ".join(f"what is assumed for {one.id} contradicts itself" for one in found.contradictory)
            counts = {SETS: len(found.sets), WITH_MODEL: found.num_satisfied}
            yield Check(f"{VACUITY}/{HYPOTHESES}/{suite}", VACUITY, HYPOTHESES, verdict, counts=counts, text=text)
