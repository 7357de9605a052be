"""Instances that a solver is told of, where it may not find them by itself.

*A claim that is to be kept, asked where it is denied.* If the goal says something of all x and a hypothesis, the same
claim before, says it of all x too, then let c be an x of which the goal is denied: it is enough to show the goal of c,
and what the hypothesis says of c may be assumed. A solver finds that instance by itself where a pattern leads to it; an
x that is only compared with other numbers has none.

*The firing that comes next.* What a contract says of all firings it says of the next one, which is mostly the one that
a proof is about; but maps of firings name it by ways of many steps, no two of which look the same.
"""

from collections.abc import Iterator
from dataclasses import replace

import z3

from kvproof.models.proofs.contracts import LOOP_INVARIANT, NUM_FIRED
from kvproof.models.proofs.obligation import Hypothesis, Obligation


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


def where_next_fired(obligation: Obligation) -> Obligation:
    """The obligation, with what a contract says of all numbers said of the firing that comes next."""
    known = {one.name: one.formula for one in obligation.hypotheses}
    so_far, counted = known.get(LOOP_INVARIANT), known.get(f"parameter {NUM_FIRED}")
    if so_far is None or counted is None:
        return obligation
    (next_firing,) = (one for one in counted.children() if not z3.is_int_value(one))
    said = [_of(one, [next_firing]) for one in _parts(so_far) if isinstance(one, z3.QuantifierRef) and _is_simple(one)]
    told = Hypothesis(f"{LOOP_INVARIANT}, of the next firing", z3.And(said))
    return replace(obligation, hypotheses=(*obligation.hypotheses, told))


def _is_simple(formula: z3.QuantifierRef) -> bool:
    """Whether it says something of each number by itself."""
    return bool(formula.is_forall() and formula.num_vars() == 1 and formula.var_sort(0) == z3.IntSort())


def _parts(formula: z3.ExprRef) -> Iterator[z3.ExprRef]:
    """What it joins by `and`, on whatever level."""
    if z3.is_and(formula):
        for part in formula.children():
            yield from _parts(part)
    else:
        yield formula


def _of(formula: z3.QuantifierRef, constants: list[z3.ExprRef]) -> z3.BoolRef:
    found: z3.BoolRef = z3.substitute_vars(formula.body(), *reversed(constants))
    return found
