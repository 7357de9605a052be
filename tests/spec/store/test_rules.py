"""What the rules of stores refuse: each situation is a way in which stores have lost or mixed up KV."""

from typing import Any

import pytest

from kvproof.spec.compilation import Guard
from kvproof.spec.store.machine import StoreMachine, StoreSizes
from kvproof.spec.store.state import HIT, MISS, NONE, PENDING, RESERVED, StoreState

ROW, OTHER, TORN = [1, 2], [3, NONE], [9, 9]
SIZES = StoreSizes(3, num_tiers=2, num_keys=4, num_pins=3, num_owners=2, num_flights=2, num_parts=2, block_size=2)
Firing = tuple[Any, ...]
BEGUN: tuple[Firing, ...] = (
    *(("grow", 0, 0), ("grow", 1, 0), ("grow", 2, 1), ("begin_owner", 0), ("begin_owner", 1)),
    *(("introduce", 0, 0, ROW, 2), ("introduce", 1, 0, OTHER, 1)),
)
STAGED: tuple[Firing, ...] = (*BEGUN, ("begin_store", 0, 0, 0, 0, NONE))
WRITTEN: tuple[Firing, ...] = (*STAGED, ("submit_store", 0, 0), ("land", 0), ("report", 0))
STORED: tuple[Firing, ...] = (*WRITTEN, ("commit", 0, 0))
READ: tuple[Firing, ...] = (*STORED, ("begin_load", 0, 0, 0, 0, NONE))
MOVING: tuple[Firing, ...] = (*READ, ("begin_store", 1, 0, 2, 0, NONE), ("submit_move", 0, 0, 1, 0, 0))
HALVES: tuple[Firing, ...] = (*READ, ("introduce", 2, 0, [ROW[1], NONE], 1), ("begin_store", 1, 0, 2, 2, NONE))
LEASED: tuple[Firing, ...] = (*STORED, ("begin_load", 0, 0, 0, 0, 5), ("begin_store", 1, 1, 2, 0, NONE))
VOID: tuple[Firing, ...] = (*LEASED, ("submit_move", 0, 0, 1, 0, 0), ("advance", 5), ("expire", 0))
FAILED: tuple[Firing, ...] = (*VOID, ("fail", 0, TORN), ("report", 0))
PARTS: tuple[Firing, ...] = (*READ, ("await_parts", 0, 2), ("notice", 0, 1))


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
        ((*READ, ("begin_store", 1, 0, 1, 1, NONE)), ("submit_move", 0, 0, 1, 0, 0), "arrived-whole"),
        (READ, ("begin_store", 1, 0, 0, 1, NONE), "no-use-after-free"),
        ((*BEGUN, ("begin_store", 0, 0, 0, 0, NONE), ("end_owner", 0)), ("begin_owner", 0), "pin-own"),
        (HALVES, ("submit_move", 0, 0, 1, 0, 0), "arrived-whole"),  # the first half, where the second one is wanted
        (HALVES, ("submit_move", 0, 0, 1, 2, 0), "arrived-whole"),  # beyond the chunk of the source
        (HALVES, ("submit_move", 0, 0, 1, 1, 1), "arrived-whole"),  # beyond the chunk of the target
        ((*READ, ("begin_store", 1, 0, 2, 0, NONE)), ("submit_move", 0, 0, 1, 1, 1), "arrived-whole"),  # leaves a hole
        (LEASED, ("expire", 0), "pin-own"),
        ((*LEASED, ("submit_load", 0, 0), ("advance", 5)), ("expire", 0), "source-held"),
        (VOID, ("land", 0), "void-told"),
        (VOID, ("abort", 1, 1), "source-held"),
        (FAILED, ("commit", 1, 1), "void-told"),
        (FAILED, ("keep", 1, 1), "void-told"),
        (PARTS, ("notice", 0, 1), "pin-own"),
        (PARTS, ("notice", 1, 0), "pin-own"),
        (PARTS, ("end_load", 0, 0), "pin-own"),
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
    assert {entry for row in state.entry for entry in row} == {NONE}


def test_a_block_of_another_size_gets_its_part_of_a_block_and_is_committed() -> None:
    machine = StoreMachine(SIZES)
    state = after(machine, *HALVES, ("submit_move", 0, 0, 1, 1, 0), ("land", 0), ("report", 0), ("commit", 1, 0))
    assert state.memory[2][:1] == ROW[1:]


def test_a_block_is_filled_from_two_smaller_ones_and_is_committed_after_the_second() -> None:
    machine = StoreMachine(SIZES)
    first, second = [ROW[0], NONE], [ROW[1], NONE]
    held = [
        (
            *(("introduce", key, 0, row, 1), ("begin_store", pin, 0, block, key, NONE), ("submit_store", 0, pin)),
            *(("land", 0), ("report", 0), ("keep", pin, 0)),
        )
        for key, row, pin, block in ((2, first, 0, 0), (3, second, 1, 1))
    ]
    gathering = (*BEGUN, *held[0], *held[1], ("begin_store", 2, 1, 2, 0, NONE), ("submit_move", 0, 0, 2, 0, 0))
    half = (*gathering, ("land", 0), ("report", 0))
    refused = machine.rules["commit"](after(machine, *half), 2, 1)
    assert isinstance(refused, Guard)
    assert refused.property == "hit-written"
    state = after(machine, *half, ("submit_move", 0, 1, 2, 0, 1), ("land", 0), ("report", 0), ("commit", 2, 1))
    assert state.memory[2] == ROW


def test_what_is_void_fails_and_another_transfer_may_bring_the_content() -> None:
    machine = StoreMachine(SIZES)
    assert after(machine, *FAILED, ("abort", 1, 1)).count == [[1, 0, 0, 1], [1, 0, 0, 0]]
    again = (*FAILED, ("begin_load", 0, 0, 0, 0, NONE), ("submit_move", 0, 0, 1, 0, 0), ("land", 0), ("commit", 1, 1))
    assert after(machine, *again).memory[2] == ROW


def test_the_source_of_a_void_transfer_is_free_for_others_while_its_target_waits() -> None:
    state = after(StoreMachine(SIZES), *VOID, ("evict", 0), ("begin_store", 0, 0, 0, 1, NONE))
    assert (state.status[0], state.status[2]) == (RESERVED, RESERVED)


def test_a_read_ends_after_a_notice_of_each_part_in_any_order() -> None:
    state = after(StoreMachine(SIZES), *PARTS, ("notice", 0, 0), ("end_load", 0, 0))
    assert state.kind[0] == NONE
