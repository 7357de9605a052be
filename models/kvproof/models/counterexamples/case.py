"""What is to be shown of an obligation, and what has been shown."""

import builtins
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kvproof.models.proofs.induction import INITIAL, SUITE, THEOREM
from kvproof.models.proofs.obligation import WELL_DEFINED, Obligation
from kvproof.spec.language import COLLECTED
from kvproof.spec.native import Sizes
from kvproof.spec.text.state import State

CHECK = "check "
RULES = {rule.__name__: rule for rule in COLLECTED.rules}
CLAIMS = {claim.name: claim for claim in (*COLLECTED.invariants, *COLLECTED.theorems)}


class Kind(Enum):
    """How a claim about the specification can be false."""

    INITIAL = "the first state does not satisfy it"
    THEOREM = "a state satisfies every invariant, and not the theorem"
    INVARIANT = "a rule leads from a state that satisfies every invariant to one that does not"
    CHECK = "a rule reaches a check that does not hold"
    RANGE = "something is read or written that is not there"


@dataclass(frozen=True)
class Case:
    """One claim about a rule, a theorem or the first state. function: where a check or a subscript stands."""

    kind: Kind
    subject: str
    claim: str
    property: str
    function: str

    @builtins.property
    def is_of_rule(self) -> bool:
        """Whether a rule is run."""
        return self.subject in RULES


def case_of(obligation: Obligation) -> Case | None:
    """What is to be shown; None where no run of the specification can show it."""
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
    """The part of a claim that is false.

    place: file and line. text: as it stands there. at: the values of the names it is quantified over. values: what
    each field it reads is there.
    """

    place: str
    text: str
    at: dict[str, int]
    values: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Counterexample:
    """A state, the rule that is fired with its arguments, and the state it leaves, as running them has shown.

    after: of a check or a subscript, the state as it is where it stands. sentence: what the claim says in words.
    place: where it stands, file and line.
    """

    case: Case
    sizes: Sizes
    arguments: dict[str, Any]
    before: State
    after: State
    sentence: str
    place: str
    clauses: tuple[Clause, ...]
