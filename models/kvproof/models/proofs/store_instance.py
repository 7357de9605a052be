"""A run of the rules of stores in which each of them fires: so none of them is refused in every state.

The proof of a rule that never fires would say nothing. The states of this run are also models of the hypotheses.
"""

from collections.abc import Iterator
from typing import Any

from kvproof.models.translation.text import Text, specification
from kvproof.spec.compilation import CheckFailed
from kvproof.spec.store.machine import STORES, StoreMachine, StoreSizes
from kvproof.spec.store.state import NONE, StoreState

SIZES = StoreSizes(num_blocks=5, num_tiers=2, num_keys=5, num_pins=6, num_owners=2, num_flights=4, block_size=2)
WHOLE, SHORT = [1, 2], [3, NONE]  # contents of keys
Firing = tuple[Any, ...]

RUN: tuple[Firing, ...] = (
    *(("grow", 0, 0), ("grow", 1, 0), ("grow", 2, 1), ("begin_owner", 0), ("begin_owner", 1)),
    *(("introduce", 0, 0, WHOLE, 2), ("introduce", 1, 0, SHORT, 1)),
    *(("begin_store", 0, 0, 0, 0, NONE), ("submit_store", 0, 0), ("land", 0), ("report", 0), ("keep", 0, 0)),
    *(("begin_store", 1, 0, 2, 0, NONE), ("submit_move", 0, 0, 1), ("land", 0), ("report", 0)),
    *(("end_load", 0, 0), ("commit", 1, 0), ("promise", 0, 1, 1, 0, 5), ("redeem", 0, 1), ("submit_load", 0, 0)),
    *(("advance", 5), ("land", 0), ("expire", 0), ("evict", 0), ("begin_load", 0, 1, 1, 0, NONE)),
    *(("begin_store", 1, 0, 0, 1, NONE), ("submit_store", 1, 1), ("fail", 1, WHOLE), ("abort", 1, 0)),
    *(("drop", 1, 0), ("end_owner", 1), ("expire", 0)),
)

BUSY: tuple[Firing, ...] = (  # a run after which several transfers may land, fail or be reported, and several pins end
    *(("grow", block, 0) for block in range(5)),
    *(("introduce", key, 0, WHOLE, 2) for key in range(5)),
    *(("begin_owner", 0), ("begin_store", 0, 0, 0, 0, NONE), ("submit_store", 0, 0), ("land", 0), ("commit", 0, 0)),
    *(("report", 0), ("begin_load", 0, 0, 0, 0, NONE), ("begin_load", 1, 0, 0, 0, NONE)),
    *(("begin_store", pin, 0, pin - 1, pin - 1, NONE) for pin in (2, 3, 4, 5)),
    *(("submit_store", pin - 2, pin) for pin in (2, 3, 4, 5)),
    *(("land", 0), ("land", 1)),
)
AT_ONCE: dict[str, tuple[Firing, Firing]] = {  # different arguments of each rule that a report leads to, enabled then
    "land": ((2,), (3,)),
    "fail": ((2, WHOLE), (3, WHOLE)),
    "report": ((0,), (1,)),
    "end_load": ((0, 0), (1, 0)),
    "commit": ((2, 0), (3, 0)),
    "abort": ((2, 0), (3, 0)),
}


class NotFired(Exception):
    """A rule is refused, or leaves a state that breaks a claim. The message says which."""


def machine_of(text: Text | None = None) -> StoreMachine:
    """The machine on which the runs are made."""
    return StoreMachine(SIZES, text=(text or specification(STORES)).functions)


def fired(machine: StoreMachine, run: tuple[Firing, ...] = RUN) -> Iterator[tuple[StoreState, str, Firing, StoreState]]:
    """Each firing of a run, with the states before and after it. Raises NotFired."""
    state = machine.first_state()
    for rule, *arguments in run:
        before = machine.copy(state)
        try:
            refused = machine.rules[rule](state, *arguments)
        except CheckFailed as error:
            raise NotFired(f"{rule}{tuple(arguments)}: {error}") from error
        if refused is not None:
            raise NotFired(f"{rule}{tuple(arguments)} is refused: {refused.sentence}")
        if broken := machine.broken_claims(state):
            raise NotFired(f"{rule}{tuple(arguments)} breaks {', '.join(broken)}")
        yield before, rule, tuple(arguments), state
