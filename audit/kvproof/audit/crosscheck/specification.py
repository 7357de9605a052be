"""The whole specification: every term that its proof is about, in the states of random walks, against native runs.

In each reached state: every invariant and theorem; a rule that fires, with its guards, checks, demands and every cell
of the state after, and with all obligations of that rule; and firings with other arguments, most of which are refused.
Then the same firing and the claims in corrupted states, so that claims are false, guards refuse and checks fail.

Once for each size: the assumptions about sizes, the first state, the domains of parameters, and the hypotheses about
derived fields and about denied claims.
"""

import contextlib
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import z3

from kvproof.audit.crosscheck.comparison import (
    Crosscheck,
    ListEnds,
    Situation,
    SymbolicRule,
    cells,
    mismatch,
)
from kvproof.audit.crosscheck.obligations import RuleObligations
from kvproof.audit.crosscheck.walk import SIZES, SIZES_OF_STORES, Arguments, Walk, corrupted
from kvproof.models.crosscheck.interpretation import Interpretation, field_rows, shape
from kvproof.models.proofs.endless_quantifiers import LENGTHS
from kvproof.models.translation.text import Text
from kvproof.models.translation.translator import Parameter
from kvproof.spec.native import MachineOf
from kvproof.spec.sizes import SizesOf
from kvproof.spec.store.machine import STORES

DRAWN = 2  # rules with drawn arguments that are compared in each state
VARIED = 2  # arguments of the rule that fires that are varied, one at a time
CORRUPTED = 2  # corrupted states for each reached state
SHARE = 0.02  # of the steps whose rule was compared more than twice as often as another, which are compared


@dataclass
class Compared:
    """What a comparison covered.

    num_cells: of states after a rule. num_values: guards, checks, demands and claims. num_formulas: hypotheses and
    goals of obligations. fired: how often each rule fired in a reached state. refused: how often each guard, by rule
    and text, was the first that did not hold. failed: the same of each check. false: how often each claim was false.
    longest: the greatest value in a reached state of each field that bounds a quantifier (`LENGTHS`).
    """

    num_cells: int
    num_values: int
    num_formulas: int
    num_states: int
    num_corrupted: int
    fired: Counter[str]
    refused: Counter[tuple[str, str]]
    failed: Counter[tuple[str, str]]
    false: Counter[str]
    longest: Counter[str]

    def __str__(self) -> str:
        return (
            f"{self.num_cells:,} cells, {self.num_values:,} guards, checks, demands and claims, {self.num_formulas:,} "
            f"hypotheses and goals, in {self.num_states:,} reached and {self.num_corrupted:,} corrupted states; "
            f"each of {len(self.fired)} rules fired at least {min(self.fired.values())} times"
        )


