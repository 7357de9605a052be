"""What the rules of stores refuse: each situation is a way in which stores have lost or mixed up KV."""

from typing import Any

import pytest

from kvproof.spec.compilation import Guard
from kvproof.spec.store.machine import StoreMachine, StoreSizes
from kvproof.spec.store.state import HIT, MISS, NONE, PENDING, StoreState

ROW, OTHER, TORN = [1, 2], [3, NONE], [9, 9]
SIZES = StoreSizes(num_blocks=3, num_tiers=2, num_keys=2, num_pins=3, num_owners=2, num_flights=2, block_size=2)
Firing = tuple[Any, ...]
BEGUN: tuple[Firing, ...] = (
    *(("grow", 0, 0), ("grow", 1, 0), ("grow", 2, 1), ("begin_owner", 0), ("begin_owner", 1)),
    *(("introduce", 0, 0, ROW, 2), ("introduce", 1, 0, OTHER, 1)),
)
STAGED: tuple[Firing, ...] = (*BEGUN, ("begin_store", 0, 0, 0, 0, NONE))
WRITTEN: tuple[Firing, ...] = (*STAGED, ("submit_store", 0, 0), ("land", 0), ("report", 0))
STORED: tuple[Firing, ...] = (*WRITTEN, ("commit", 0, 0))
READ: tuple[Firing, ...] = (*STORED, ("begin_load", 0, 0, 0, 0, NONE))
MOVING: tuple[Firing, ...] = (*READ, ("begin_store", 1, 0, 2, 0, NONE), ("submit_move", 0, 0, 1))


def after(machine: StoreMachine, *firings: Firing) -> StoreState:
    """The state after these firings, each of which must be enabled and keep every claim."""
    state = machine.first_state()
    for rule, *arguments in firings:
        assert machine.rules[rule](state, *arguments) is None, (rule, arguments)
        assert machine.broken_claims(state) == [], (rule, arguments)
    return state


@pytest.mark.parametrize(
    ("firings", "refused", "property"),
    [
        (STAGED, ("promise", 1, 1, 0, 0, NONE), "hit-written"),
        (STAGED, ("commit", 0, 0), "hit-written"),
        ((*STAGED, ("submit_store", 0, 0), ("fail", 0, TORN)), ("commit", 0, 0), "hit-written"),
        ((*BEGUN, ("begin_store", 0, 0, 0, 0, 5), ("advance", 5)), ("commit", 0, 0), "hit-written"),
        ((*WRITTEN, ("end_owner", 0)), ("commit", 0, 0), "hit-written"),
        ((*WRITTEN, ("drop", 0, 0)), ("commit", 0, 0), "abort-unseen"),
        (WRITTEN, ("commit", 0, 1), "pin-own"),
        (STAGED, ("begin_store", 1, 1, 1, 0, NONE), "one-writer"),
        ((*STAGED, ("submit_store", 0, 0)), ("submit_store", 1, 0), "one-writer"),
        ((*STAGED, ("submit_store", 0, 0)), ("abort", 0, 0), "source-held"),
        ((*STORED, ("promise", 0, 0, 0, 0, NONE)), ("evict", 0), "evict-unreferenced"),
        ((*STORED, ("promise", 0, 0, 0, 0, NONE)), ("redeem", 0, 1), "pin-own"),
        ((*STORED, ("promise", 0, 0, 0, 0, NONE), ("end_load", 0, 0)), ("redeem", 0, 0), "promise-kept"),
        (READ, ("end_load", 0, 1), "pin-own"),
        ((*READ, ("end_load", 0, 0)), ("end_load", 0, 0), "no-double-free"),
        (READ, ("expire", 0), "pin-own"),
        ((*STORED, ("begin_load", 0, 0, 0, 0, 5), ("advance", 5)), ("end_load", 0, 0), "pin-own"),
        (MOVING, ("end_load", 0, 0), "source-held"),
        ((*MOVING, ("end_owner", 0)), ("expire", 0), "source-held"),
        ((*READ, ("begin_store", 1, 0, 1, 1, NONE)), ("submit_move", 0, 0, 1), "arrived-whole"),
        (READ, ("begin_store", 1, 0, 0, 1, NONE), "no-use-after-free"),
        ((*BEGUN, ("begin_store", 0, 0, 0, 0, NONE), ("end_owner", 0)), ("begin_owner", 0), "pin-own"),
    ],
)
def test_a_rule_refuses_what_would_break_a_property(
    firings: tuple[Firing, ...], refused: Firing, property: str
) -> None:
    machine = StoreMachine(SIZES)
    state = after(machine, *firings)
    rule, *arguments = refused
    found = machine.rules[rule](state, *arguments)
    assert isinstance(found, Guard)
    assert found.property == property
    assert vars(state) == vars(after(machine, *firings))


def test_a_look_up_answers_by_what_the_tier_has() -> None:
    machine = StoreMachine(SIZES)
    answer = machine.function("answer")
    assert [answer(after(machine, *firings), 0, 0) for firings in (BEGUN, STAGED, STORED)] == [MISS, PENDING, HIT]
    assert answer(after(machine, *STORED), 1, 0) == MISS


def test_a_block_that_a_reset_has_dropped_is_free_when_its_transfer_has_landed_and_its_pin_ends() -> None:
    machine = StoreMachine(SIZES)
    state = after(machine, *MOVING, ("drop", 0, 0), ("end_owner", 0), ("land", 0), ("expire", 0), ("expire", 1))
    assert state.count == [[2, 0, 0, 0], [1, 0, 0, 0]]
    assert state.memory[2] == ROW
    assert state.entry == [[NONE, NONE], [NONE, NONE]]
