"""Counterexamples to contracts: the state where an operation began, the state where it is, and its next firing.

As for rules, a solver is asked in small instances, and its answer is run natively: both states satisfy every invariant,
and the contract allows that the operation came from the first to the second. Then its next rule is refused, or leaves a
state that violates the loop invariant, or the operation has ended without establishing its postcondition.
"""

import ast
import copy
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import z3

from kvproof.models.counterexamples.instances import INSTANCES, RULES, Search
from kvproof.models.counterexamples.replay import OutOfRange, TooSmall, watched
from kvproof.models.obligation import Obligation
from kvproof.models.proofs.contracts import LEFT_AT_FIRST, NUM_FIRED, Proof
from kvproof.models.solvers.solving import Allowance
from kvproof.models.translation.text import Text, specification
from kvproof.models.translation.translator import Parameter
from kvproof.spec.contract_texts import CONTRACTS
from kvproof.spec.language import COLLECTED, Contract
from kvproof.spec.native import Machine
from kvproof.spec.sizes import Sizes
from kvproof.spec.text.state import State

BEGINS, GOES_ON, IS_ENABLED, KEEPS_ON, ENDS, HAS_DONE = (
    "begins",
    "goes on",
    "is enabled",
    "keeps on",
    "ends",
    "has done",
)
KINDS = (BEGINS, GOES_ON, IS_ENABLED, KEEPS_ON, ENDS, HAS_DONE)
PART = "the_part"  # the name under which the part of a predicate that is not proved is compiled
NOT_THERE = (IndexError, OutOfRange, TooSmall)


@dataclass(frozen=True)
class ContractCase:
    """A claim of a contract. rule: the rule that is fired next, if there is one. part: the condition to be broken."""

    contract: Contract
    kind: str
    rule: str
    part: str


@dataclass(frozen=True, eq=False)
class BrokenContract:
    """An operation that breaks its contract, confirmed by a native run.

    given: the arguments of the operation, by name. start: the state where it began. before: the state where it is.
    chosen: the arguments of the next firing. after: the state after it; if nothing is fired, the state before. reason:
    what is wrong, in words.
    """

    case: ContractCase
    sizes: Sizes
    given: dict[str, Any]
    start: State
    before: State
    chosen: dict[str, Any]
    after: State
    reason: str


def contract_case(obligation: Obligation) -> ContractCase | None:
    """The case of an obligation; None if no run can break it: subscripts in range, and the variant at the start."""
    contract = next((one for one in CONTRACTS if one.name == obligation.subject), None)
    head, _, part = obligation.claim.partition(": ")
    kind, _, by = head.partition(", by ")
    if contract is None or kind not in KINDS or part == LEFT_AT_FIRST:
        return None
    rule = by or (contract.rule if kind in (IS_ENABLED, KEEPS_ON, ENDS) else "")
    return ContractCase(contract, kind, rule, part)


def broken_contract(obligation: Obligation, text: Text | None, allowance: Allowance) -> BrokenContract | None:
    """Search for a native run in which an operation breaks its contract; None if none is found with this effort."""
    case = contract_case(obligation)
    if case is None:
        return None
    text = text or specification()
    for sizes in INSTANCES:
        if not allowance.left:
            return None
        search = _Search(sizes, text, case)
        candidate = search.candidate(obligation.id, allowance)
        found = None if candidate is None else _Replay(sizes, text, case).run(candidate)
        if found is not None:
            return found
    return None


@dataclass(frozen=True, eq=False)
class _Candidate:
    given: dict[str, Any]
    start: State
    before: State
    chosen: dict[str, Any]


class _Search:
    """One contract in one instance."""

    def __init__(self, sizes: Sizes, text: Text, case: ContractCase) -> None:
        self.case, self.search = case, Search(sizes, text)
        self.proof = Proof(self.search.induction, case.contract)

    def candidate(self, id: str, allowance: Allowance) -> _Candidate | None:
        """The solver's candidate for breaking the contract; None if it finds none with this effort."""
        obligation = next((one for one in self.proof.obligations() if one.id == id), None)
        if obligation is None or obligation.is_trivial():
            return None
        solver = z3.Solver()
        solver.add(*(one.formula for one in obligation.hypotheses), obligation.negated_goal(), *self._room())
        solver.add(self.proof.at_first.truth(self.case.contract.precondition, start=self.proof.start))
        if allowance.check(solver) != z3.sat:
            return None
        model = self.search.preferred(solver, allowance)
        given = self.search.read(model, self.proof.given).arguments
        chosen = self.search.read(model, self._chosen()).arguments
        start = self.search.read_state(model, self.proof.start)
        if self.case.kind == BEGINS:
            given = {name: 0 if name == NUM_FIRED else value for name, value in given.items()}
            return _Candidate(given, start, copy.deepcopy(start), chosen)
        return _Candidate(given, start, self.search.read_state(model, self.proof.state), chosen)

    def _chosen(self) -> tuple[Parameter, ...]:
        return next((one.chosen for one in self.proof.firings if one.rule == self.case.rule), ())

    def _room(self) -> Iterator[Any]:
        yield from self.search.room([*self.proof.given, *self._chosen()])
        for seq in range(self.search.sizes.num_seqs):
            yield self.proof.start.maps["num_blocks"].read(seq) < self.search.sizes.num_indexes  # type: ignore[operator]


