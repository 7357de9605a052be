"""What every state is checked against: an independent count, and the claims of the specification.

The count alone checks the references, the lists, what is shared and what is read back; it suffices where states are
so many that evaluating each claim would take longer than the search.
"""

import ast
from collections.abc import Callable
from functools import cache
from typing import Literal

from kvproof.check.protocol.finding import Finding
from kvproof.check.search.exhaustive.independent_count import miscounts
from kvproof.spec.language import COLLECTED, Claim
from kvproof.spec.native import GHOSTS, Machine, fields_in, functions
from kvproof.spec.text.state import State


@cache
def _reads_ghosts(name: str) -> bool:
    """Whether a claim or function reads a ghost field, itself or through a function that it calls."""
    function, _ = functions()[name]
    called = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)} & functions().keys() - {name}
    return bool(fields_in(function) & GHOSTS) or any(_reads_ghosts(other) for other in called)


class Claims:
    """The claims that are evaluated on states of one machine: all, those that read no ghost (real), or none."""

    def __init__(self, machine: Machine, extent: Literal["all", "real", "recount"]) -> None:
        self.sizes = machine.sizes
        claims = COLLECTED.invariants + COLLECTED.theorems if extent != "recount" else []
        self.predicates: list[tuple[Claim, Callable[[State], bool]]] = [
            (claim, machine.function(claim.name))
            for claim in claims
            if extent == "all" or not _reads_ghosts(claim.name)
        ]

    def broken(self, state: State) -> Finding | None:
        """The first thing that does not hold; counting comes first, since it needs no sound state."""
        try:
            if found := miscounts(self.sizes, state):
                return Finding(*found)
            for claim, holds in self.predicates:
                if not holds(state):
                    return Finding(claim.property, f"{claim.name}: {claim.sentence}")
        except IndexError:
            return Finding("lists-agree", "a number of the state is out of the range of what it counts")
        return None
