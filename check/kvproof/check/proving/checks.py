"""The checks of a run of `kvproof prove`, for the result document, and the judge that makes those of obligations.

An obligation that the solver does not prove is refuted only if a run of the specification (or of the code) confirms it;
otherwise it is unknown, whatever the solver answered.
"""

from dataclasses import replace

from kvproof.check.proving.report import core_text
from kvproof.models.obligation import Obligation
from kvproof.models.proofs.lint_error import LintError
from kvproof.models.solvers.solving import Allowance, ProofOutcome
from kvproof.models.suites import REFUTATION_SECONDS, is_searched, refutation_of
from kvproof.models.translation.text import Text
from kvproof.models.vacuity import FIRES, HYPOTHESES, RUNS, SETS, VACUITY, WITH_MODEL, Hypotheses
from kvproof.reports.evidence import BadPlaces, BrokenObligation, Disagreement, refuted
from kvproof.reports.result import Check
from kvproof.spec.verdict import Verdict

PROVER, LINT, PIN = "prover", "lint", "pin"
DIFFERENCES_MAX = 10  # listed in a message
UNCONFIRMED = "the solver has a model in which the goal is false, but no run confirms it"
COUNTEREXAMPLES_SECONDS = 120.0  # of effort, for all open obligations together


def lint_check(name: str, findings: list[LintError]) -> Check:
    """The check of one lint."""
    check = Check(f"{LINT}/{name}", LINT, name, Verdict.PROVED, counts={"findings": len(findings)})
    if findings:
        text = "; ".join(f"{one.place}: {one.text}" for one in findings)
        return refuted(check, BadPlaces(text, [one.place for one in findings]))
    return check


def pin_check(differences: list[str], of_another_text: bool = False) -> Check:
    """The check that what is proved is what is pinned.

    of_another_text: whether the text is one that was given in place of the specification. It differs on purpose; what
    then is proved instead is listed, and is no failure.
    """
    check = Check(f"{PIN}/obligations", PIN, "obligations", Verdict.PROVED, counts={"differences": len(differences)})
    if differences:
        text = "; ".join(differences[:DIFFERENCES_MAX])
        more = f"; and {len(differences) - DIFFERENCES_MAX:,} more" if len(differences) > DIFFERENCES_MAX else ""
        end = "" if of_another_text else "; if this is intended, run make proofs-accept"
        text = f"what is proved is not what is pinned: {text}{more}{end}"
        if of_another_text:
            return replace(check, verdict=Verdict.UNSUPPORTED, text=text)
        return refuted(check, Disagreement(text, differences))
    return check


def firing_check(rule: str, is_fired: bool) -> Check:
    """The check that a rule fires."""
    verdict = Verdict.PROVED if is_fired else Verdict.UNKNOWN
    text = "" if is_fired else "no small state was found that satisfies every invariant and in which the rule fires"
    return Check(f"{VACUITY}/{FIRES}/{rule}", VACUITY, FIRES, verdict, text=text)


def run_check(contract: str, wrong: str, has_run: bool) -> Check:
    """The check that a contract runs. wrong: what is wrong with its run; has_run: whether it began."""
    verdict = Verdict.UNKNOWN if wrong else Verdict.PROVED
    check = Check(f"{VACUITY}/{RUNS}/{contract}", VACUITY, RUNS, verdict, text=wrong)
    return refuted(check, Disagreement(wrong, [contract])) if wrong and has_run else check


def hypotheses_check(suite: str, found: Hypotheses) -> Check:
    """The check that the sets of hypotheses of a suite have models; those still open are searched for one first."""
    found.decide()
    return hypotheses_result(suite, found)


def hypotheses_result(suite: str, found: Hypotheses) -> Check:
    """The same check, of what is known by now."""
    verdict = Verdict.PROVED if found.num_satisfied == found.num_sets else Verdict.NOT_REFUTED
    text = "; ".join(
        [
            *(f"the hypotheses of {one.id} contradict each other" for one in found.contradictory),
            *(f"no model of the hypotheses of {one.id} was found" for one in found.undecided),
        ]
    )
    counts = {SETS: found.num_sets, WITH_MODEL: found.num_satisfied}
    check = Check(f"{VACUITY}/{HYPOTHESES}/{suite}", VACUITY, HYPOTHESES, verdict, counts=counts, text=text)
    ids = [one.id for one in found.contradictory]
    return refuted(check, Disagreement(text, ids)) if ids else check


def obligation_check(one: ProofOutcome, text: str) -> Check:
    """The check of one obligation that is not refuted. text: what is to be said about its answer."""
    obligation, answer = one.obligation, one.answer
    verdict = Verdict.PROVED if answer.verdict is Verdict.PROVED else Verdict.UNKNOWN
    counts = {"hypotheses": len(obligation.hypotheses), "effort": answer.effort}
    counts |= {"cached": 1} if one.is_cached else {}
    if text and obligation.place and verdict is Verdict.UNKNOWN:
        text = f"{obligation.place}: {text}"
    id = f"{PROVER}/{obligation.property}/{obligation.id}"
    return Check(id, PROVER, obligation.property, verdict, round(answer.seconds, 4), counts, text)


class Judge:
    """The judge of one run. text: replaces that of the specification."""

    def __init__(self, text: Text | None) -> None:
        self.text = text
        self.allowance = Allowance(COUNTEREXAMPLES_SECONDS)

    def check(self, one: ProofOutcome) -> tuple[ProofOutcome, Check]:
        """The outcome with its final verdict, and its check."""
        if one.answer.verdict is Verdict.PROVED:
            return one, obligation_check(one, core_text(one))
        is_spent = not self.allowance.left
        mine = Allowance(REFUTATION_SECONDS, self.allowance)
        found = None if is_spent else refutation_of(one.obligation, self.text, mine)
        if found is not None:
            shown = BrokenObligation(found.text, one.obligation.id, found.data)
            check = refuted(obligation_check(one, ""), shown)
            return replace(one, answer=replace(one.answer, verdict=Verdict.REFUTED)), check
        reason = UNCONFIRMED if one.answer.verdict is Verdict.REFUTED else one.answer.reason or "the solver gave up"
        unknown = replace(one, answer=replace(one.answer, verdict=Verdict.UNKNOWN))
        return unknown, obligation_check(unknown, reason + _search_text(one.obligation, is_spent))


def _search_text(obligation: Obligation, is_spent: bool) -> str:
    if not is_searched(obligation):
        return ""
    if is_spent:
        return "; no effort was left to look for a counterexample"
    return f"; no counterexample was found in small instances, by the effort of {REFUTATION_SECONDS:.0f} s"
