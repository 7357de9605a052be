"""Turns the solver's answers into checks, and looks for a counterexample where there is no proof.

An obligation that the solver does not prove is refuted only if a run of the specification (or of the code) confirms it;
otherwise it is unknown, whatever the solver answered.
"""

from dataclasses import replace

from kvproof.check.proving.checks import obligation_check
from kvproof.check.proving.report import core_text
from kvproof.models.obligation import Obligation
from kvproof.models.solvers.solving import Allowance, ProofOutcome
from kvproof.models.suites import REFUTATION_SECONDS, is_searched, refutation_of
from kvproof.models.translation.text import Text
from kvproof.reports.result import Check
from kvproof.spec.verdict import Verdict

UNCONFIRMED = "the solver has a model in which the goal is false, but no run confirms it"
COUNTEREXAMPLES_SECONDS = 120.0  # of effort, for all open obligations together


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
            refuted = replace(one, answer=replace(one.answer, verdict=Verdict.REFUTED))
            return refuted, replace(obligation_check(refuted, found.text), counterexample=found.data)
        reason = UNCONFIRMED if one.answer.verdict is Verdict.REFUTED else one.answer.reason or "the solver gave up"
        unknown = replace(one, answer=replace(one.answer, verdict=Verdict.UNKNOWN))
        return unknown, obligation_check(unknown, reason + _search_text(one.obligation, is_spent))


def _search_text(obligation: Obligation, is_spent: bool) -> str:
    if not is_searched(obligation):
        return ""
    if is_spent:
        return "; no effort was left to look for a counterexample"
    return f"; no counterexample was found in small instances, by the effort of {REFUTATION_SECONDS:.0f} s"
