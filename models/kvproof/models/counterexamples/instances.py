"""Small instances of the specification: sizes in which a solver looks for a state, and the state of its model.

In an instance the numbers of blocks, sequences, slots and flights are known, and quantifiers are unrolled. Tables and
enumerations are infinite there too, but only a finite part of them is read; so the state must have tables with room for
one more entry in that part.

A case is a claim that a run can break, and a counterexample breaks one.
"""

import builtins
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import z3

from kvproof.models.obligation import WELL_DEFINED, Obligation
from kvproof.models.proofs.induction import INITIAL, SUITE, THEOREM, Induction
from kvproof.models.solvers.solving import Allowance
from kvproof.models.translation.maps import Map, SymbolicState
from kvproof.models.translation.sizes import WITHOUT_END, Universe
from kvproof.models.translation.terms import Number, Truth, is_between
from kvproof.models.translation.text import Text
from kvproof.models.translation.translator import Parameter, Translator
from kvproof.spec.language import COLLECTED, Domain
from kvproof.spec.native import FIELDS
from kvproof.spec.sizes import Sizes
from kvproof.spec.text.state import FREE, NONE, State

CHECK = "check "
RULES = {rule.__name__: rule for rule in COLLECTED.rules}
CLAIMS = {claim.name: claim for claim in (*COLLECTED.invariants, *COLLECTED.theorems)}

# In increasing size; each has something that the smaller ones lack.
INSTANCES = (
    Sizes(num_gpu_blocks=2, num_host_blocks=0, block_size=2, num_seqs=2, num_indexes=2),
    Sizes(num_gpu_blocks=2, num_host_blocks=2, block_size=2, num_seqs=2, num_indexes=3),
    Sizes(num_gpu_blocks=2, num_host_blocks=2, block_size=2, num_seqs=2, num_indexes=3, num_flights=2),
    Sizes(num_gpu_blocks=3, num_host_blocks=2, block_size=2, num_seqs=3, num_indexes=4, num_flights=2),
)
WISH_EFFORT = 2_000_000  # in Z3's units, for each wish for a state that is easier to read


class Kind(Enum):
    """The ways in which a claim about the specification can be false."""

    INITIAL = "the initial state does not satisfy it"
    THEOREM = "a state satisfies every invariant, but not the theorem"
    INVARIANT = "a rule leads from a state that satisfies every invariant to one that does not"
    CHECK = "a rule reaches a check that does not hold"
    RANGE = "a subscript is out of range"


@dataclass(frozen=True)
class Case:
    """A claim about a rule, a theorem or the initial state. function: the one that has the check or the subscript."""

    kind: Kind
    subject: str
    claim: str
    property: str
    function: str

    @builtins.property
    def is_of_rule(self) -> bool:
        """Whether the claim is about a rule, so that a rule is fired."""
        return self.subject in RULES


def case_of(obligation: Obligation) -> Case | None:
    """The case of an obligation; None if no run of the specification can break it."""
    subject, claim = obligation.subject, obligation.claim
    if obligation.suite != SUITE:
        return None
    if subject in (INITIAL, THEOREM):
        kind = Kind.INITIAL if subject == INITIAL else Kind.THEOREM
        return Case(kind, subject, claim, obligation.property, claim) if claim in CLAIMS else None
    text, _, chain = claim.partition(", in ")
    function = chain.rpartition(" > ")[2] or subject
    if obligation.property == WELL_DEFINED:
        return Case(Kind.RANGE, subject, claim, obligation.property, function)
    if claim.startswith(CHECK):
        return Case(Kind.CHECK, subject, text.removeprefix(CHECK), obligation.property, function)
    return Case(Kind.INVARIANT, subject, claim, obligation.property, claim)


@dataclass(frozen=True)
class Clause:
    """A part of a claim that is false.

    place: file and line. text: its source. at: the values of the quantified variables. values: the value of each
    field and predicate that it reads, by source text.
    """

    place: str
    text: str
    at: dict[str, int]
    values: dict[str, Any]


@dataclass(frozen=True, eq=False)
class ProofCounterexample:
    """A state, a rule with its arguments, and the state after firing it, confirmed by a native run.

    after: for a check or a subscript, the state at that point of the rule. sentence: the claim in words. place: file
    and line of the claim.
    """

    case: Case
    sizes: Sizes
    arguments: dict[str, Any]
    before: State
    after: State
    sentence: str
    place: str
    clauses: tuple[Clause, ...]


