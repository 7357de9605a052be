"""The rules of transfers: one key each, from a block, to a block, or both.

From `submit_…` on, the bytes may move at any time, until the transfer has landed or failed. While it is under way, the
pins that it uses cannot end, so its blocks stay what they are, whatever its owner does. A transfer that is cancelled
or fenced has failed. Partial failure of a job of many keys is the failure of some of its transfers.
"""

from kvproof.spec.language import BLOCK_SIZE, SLOTS, Count, FlightId, Row, check, require, rule, spliced
from kvproof.spec.store.domains import PinId
from kvproof.spec.store.state import (
    FAILED,
    HELD,
    LANDED,
    NONE,
    READ,
    RESERVED,
    SUBMITTED,
    WRITE,
    StoreState,
    brings_what_is_wanted,
    has_content,
    is_idle,
    is_in_force,
    is_right,
    is_within,
    num_moved,
    source_of,
    target_of,
)
from kvproof.spec.store.steps import end_transfer


@rule
def submit_store(state: StoreState, flight: FlightId, write: PinId) -> None:
    """The owner of a writer's pin begins to move bytes of its own into the block."""
    require(is_idle(state, flight), "the transfer is a new one")
    require(state.kind[write] == WRITE, "the block is written by its writer", "one-writer")
    require(is_in_force(state, write), "the pin is in force", "pin-own")
    require(state.mover[write] == NONE, "no other transfer writes the block", "one-writer")
    state.writes_by[flight] = write
    state.mover[write] = flight
    state.is_void[write] = False
    state.phase[flight] = SUBMITTED
    check(state.status[target_of(state, flight)] == RESERVED, "one-writer")


@rule
def submit_load(state: StoreState, flight: FlightId, read: PinId) -> None:
    """The owner of a reader's pin begins to fetch the bytes of the block."""
    require(is_idle(state, flight), "the transfer is a new one")
    require(state.kind[read] == READ, "the block is read by a reader", "source-held")
    require(is_in_force(state, read), "the pin is in force", "pin-own")
    require(state.mover[read] == NONE, "no other transfer uses the pin", "pin-own")
    state.reads_by[flight] = read
    state.mover[read] = flight
    state.phase[flight] = SUBMITTED
    check(state.status[source_of(state, flight)] == HELD, "source-held")


@rule
def submit_move(
    state: StoreState, flight: FlightId, read: PinId, write: PinId, source_first: Count, target_first: Count
) -> None:
    """Content begins to move from one block to another: a promotion, a cascade, an offload, a prompt to another engine.

    It goes from a token slot of the source on to a slot of the target on. Both are 0 where blocks have equal sizes.
    """
    require(is_idle(state, flight), "the transfer is a new one")
    require(state.kind[read] == READ, "the block is read by a reader", "source-held")
    require(state.kind[write] == WRITE, "the block is written by its writer", "one-writer")
    require(is_in_force(state, read) and is_in_force(state, write), "the pins are in force", "pin-own")
    require(state.mover[read] == NONE, "no other transfer uses the pin", "pin-own")
    require(state.mover[write] == NONE, "no other transfer writes the block", "one-writer")
    source = state.pinned[read]
    target = state.pinned[write]
    require(is_within(source_first, state.length[state.key[source]]), "the source has the slot", "arrived-whole")
    require(is_within(target_first, state.length[state.key[target]]), "the target has the slot", "arrived-whole")
    require(target_first <= state.written[target], "the slots before have been written", "arrived-whole")
    require(
        brings_what_is_wanted(state, source, target, source_first, target_first),
        "the content is moved to where the same is wanted, slot by slot",
        "arrived-whole",
    )
    state.reads_by[flight] = read
    state.writes_by[flight] = write
    state.reads_from[flight] = source_first
    state.writes_from[flight] = target_first
    state.mover[read] = flight
    state.mover[write] = flight
    state.is_void[write] = False
    state.phase[flight] = SUBMITTED
    check(state.status[source_of(state, flight)] == HELD, "source-held")
    check(state.status[target_of(state, flight)] == RESERVED, "one-writer")


@rule
def land(state: StoreState, flight: FlightId) -> None:
    """The bytes have moved, all of them. If the source is the owner's, they are the content of the key.

    What is void never lands: it fails, as nobody knows what it brought.
    """
    require(state.phase[flight] == SUBMITTED, "the transfer is under way", "source-held")
    require(
        state.writes_by[flight] == NONE or not state.is_void[state.writes_by[flight]],
        "its source was held until now",
        "void-told",
    )
    source = source_of(state, flight)
    target = target_of(state, flight)
    if source != NONE:
        check(state.status[source] == HELD and has_content(state, source, state.key[source]), "source-held")
    if target != NONE:
        check(state.status[target] == RESERVED and state.reads[target] == 0, "one-writer")
        key = state.key[target]
        back = state.reads_from[flight] - state.writes_from[flight]
        first = state.writes_from[flight]
        stop = state.length[key] if source == NONE else first + num_moved(state, source, target, first + back, first)
        state.memory[target] = [
            state.content[key][o]
            if source == NONE
            else state.memory[source][o + back]
            if first <= o and o < stop
            else state.memory[target][o]
            for o in SLOTS
        ]
        state.written[target] = max(state.written[target], stop)
        check(is_right(state, target), "arrived-whole")
    end_transfer(state, flight, LANDED)


@rule
def fail(state: StoreState, flight: FlightId, row: Row) -> None:
    """The transfer has failed, was cancelled, or is fenced: it moves nothing more. `row` is what its target holds."""
    require(state.phase[flight] == SUBMITTED, "the transfer is under way", "source-held")
    target = target_of(state, flight)
    if target != NONE:
        check(state.status[target] == RESERVED and state.reads[target] == 0, "one-writer")
        state.memory[target] = spliced(state.memory[target], state.writes_from[flight], BLOCK_SIZE, row)
        state.written[target] = min(state.written[target], state.writes_from[flight])
    end_transfer(state, flight, FAILED)


@rule
def report(state: StoreState, flight: FlightId) -> None:
    """The store learns that a transfer has landed or failed; its id may be used again."""
    require(state.phase[flight] == LANDED or state.phase[flight] == FAILED, "the transfer has ended", "source-held")
    state.phase[flight] = NONE
    check(is_idle(state, flight), "source-held")