class SpecificationCheck:
    """Compares one text of a specification. By default the specification of block managers itself."""

    def __init__(self, seed: int, text: Text | None = None) -> None:
        self.crosscheck = Crosscheck(text)
        collected = self.crosscheck.text.system.collected
        self.rules = {rule.__name__: rule for rule in collected.rules}
        self.claims = tuple(claim.name for claim in (*collected.invariants, *collected.theorems))
        all_sizes: Sequence[SizesOf[Any]] = SIZES_OF_STORES if self.crosscheck.text.system is STORES else SIZES
        self.walks = [Walk(self.crosscheck, sizes, seed + place) for place, sizes in enumerate(all_sizes)]
        self.random = Random(seed)
        self.num_states = self.num_corrupted = self.num_fixed = 0
        self.num_fired, self.longest = Counter[str](), Counter[str]()
        self._obligations: dict[str, RuleObligations] = {}

    def run(self, num_cells: int) -> Compared:
        """Compare until so many cells of states were compared. Raises Mismatch."""
        for walk in self.walks:
            self.compare_fixed(walk.machine)
        for walk in itertools.cycle(self.walks):
            for situation, rule, arguments in walk.steps():
                num, least = self.num_fired[rule.name], min(self.num_fired[name] for name in self.rules)
                if num <= 2 * least or self.random.random() < SHARE:
                    self.num_fired[rule.name] += 1
                    self._compare(walk, situation, rule, arguments)
                if self.crosscheck.num_cells >= num_cells:
                    return self.compared()
        raise AssertionError

    def compared(self) -> Compared:
        """The counts so far."""
        rules = self.crosscheck.rules
        return Compared(
            num_cells=self.crosscheck.num_cells,
            num_values=self.crosscheck.num_values,
            num_formulas=self.num_fixed + sum(one.num_true for one in self._obligations.values()),
            num_states=self.num_states,
            num_corrupted=self.num_corrupted,
            fired=self.num_fired,
            refused=Counter({(name, text): num for name, one in rules.items() for text, num in one.guards.num_false()}),
            failed=Counter({(name, text): num for name, one in rules.items() for text, num in one.checks.num_false()}),
            false=Counter({name: one.counts[False] for name, one in self.crosscheck.claims.items()}),
            longest=self.longest,
        )

    def obligations(self, rule: SymbolicRule) -> RuleObligations:
        """The obligations of a rule."""
        if rule.name not in self._obligations:
            self._obligations[rule.name] = RuleObligations(self.crosscheck, rule, self.rules[rule.name])
        return self._obligations[rule.name]

    # A state

    def _compare(self, walk: Walk, situation: Situation, rule: SymbolicRule, arguments: list[Any]) -> None:
        """Compare all claims in a reached state, the rule that fires there, and others."""
        self.num_states += 1
        for name in self.claims:
            if self.crosscheck.compare_claim(self.crosscheck.claim(name), situation) is not True:
                raise mismatch(name, "in a reached state", False, True, situation)
        self._compare_lengths(situation)
        after = self.crosscheck.compare_rule(rule, situation, arguments)
        if after is None:
            raise mismatch(rule.name, "where it fired in a walk", "refused", "fired", situation, arguments)
        self.obligations(rule).compare(situation, arguments, after)
        draw = Arguments(self.random, situation, least=-1)
        for place in self.random.sample(range(len(arguments)), min(VARIED, len(arguments))):
            varied = next(draw.drawn(walk.annotations[rule.name]))
            self._attempt(rule, situation, [*arguments[:place], varied[place], *arguments[place + 1 :]])
        for name in self.random.choices(list(self.rules), k=DRAWN):
            self._attempt(walk.rule(name), situation, next(draw.drawn(walk.annotations[name])))
        for _ in range(CORRUPTED):
            self.num_corrupted += 1
            worse = Situation(walk.machine, corrupted(self.random, walk.machine, situation.state))
            self._attempt(rule, worse, arguments)
        for name in self.claims:
            with contextlib.suppress(ListEnds):
                self.crosscheck.compare_claim(self.crosscheck.claim(name), worse)

    def _compare_lengths(self, situation: Situation) -> None:
        """No field that bounds a quantifier exceeds the size at which the quantifier ends natively."""
        for name, size in LENGTHS.items():
            if name not in situation.machine.system.fields:
                continue
            cells_of = field_rows(situation.machine, name, getattr(situation.state, name)).cells()
            longest, end = max(value for _, value in cells_of), situation.machine.names[size]
            if longest > end:
                raise mismatch(name, f"against {size}", end, longest, situation)
            self.longest[name] = max(self.longest[name], longest)

    def _attempt(self, rule: SymbolicRule, situation: Situation, arguments: list[Any]) -> None:
        """Compare a rule that need not be enabled, in a state that need not be reached."""
        with contextlib.suppress(ListEnds):
            after = self.crosscheck.compare_rule(rule, situation, arguments)
            if after is not None:
                self.obligations(rule).compare_after(situation, arguments, after)

    # What does not depend on a state

    def compare_fixed(self, machine: MachineOf[Any]) -> None:
        """Compare what is assumed about sizes and parameters, and the first state. Raises Mismatch."""
        first = Situation(machine, machine.first_state())
        sizes = Interpretation(first.values.symbols, first.values.end)
        universe, evaluators = self.crosscheck.translator.universe, self.crosscheck.evaluators
        for name, number in universe.numbers.items():
            self._require(evaluators.of(number).under(sizes)(), machine.names[name], name, first)
        for one in universe.assumptions():
            self._require(evaluators.of(one).under(sizes)(), True, f"assumption {one}", first)
        for obligation in self.crosscheck.induction.initial():
            self._require(evaluators.of(obligation.goal).under(sizes)(), True, f"initial {obligation.claim}", first)
        for name, map in self.crosscheck.translator.first_state().maps.items():
            cell = cells(map, evaluators).under(sizes)
            for at, value in field_rows(machine, name, getattr(first.state, name)).cells():
                self._require(cell(*at), value, f"{name}{list(at)} of the first state", first)
        for rule in self.rules.values():
            for parameter in self.crosscheck.translator.parameters(rule):
                self._compare_domain(parameter, first)

    def _compare_domain(self, parameter: Parameter, first: Situation) -> None:
        """The domain of a parameter has the numbers that the native domain has."""
        if parameter.domain is None:
            return
        assert isinstance(parameter.value, z3.ExprRef)
        contains = self.crosscheck.evaluators.of(parameter.known, [parameter.value]).under(first.values)
        (size,), (has_end,) = shape(first.machine, [parameter.domain])
        for number in range(-2, size + 3):
            is_member = parameter.domain.is_signed or (0 <= number and (not has_end or number < size))
            self._require(contains(number), is_member, f"{parameter.domain.name} {number}", first)

    def _require(self, symbolic: object, native: object, place: str, situation: Situation) -> None:
        if symbolic != native:
            raise mismatch("the translator", place, symbolic, native, situation)
        self.num_fixed += 1