class Instance(Universe):
    """Known sizes, except for tables and enumerations."""

    def contains(self, domain: Domain, term: Number) -> Truth:
        end = None if domain.size in WITHOUT_END else self.size(domain)
        return domain.is_signed or is_between(0, term, end)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A state and the arguments of a rule, from a model of the solver."""

    state: State
    arguments: dict[str, Any]


class Search:
    """One text of the specification in one instance."""

    def __init__(self, sizes: Sizes, text: Text) -> None:
        self.sizes = sizes
        self.translator = Translator(sizes, text)
        self.translator.universe = Instance(sizes)
        self.induction = Induction(self.translator)
        self.before = self.induction.before

    def candidate(self, case: Case, rule: Any, id: str, allowance: Allowance) -> Candidate | None:
        """A state for which the solver finds the claim to be false; None if it finds none with this effort."""
        obligation = self._obligation(case, rule, id)
        if obligation is None or obligation.is_trivial() or not allowance.left:
            return None
        parameters = list(self.translator.parameters(rule)) if rule is not None else []
        solver = z3.Solver()
        solver.add(*(one.formula for one in obligation.hypotheses), obligation.negated_goal(), *self.room(parameters))
        if allowance.check(solver) != z3.sat:
            return None
        model = self.preferred(solver, allowance)
        return self.read(model, parameters)

    def enabled(self, rule: Any, effort: int) -> Candidate | None:
        """A state that satisfies the invariants and enables a rule; None if the solver finds none with this effort."""
        parameters = list(self.translator.parameters(rule))
        outcome = self.translator.run(rule.__name__, self.before, *(one.value for one in parameters))
        solver = z3.Solver()
        solver.set("rlimit", effort)
        solver.add(*(one.formula for one in self.induction.assumed), *(one.known for one in parameters))
        solver.add(outcome.guard, *self.room(parameters))
        return self.read(solver.model(), parameters) if solver.check() == z3.sat else None

    def _obligation(self, case: Case, rule: Any, id: str) -> Obligation | None:
        if case.subject == INITIAL:
            made = self.induction.initial()
        elif case.subject == THEOREM:
            made = self.induction.theorems()
        elif rule is not None:
            made = self.induction.rule(rule)
        else:
            made = self.induction.claims_are_defined()
        return next((one for one in made if one.id == id), None)

    def room(self, parameters: Iterable[Parameter]) -> Iterator[Truth]:
        """Every table has room for one more entry, and index parameters are in the finite part."""
        for seq in range(self.sizes.num_seqs):
            yield self.before.maps["num_blocks"].read(seq) < self.sizes.num_indexes  # type: ignore[operator]
        for one in parameters:
            if one.domain is not None and one.domain.size in WITHOUT_END:
                yield one.value < self.sizes.num_indexes  # type: ignore[operator]

    # States that are easy to read

    def preferred(self, solver: z3.Solver, allowance: Allowance) -> z3.ModelRef:
        """A model of a simple state: as many wishes as possible are fulfilled. The solver must have a model."""
        model = solver.model()
        for wish in self._wishes():
            if isinstance(wish, bool) or z3.is_true(model.eval(wish, model_completion=True)):
                solver.add(wish)
                continue
            if not allowance.left:
                break
            solver.push()
            solver.add(wish)
            if allowance.check(solver, WISH_EFFORT) == z3.sat:
                model = solver.model()
            else:
                solver.pop()
        return model

    def _wishes(self) -> Iterator[Truth]:
        """Conditions that make a state simple, the most important first."""
        maps, sizes = self.before.maps, self.sizes
        seqs, blocks = range(sizes.num_seqs), range(sizes.num_gpu_blocks + sizes.num_host_blocks)
        yield from (maps["uses"].read(flight) == NONE for flight in range(sizes.num_flights))
        yield from (maps["live"].read(seq) == z3.BoolVal(False) for seq in reversed(seqs))
        yield from (maps["cached"].read(block) == z3.BoolVal(False) for block in blocks)
        yield from (maps["status"].read(block) == FREE for block in reversed(blocks))
        for name, value in (("window", 0), ("moving", NONE), ("first", 0), ("num_blocks", 0), ("num_full", 0)):
            yield from (maps[name].read(seq) == value for seq in seqs)
        yield from (maps["ending"].read(seq) == z3.BoolVal(False) for seq in seqs)
        for name in ("num_filled", "done_full", "done_filled"):
            yield from (maps[name].read(seq) == 0 for seq in seqs)
        yield from (maps["num_written"].read(block) == 0 for block in blocks)

    # Reading a model

    def read(self, model: z3.ModelRef, parameters: Iterable[Parameter]) -> Candidate:
        """The state and the arguments of a model; values that it leaves open are 0 or false."""
        arguments = {one.name: self._argument(model, one) for one in parameters}
        return Candidate(self.read_state(model, self.before), arguments)

    def read_state(self, model: z3.ModelRef, state: SymbolicState) -> State:
        """A state of the model, as the lists of `kvproof.spec.native`."""
        found = State()
        for name, field in FIELDS.items():
            setattr(found, name, self._values(model, state.maps[name], field.domains, ()))
        return found

    def _argument(self, model: z3.ModelRef, parameter: Parameter) -> Any:
        value = parameter.value
        if isinstance(value, Map):
            return self._values(model, value, value.domains, ())
        return _known(model, value)

    def _values(self, model: z3.ModelRef, map: Map, domains: tuple[Domain, ...], at: tuple[int, ...]) -> Any:
        if len(at) == len(domains):
            return _known(model, map.read(*at))
        members = self.translator.universe.members(domains[len(at)])
        if members is None:  # positions of a sequence
            members = range(self.sizes.num_indexes * self.sizes.block_size)
        return [self._values(model, map, domains, (*at, one)) for one in members]


def _known(model: z3.ModelRef, term: Any) -> int | bool:
    if not isinstance(term, z3.ExprRef):
        return term  # type: ignore[no-any-return]
    value = model.eval(term, model_completion=True)
    return z3.is_true(value) if z3.is_bool(value) else value.as_long()


def instances_for(case: Case) -> tuple[Sizes, ...]:
    """The instances in which a case is searched; for the initial state only one, with blocks in both pools."""
    return INSTANCES if case.kind is not Kind.INITIAL else (INSTANCES[1],)