class _Replay:
    """Runs a candidate natively."""

    def __init__(self, sizes: Sizes, text: Text, case: ContractCase) -> None:
        self.case, self.sizes = case, sizes
        functions = dict(text.functions)
        name = case.contract.name if case.kind == HAS_DONE else case.contract.loop_invariant
        if case.kind in (BEGINS, KEEPS_ON, HAS_DONE):
            functions[PART] = (_part_as_function(functions[name][0], case.part), functions[name][1])
        self.machine = Machine(sizes, with_ghosts=True, with_checks=False, text=functions)

    def run(self, candidate: _Candidate) -> BrokenContract | None:
        """The broken contract; None if the run does not confirm the candidate."""
        try:
            return self._run(candidate)
        except NOT_THERE:
            return None

    def _run(self, candidate: _Candidate) -> BrokenContract | None:
        case, contract = self.case, self.case.contract
        start, before = watched(candidate.start), watched(candidate.before)
        if not all(self.machine.function(one.name)(state) for one in COLLECTED.invariants for state in (start, before)):
            return None
        given = candidate.given
        at_first = {name: 0 if name == NUM_FIRED else value for name, value in given.items()}
        if not self._value(contract.precondition, at_first, start=start):
            return None
        if case.kind != BEGINS and not self._value(contract.loop_invariant, given, start=start, state=before):
            return None
        left = self._value(contract.variant, given, state=before)
        if case.kind != BEGINS and (left == 0) != (case.kind == HAS_DONE):
            return None
        after, reason = copy.deepcopy(before), ""
        if case.kind == GOES_ON:
            assert contract.can_choose is not None
            reason = "" if self._value(contract.can_choose, given, state=before) else "no rule can be fired any more"
        elif case.rule:
            reason = self._fire(candidate, start, before, after, left)
        elif not self._holds(start, before, given):
            reason = case.part
        if not reason:
            return None
        return BrokenContract(
            case, self.sizes, candidate.given, candidate.start, candidate.before, candidate.chosen, after, reason
        )

    def _fire(self, candidate: _Candidate, start: State, before: State, after: State, left: int) -> str:
        """Fire the next rule in `after`. Returns what is wrong; empty if nothing is, or if the rule is not chosen."""
        case, contract = self.case, self.case.contract
        given, chosen = candidate.given, candidate.chosen
        choice = dict(contract.firings)[case.rule]
        if choice and not self._value(choice, given, state=before, **chosen):
            return ""
        names = list(inspect.signature(RULES[case.rule]).parameters)[1:]
        arguments = copy.deepcopy([{**given, **chosen}[name] for name in names])
        refused = self.machine.rules[case.rule](after, *arguments)
        if refused is not None:
            return f"it is refused: {refused.sentence}" if case.kind == IS_ENABLED else ""
        next_given = {name: value + 1 if name == NUM_FIRED else value for name, value in given.items()}
        if case.kind == KEEPS_ON:
            return "" if self._holds(start, after, next_given) else case.part
        if case.kind == ENDS:
            left_after = self._value(contract.variant, next_given, state=after)
            return "" if 0 <= left_after < left else f"{left} firings are left before it, {left_after} after it"
        return ""

    def _holds(self, start: State, state: State, given: dict[str, Any]) -> bool:
        if not self.case.part or PART not in self.machine.names:
            return True
        return bool(self._value(PART, given, start=start, state=state))

    def _value(self, name: str, given: dict[str, Any], **values: Any) -> Any:
        """The value of a function of the contract, given the states and the choices by name."""
        return self.machine.value(name, {**self.case.contract.arguments(given), **values})


def _part_as_function(function: ast.FunctionDef, part: str) -> ast.FunctionDef:
    """A part of a predicate, as a function with the same parameters."""
    found = copy.deepcopy(function)
    found.name, found.decorator_list = PART, []
    expression = ast.parse(part, mode="eval").body
    found.body = [ast.copy_location(ast.Return(expression), function.body[-1])]
    return ast.fix_missing_locations(found)
