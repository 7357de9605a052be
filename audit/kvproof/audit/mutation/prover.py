"""Decide whether a proof notices a mutant of the rules, and if none does, whether the mutant is equivalent.

A mutant is *killed* by an obligation that is proved for the specification but not for the mutant, within a fixed
effort: an invariant, a check or a subscript of a rule that uses the changed function, or the contract of an operation.
It is *equivalent* if it is proved that from every state that satisfies the invariants each such rule is enabled exactly
when it was before, and leaves the same values in every field except ghost fields. If it is neither, other judges are
asked.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import z3

from kvproof.audit.faults.edits import Fault
from kvproof.audit.faults.planting import faulty_text
from kvproof.audit.mutation.operators import SYSTEMS
from kvproof.audit.mutation.weakenings import contracts_of
from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.proofs.contracts import contract_obligations
from kvproof.models.proofs.induction import Induction, Rule, guards, hypotheses
from kvproof.models.translation.dependencies import reached
from kvproof.models.translation.rules import Outcome
from kvproof.models.translation.terms import conjunction, equal
from kvproof.models.translation.text import Text, specification
from kvproof.models.translation.translator import Translator
from kvproof.spec.language import Contract, Least
from kvproof.spec.systems import BLOCK_MANAGERS

EFFORT_MAX = 1_500_000  # in Z3's units: more than twice what any obligation of a rule takes
EQUIVALENCE = "equivalence"
Build = Callable[[Induction], Iterable[Obligation]]


class MutantProver:
    """Judges mutants of one specification, one at a time."""

    def __init__(self, suite: str = BLOCK_MANAGERS.name) -> None:
        self.text, self.contracts = specification(SYSTEMS[suite]), contracts_of(suite)
        self.induction = Induction(Translator(text=self.text))
        self._before: dict[str, dict[str, Obligation]] = {}  # by rule or contract, of the unchanged specification

    def killer(self, mutant: Fault) -> str:
        """The name of an obligation that is not proved for the mutant; empty if all are proved."""
        text = faulty_text(mutant, self.text)
        induction = self._of(text)
        for name, build in self._groups(mutant):
            if name not in self._before:
                self._before[name] = {one.id: one for one in build(self.induction)}
            if found := first_open(self._before[name], list(build(induction))):
                return found
        return ""

    def _groups(self, mutant: Fault) -> Iterator[tuple[str, Build]]:
        """The rules and contracts that use the changed function; the obligations of all others are as before."""
        for rule in self._rules(mutant):
            yield rule.__name__, partial(Induction.rule, rule=rule)
        for contract in self.contracts:
            if self._is_used(mutant, functions_of(contract)):
                yield contract.name, partial(contract_obligations, contract=contract)

    def is_equivalent(self, mutant: Fault) -> bool:
        """Whether every rule that uses the changed function is proved to be equivalent to the original."""
        text = faulty_text(mutant, self.text)
        return all(
            _is_proved_alone(one)
            for rule in self._rules(mutant)
            for one in self._equalities(rule, text)
            if not one.is_trivial()
        )

    def _of(self, text: Text) -> Induction:
        """The induction over another text. Only rules and steps differ, so the invariants before can be shared."""
        induction = Induction(Translator(text=text))
        induction.before = self.induction.before
        vars(induction)["invariants"] = self.induction.invariants
        return induction

    def _rules(self, mutant: Fault) -> list[Rule]:
        return [rule for rule in self.induction.collected.rules if self._is_used(mutant, [rule.__name__])]

    def _is_used(self, mutant: Fault, names: list[str]) -> bool:
        return any(mutant.plant[0].function in reached(self.text, name) for name in names)

    def _equalities(self, rule: Rule, text: Text) -> Iterator[Obligation]:
        name, before = rule.__name__, self.induction.before
        parameters = list(self.induction.translator.parameters(rule))
        values = [one.value for one in parameters]
        known = self.induction.assumed + hypotheses((f"parameter {one.name}", one.known) for one in parameters)
        ours = self.induction.translator.run(name, before, *values)
        theirs = Translator(text=text).run(name, before, *values)
        same = equal(ours.guard, theirs.guard)
        yield Obligation(EQUIVALENCE, name, "enabled in the same states", "well-defined", known, same)
        enabled = known + guards(ours)
        yield from self._same_after(name, ours, theirs, enabled)

    def _same_after(
        self, name: str, ours: Outcome, theirs: Outcome, enabled: tuple[Hypothesis, ...]
    ) -> Iterator[Obligation]:
        for field_name, field in self.text.system.fields.items():
            if field.kind == "ghost":
                continue
            at = [z3.Int(f"at_{place}") for place in range(len(field.domains))]
            contains = self.induction.translator.universe.contains
            within = conjunction(*(contains(domain, one) for domain, one in zip(field.domains, at, strict=True)))
            same = equal(ours.state.maps[field_name].read(*at), theirs.state.maps[field_name].read(*at))
            known = enabled + hypotheses([("indexes", within)])
            yield Obligation(EQUIVALENCE, name, f"the same {field_name}", "well-defined", known, same)


def functions_of(contract: Contract) -> list[str]:
    """The functions and rules that a contract names."""
    named = [contract.name, contract.precondition, contract.variant, contract.loop_invariant, contract.can_choose]
    named += [name for firing in contract.firings for name in firing]
    for witness in (one for of_rule in contract.witnesses.values() for one in of_rule.values()):
        named += [witness.some, witness.among, witness.before] if isinstance(witness, Least) else [witness]
    return [name for name in named if name is not None]


def first_open(before: dict[str, Obligation], now: list[Obligation]) -> str:
    """The name of the first obligation that is not proved. Those that equal the ones before are not asked again."""
    asked = [one for one in now if not one.is_trivial() and not _is_as_before(before.get(one.id), one)]
    known: dict[tuple[int, ...], z3.Solver] = {}
    for one in asked:
        key = tuple(hypothesis.formula.get_id() for hypothesis in one.hypotheses)
        if key not in known:
            known[key] = _solver(one.hypotheses)
        solver = known[key]
        solver.push()
        solver.add(one.negated_goal())
        is_proved = solver.check() == z3.unsat
        solver.pop()
        if not is_proved and not _is_proved_alone(one):
            return one.id
    return ""


def _is_as_before(before: Obligation | None, now: Obligation) -> bool:
    if before is None or isinstance(now.goal, bool) or isinstance(before.goal, bool):
        return False
    known = {one.formula.get_id() for one in now.hypotheses}
    return before.goal.eq(now.goal) and all(one.formula.get_id() in known for one in before.hypotheses)


def _is_proved_alone(obligation: Obligation) -> bool:
    """Ask a new solver: an incremental one may fail because of the questions that it got before."""
    solver = _solver(obligation.hypotheses)
    solver.add(obligation.negated_goal())
    return solver.check() == z3.unsat


def _solver(assumed: tuple[Hypothesis, ...]) -> z3.Solver:
    solver = z3.SimpleSolver()
    solver.set(auto_config=False, mbqi=False, rlimit=EFFORT_MAX)
    solver.add(*(one.formula for one in assumed))
    return solver
