"""The obligations of the specification where a rule fires: all that is assumed is true there, and all that is claimed.

Every reached state satisfies the hypotheses of an obligation. A hypothesis that is false in one is an error of the
translator or of the induction, with which something false could be proved. The invariants of the state after are
compared with the native run even if they do not hold, in corrupted states.
"""

from collections.abc import Callable, Sequence
from typing import Any

from kvproof.audit.crosscheck.comparison import (
    OUT_OF_RANGE,
    Crosscheck,
    Formulas,
    ListEnds,
    Situation,
    SymbolicRule,
    mismatch,
    run_natively,
)
from kvproof.models.crosscheck.evaluation import Evaluator
from kvproof.models.crosscheck.interpretation import OutOfDomain, Undecided
from kvproof.models.translation.terms import Truth
from kvproof.spec.text.state import State


class RuleObligations:
    """The obligations of one rule. num_true: hypotheses and goals that were true, so far."""

    def __init__(self, crosscheck: Crosscheck, rule: SymbolicRule, marked: Callable[..., Any]) -> None:
        self.crosscheck, self.rule, self.num_true = crosscheck, rule, 0
        self.obligations = list(crosscheck.induction.rule(marked))
        self.after: dict[str, Evaluator] = {}
        others: dict[str, Truth] = {}
        for one in self.obligations:
            others |= {f"hypothesis {each.name}": each.formula for each in one.hypotheses}
            if one.claim not in crosscheck.induction.invariants:
                others[f"goal {one.claim}"] = one.goal
                continue
            self.after[one.claim] = crosscheck.evaluators.of(one.goal)
        self.others = Formulas(crosscheck.evaluators, others.items())

    def compare(self, situation: Situation, arguments: Sequence[Any], after: State) -> None:
        """Evaluate all hypotheses and goals where the rule fires in a reached state. Raises Mismatch."""
        values = self.rule.given(situation, arguments)
        try:
            false = self.others.first_false(values)
        except (OutOfDomain, Undecided) as error:
            false = repr(error)
        if false is not None:
            raise mismatch(self.rule.name, false, False, "a reached state", situation, arguments)
        self.num_true += len(self.others)
        self.compare_after(situation, arguments, after)

    def compare_after(self, situation: Situation, arguments: Sequence[Any], after: State) -> None:
        """Compare the invariants of the state after, where they are defined. Raises Mismatch."""
        values, names = self.rule.given(situation, arguments), situation.machine.names
        for name, evaluator in self.after.items():
            try:
                native = run_natively(names[name], after)
            except ListEnds:
                continue
            if native == OUT_OF_RANGE:
                continue
            try:
                symbolic: object = evaluator.under(values)()
            except (OutOfDomain, Undecided) as error:
                symbolic = repr(error)
            if symbolic != native:
                raise mismatch(self.rule.name, f"{name} afterwards", symbolic, native, situation, arguments)
            self.num_true += bool(symbolic)
