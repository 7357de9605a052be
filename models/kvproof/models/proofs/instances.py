"""Instances of hypotheses that are given to a solver because it may not find them itself.

*An invariant, at the counterexample.* The goal is that a claim holds for all x after a rule, and a hypothesis is that
it holds for all x before. Let c be an x for which the goal is false. It is enough to prove the goal for c, and the
hypothesis may be instantiated with c. A solver finds that instance itself if a pattern leads to it; an x that is only
compared with other numbers has no pattern.

*The next firing.* What a contract states about all firings holds for the next one, which most proofs are about. The
maps of firings refer to it by long terms that look different, so a solver may miss it.
"""

from collections.abc import Iterator
from dataclasses import replace

import z3

from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.proofs.contracts import LOOP_INVARIANT, NUM_FIRED


def where_denied(obligation: Obligation) -> Obligation:
    """The obligation for fresh constants in place of its variables, with that instance of the claim before the rule.

    Returns the obligation unchanged if it has not this form.
    """
    goal = obligation.goal
    before = next((one.formula for one in obligation.hypotheses if one.name == obligation.claim), None)
    if not (isinstance(goal, z3.QuantifierRef) and isinstance(before, z3.QuantifierRef)):
        return obligation
    if not (goal.is_forall() and before.is_forall()):
        return obligation
    constants = [z3.Const(f"denied_{place}", goal.var_sort(place)) for place in range(goal.num_vars())]
    if [before.var_sort(place) for place in range(before.num_vars())] != [one.sort() for one in constants]:
        return obligation
    instance = Hypothesis(f"{obligation.claim}, where it is denied", _of(before, constants))
    return replace(obligation, hypotheses=(*obligation.hypotheses, instance), goal=_of(goal, constants))


def where_next_fired(obligation: Obligation) -> Obligation:
    """The obligation, with the loop invariant of its contract instantiated for the next firing."""
    known = {one.name: one.formula for one in obligation.hypotheses}
    loop_invariant, counted = known.get(LOOP_INVARIANT), known.get(f"parameter {NUM_FIRED}")
    if loop_invariant is None or counted is None:
        return obligation
    (next_firing,) = (one for one in counted.children() if not z3.is_int_value(one))
    simple = [one for one in _parts(loop_invariant) if isinstance(one, z3.QuantifierRef) and _is_simple(one)]
    instance = Hypothesis(f"{LOOP_INVARIANT}, of the next firing", z3.And([_of(one, [next_firing]) for one in simple]))
    return replace(obligation, hypotheses=(*obligation.hypotheses, instance))


def _is_simple(formula: z3.QuantifierRef) -> bool:
    """Whether it quantifies over one number only."""
    return bool(formula.is_forall() and formula.num_vars() == 1 and formula.var_sort(0) == z3.IntSort())


def _parts(formula: z3.ExprRef) -> Iterator[z3.ExprRef]:
    """The conjuncts of the formula, those of nested conjunctions included."""
    if z3.is_and(formula):
        for part in formula.children():
            yield from _parts(part)
    else:
        yield formula


def _of(formula: z3.QuantifierRef, constants: list[z3.ExprRef]) -> z3.BoolRef:
    found: z3.BoolRef = z3.substitute_vars(formula.body(), *reversed(constants))
    return found
