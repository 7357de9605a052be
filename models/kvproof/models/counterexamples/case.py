"""Cases, which are claims that a run can break, and counterexamples to them."""

import builtins
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kvproof.models.obligation import WELL_DEFINED, Obligation
from kvproof.models.proofs.induction import INITIAL, SUITE, THEOREM
from kvproof.spec.language import COLLECTED
from kvproof.spec.sizes import Sizes
from kvproof.spec.text.state import State

CHECK = "check "
RULES = {rule.__name__: rule for rule in COLLECTED.rules}
CLAIMS = {claim.name: claim for claim in (*COLLECTED.invariants, *COLLECTED.theorems)}


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
