"""That what is proved is not proved of nothing.

A rule whose guards contradict the invariants would keep every claim. So for each rule a small state of the invariants
is looked for in which it is enabled, and the rule is fired there natively. And hypotheses that contradict each other
would prove anything: for each set of them that obligations have the solver is asked whether `False` follows. A model of
small sizes, or one that the solver gives, shows that it does not; where it can say neither within its effort, `False`
was looked for as long as the proofs themselves take.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import z3

from kvproof.models.counterexamples.case import RULES
from kvproof.models.counterexamples.instances import INSTANCES, Candidate, Search
from kvproof.models.counterexamples.replay import replays
from kvproof.models.proofs.obligation import Hypothesis, Obligation
from kvproof.models.translation.text import Text, specification

VACUITY, FIRES, HYPOTHESES = "vacuity", "fires", "hypotheses"
SETS, WITH_MODEL = "sets", "with a model"  # counts of a check of hypotheses
SECONDS = 30.0  # for all rules together
EFFORT = 200_000  # as Z3 counts it, for each set: more than nearly every proof takes


def firings(names: list[str], text: Text | None = None, seconds: float = SECONDS) -> Iterator[tuple[str, bool]]:
    """For each of these rules whether a small state of the invariants was found from which it fires natively."""
    text = text or specification()
    deadline = time.monotonic() + seconds
    left = list(names)
    for sizes in (INSTANCES[0], INSTANCES[2]):
        if not left:
            return
        search, replay_of = Search(sizes, text), dict(replays(sizes, text))
        for name in list(left):
            found: Candidate | None = None
            if time.monotonic() < deadline:
                found = search.enabled(RULES[name], deadline)
            if found is not None and replay_of[name].is_enabled(found):
                left.remove(name)
                yield name, True
    yield from ((name, False) for name in left)


@dataclass
class Hypotheses:
    """The sets of hypotheses of one suite, each with the first obligation that has it."""

    sets: dict[tuple[int, ...], Obligation] = field(default_factory=dict)
    num_satisfied: int = 0
    contradictory: list[Obligation] = field(default_factory=list)

    def note(self, obligation: Obligation) -> None:
        """Take the set of an obligation; where the goal is `False` the contradiction is the claim."""
        if obligation.goal is False or (not isinstance(obligation.goal, bool) and z3.is_false(obligation.goal)):
            return
        self.sets.setdefault(tuple(one.formula.get_id() for one in obligation.hypotheses), obligation)

    def decide(self) -> None:
        """Ask of each set whether it contradicts itself."""
        for obligation in self.sets.values():
            answer = _contradict(obligation.hypotheses)
            self.num_satisfied += answer == z3.sat
            if answer == z3.unsat:
                self.contradictory.append(obligation)


def _contradict(hypotheses: tuple[Hypothesis, ...]) -> z3.CheckSatResult:
    """`unsat` if `False` follows."""
    solver = z3.SimpleSolver()
    solver.set(auto_config=False, mbqi=False, rlimit=EFFORT)
    solver.add(*(one.formula for one in hypotheses))
    return solver.check()
