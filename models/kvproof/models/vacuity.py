"""Vacuity checks: rules can fire, contracts can run, and no set of hypotheses is contradictory.

A rule whose guards contradict the invariants would keep every claim. So for each rule, a small state is searched that
satisfies the invariants and enables the rule, and the rule is fired there natively. For each contract, its operation is
run in a small instance (`contract_instances`).

Contradictory hypotheses would prove anything. So each set of hypotheses of an obligation needs a model. Whether a set
contradicts itself is a question of its own (`Obligation.is_search`), asked before those of the obligations that have
it. Native states are tried if the obligation is about the specification (`satisfied`), while the solver processes still
answer. Where neither they nor the solver give a model, the solver is asked for one in which every unknown number is
small. If there is none either, it is still known that the solver does not derive `False`, with as much effort as nearly
every proof takes.

All limits are efforts of the solver, never times, so the result does not depend on the load of the machine.
"""

import functools
import hashlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

import z3

from kvproof.models.counterexamples.instances import INSTANCES, RULES, Search
from kvproof.models.counterexamples.replay import replay_of_rule
from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.proofs import stores
from kvproof.models.proofs.satisfied import NativeStates
from kvproof.models.proofs.stores import NotFired
from kvproof.models.solvers.solving import ProofOutcome
from kvproof.models.translation.text import Text, specification
from kvproof.spec.verdict import Verdict

VACUITY, FIRES, RUNS, HYPOTHESES = "vacuity", "fires", "runs", "hypotheses"
SETS, WITH_MODEL = "sets", "with a model"  # counts of a check of hypotheses
FIRING_EFFORT = 10_000_000  # in Z3's units, for each rule in each instance: five times what the hardest rule takes
MODEL_EFFORT = 2_000_000  # in Z3's units, to find a model in which numbers are small
SMALL = (1, 2, 3)  # the bounds of unknown numbers, tried one after the other


def firings(names: list[str], text: Text | None = None, effort: int = FIRING_EFFORT) -> Iterator[tuple[str, bool]]:
    """For each of these rules: whether a small state was found that satisfies the invariants and fires it natively."""
    text = text or specification()
    left = list(names)
    for sizes in (INSTANCES[0], INSTANCES[2]):
        if not left:
            return
        search = Search(sizes, text)
        for name in list(left):
            if _fires(search, name, effort):
                left.remove(name)
                yield name, True
    yield from ((name, False) for name in left)


def _fires(search: Search, name: str, effort: int) -> bool:
    found = search.enabled(RULES[name], effort)
    return found is not None and replay_of_rule(name, search.sizes, search.translator.text).is_enabled(found)


def firings_of_stores(names: list[str]) -> Iterator[tuple[str, bool]]:
    """For each of these rules of stores: whether it fires in a run from the first state, in which every claim holds."""
    fired = set[str]()
    with suppress(NotFired):
        fired.update(rule for _, rule, *_ in stores.fired(stores.machine_of()))
    yield from ((name, name in fired) for name in names)


@dataclass
class Hypotheses:
    """The sets of hypotheses of the obligations by their digests, each with the first obligation that has it."""

    sets: dict[str, Obligation] = field(default_factory=dict)
    contradictory: list[Obligation] = field(default_factory=list)
    open: list[Obligation] = field(default_factory=list)  # neither a contradiction nor a model was found
    undecided: list[Obligation] = field(default_factory=list)
    native: set[str] = field(default_factory=set)  # those that hold in a native state

    @property
    def num_sets(self) -> int:
        """How many sets there are."""
        return len(self.sets)

    @property
    def num_satisfied(self) -> int:
        """How many sets have a model."""
        return self.num_sets - len(self.contradictory) - len(self.undecided)

    def note(self, obligation: Obligation) -> Obligation | None:
        """Add the hypotheses of an obligation. Returns the search for a contradiction if they are new.

        A contradiction is not an error if the goal is `False`.
        """
        if not _needs_model(obligation) or self.sets.setdefault(_set_of(obligation), obligation) is not obligation:
            return None
        return replace(obligation, goal=False, is_search=True)

    def searched(self, outcome: ProofOutcome) -> None:
        """Note what the search for a contradiction has found."""
        if outcome.answer.verdict is Verdict.PROVED:
            self.contradictory.append(outcome.obligation)
        elif outcome.answer.verdict is Verdict.UNKNOWN:
            self.open.append(outcome.obligation)

    def look_in(self, states: NativeStates) -> Iterator[None]:
        """Look for a model of each set in native states, one set after the other."""
        for digest, obligation in self.sets.items():
            if states.satisfy(obligation):
                self.native.add(digest)
            yield

    def decide(self) -> None:
        """Look for a small model of each set that a search has left open, and that holds in no native state."""
        for obligation in sorted(self.open, key=lambda one: one.id):  # the answers arrive in any order
            has_model = _set_of(obligation) in self.native or _has_small_model(obligation)
            if not has_model:
                self.undecided.append(obligation)


def _needs_model(obligation: Obligation) -> bool:
    """Whether its hypotheses need a model: not if its claim is that they contradict each other."""
    return obligation.goal is not False and (isinstance(obligation.goal, bool) or not z3.is_false(obligation.goal))


@functools.lru_cache(maxsize=64)
def _digest(hypotheses: tuple[Hypothesis, ...]) -> str:
    return hashlib.sha256(Obligation("", "", "", "", hypotheses, True).question()[0].encode()).hexdigest()


def _set_of(obligation: Obligation) -> str:
    """The digest of the set of its hypotheses."""
    return _digest(obligation.hypotheses)


def _has_small_model(obligation: Obligation) -> bool:
    """Whether the solver finds a model of the hypotheses in which every unknown number is small."""
    formulas = [one.formula for one in obligation.hypotheses]
    numbers = _numbers(formulas)
    for bound in SMALL:
        solver = z3.SimpleSolver()
        solver.set(rlimit=MODEL_EFFORT)
        solver.add(*formulas, *(z3.And(-1 <= number, number <= bound) for number in numbers))
        if solver.check() == z3.sat:
            return True
    return False


def _numbers(formulas: list[z3.BoolRef]) -> list[z3.ArithRef]:
    """The constants of the formulas that are numbers."""
    found: list[z3.ArithRef] = []
    seen: set[int] = set()
    left: list[z3.ExprRef] = [*formulas]
    while left:
        term = left.pop()
        if term.get_id() in seen:
            continue
        seen.add(term.get_id())
        if isinstance(term, z3.QuantifierRef):
            left.append(term.body())
            continue
        if isinstance(term, z3.ArithRef) and z3.is_const(term) and term.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            found.append(term)
        left += term.children()
    return found
