"""A claim that is to be kept, asked where it is denied.

If the goal says something of all x and a hypothesis, the same claim before, says it of all x too, then let c be an x of
which the goal is denied: it is enough to show the goal of c, and what the hypothesis says of c may be assumed. A solver
finds that instance by itself where a pattern leads to it; an x that is only compared with other numbers has none.
"""

from dataclasses import replace

import z3

from kvproof.models.obligation import Hypothesis, Obligation


def where_denied(obligation: Obligation) -> Obligation:
    """The obligation said of unknown constants, with the claim before said of them; as it is where there is no such."""
    goal = obligation.goal
    before = next((one.formula for one in obligation.hypotheses if one.name == obligation.claim), None)
    if not (isinstance(goal, z3.QuantifierRef) and isinstance(before, z3.QuantifierRef)):
        return obligation
    if not (goal.is_forall() and before.is_forall()):
        return obligation
    constants = [z3.Const(f"denied_{place}", goal.var_sort(place)) for place in range(goal.num_vars())]
    if [before.var_sort(place) for place in range(before.num_vars())] != [one.sort() for one in constants]:
        return obligation
    said = Hypothesis(f"{obligation.claim}, where it is denied", _of(before, constants))
    return replace(obligation, hypotheses=(*obligation.hypotheses, said), goal=_of(goal, constants))


def _of(formula: z3.QuantifierRef, constants: list[z3.ExprRef]) -> z3.BoolRef:
    found: z3.BoolRef = z3.substitute_vars(formula.body(), *reversed(constants))
    return found
