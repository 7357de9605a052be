"""Vacuity checks: rules can fire, and no set of hypotheses is contradictory.

A rule whose guards contradict the invariants would keep every claim. So for each rule, a small state is searched that
satisfies the invariants and enables the rule, and the rule is fired there natively.

Contradictory hypotheses would prove anything. So for each set of hypotheses of an obligation, the solver is asked
whether `False` follows. If it finds a model, `False` does not follow. If it finds neither, the search for `False` has
taken at least as much effort as nearly every proof.

All limits are efforts of the solver, never times, so the result does not depend on the load of the machine.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import z3

from kvproof.models.counterexamples.case import RULES
from kvproof.models.counterexamples.instances import INSTANCES, Search
from kvproof.models.counterexamples.replay import replays
from kvproof.models.proofs.obligation import Hypothesis, Obligation
from kvproof.models.translation.text import Text, specification

VACUITY, FIRES, HYPOTHESES = "vacuity", "fires", "hypotheses"
SETS, WITH_MODEL = "sets", "with a model"  # counts of a check of hypotheses
FIRING_EFFORT = 10_000_000  # in Z3's units, for each rule in each instance: five times what the hardest rule takes
EFFORT = 200_000  # in Z3's units, for each set of hypotheses: more than nearly every proof takes


def firings(names: list[str], text: Text | None = None, effort: int = FIRING_EFFORT) -> Iterator[tuple[str, bool]]:
    """For each of these rules: whether a small state was found that satisfies the invariants and fires it natively."""
    text = text or specification()
    left = list(names)
    for sizes in (INSTANCES[0], INSTANCES[2]):
        if not left:
            return
        search, replay_of = Search(sizes, text), dict(replays(sizes, text))
        for name in list(left):
            found = search.enabled(RULES[name], effort)
            if found is not None and replay_of[name].is_enabled(found):
                left.remove(name)
                yield name, True
    yield from ((name, False) for name in left)


@dataclass
class Hypotheses:
    """The sets of hypotheses of the obligations, each with the first obligation that has it."""

    sets: dict[tuple[int, ...], Obligation] = field(default_factory=dict)
    num_satisfied: int = 0
    contradictory: list[Obligation] = field(default_factory=list)

    def note(self, obligation: Obligation) -> None:
        """Add the hypotheses of an obligation. A contradiction is not an error if the goal is `False`."""
        if obligation.goal is False or (not isinstance(obligation.goal, bool) and z3.is_false(obligation.goal)):
            return
        self.sets.setdefault(tuple(one.formula.get_id() for one in obligation.hypotheses), obligation)

    def decide(self) -> None:
        """Ask the solver of each set whether it is contradictory."""
        for obligation in self.sets.values():
            answer = _contradict(obligation.hypotheses)
            self.num_satisfied += answer == z3.sat
            if answer == z3.unsat:
                self.contradictory.append(obligation)


def _contradict(hypotheses: tuple[Hypothesis, ...]) -> z3.CheckSatResult:
    """The solver's answer about the conjunction of the hypotheses: `unsat` if `False` follows."""
    solver = z3.SimpleSolver()
    solver.set(auto_config=False, mbqi=False, rlimit=EFFORT)
    solver.add(*(one.formula for one in hypotheses))
    return solver.check()
