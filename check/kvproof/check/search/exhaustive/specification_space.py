"""The states of the specification as a space to search: what single rules and whole calls have in common."""

from collections.abc import Hashable
from typing import Literal

from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.exhaustive.canonical import StateKeys
from kvproof.check.search.exhaustive.specification_claims import Claims
from kvproof.check.search.exhaustive.specification_continuations import Continuations
from kvproof.check.search.exhaustive.specification_firing import Firings
from kvproof.spec.native import Machine
from kvproof.spec.text.state import State


class SpecificationSpace:
    """The states of one machine. extent: which claims are evaluated in each of them, see `Claims`."""

    def __init__(self, scope: Scope, machine: Machine, extent: Literal["all", "real", "recount"]) -> None:
        self.scope, self.machine = scope, machine
        self.firings = Firings(machine)
        self.claims = Claims(machine, extent)
        self.continuations = Continuations()
        self._keys = StateKeys(machine, self.continuations.before)

    def first(self) -> State:
        """The state in which nothing has happened yet."""
        return self.machine.first_state()

    def state_key(self, state: State) -> Hashable:
        """See `StateKeys`."""
        return self._keys.of(state)

    def expand(self, state: State) -> State:
        """The state, if it breaks no claim. Raises Finding."""
        if (finding := self.claims.broken(state)) is not None:
            raise finding
        return state
