"""The rules of transfers: one key each, from a block, to a block, or both.

From `submit_…` on, the bytes may move at any time, until the transfer has landed or failed. While it is under way, the
pins that it uses cannot end, so its blocks stay what they are, whatever its owner does. A transfer that is cancelled
or fenced has failed. Partial failure of a job of many keys is the failure of some of its transfers.
"""

from kvproof.spec.language import FlightId, Row, check, copied, require, rule
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
    has_content,
    is_idle,
    is_in_force,
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
def submit_move(state: StoreState, flight: FlightId, read: PinId, write: PinId) -> None:
    """The content of a key begins to move from one block to another: a promotion, a cascade, an offload."""
    require(is_idle(state, flight), "the transfer is a new one")
    require(state.kind[read] == READ, "the block is read by a reader", "source-held")
    require(state.kind[write] == WRITE, "the block is written by its writer", "one-writer")
    require(is_in_force(state, read) and is_in_force(state, write), "the pins are in force", "pin-own")
    require(state.mover[read] == NONE, "no other transfer uses the pin", "pin-own")
    require(state.mover[write] == NONE, "no other transfer writes the block", "one-writer")
    require(
        state.key[state.pinned[read]] == state.key[state.pinned[write]],
        "the content is moved to a block of the same key",
        "arrived-whole",
    )
    state.reads_by[flight] = read
    state.writes_by[flight] = write
    state.mover[read] = flight
    state.mover[write] = flight
    state.phase[flight] = SUBMITTED
    check(state.status[source_of(state, flight)] == HELD, "source-held")
    check(state.status[target_of(state, flight)] == RESERVED, "one-writer")


@rule
def land(state: StoreState, flight: FlightId) -> None:
    """The bytes have moved, all of them. If the source is the owner's, they are the content of the key."""
    require(state.phase[flight] == SUBMITTED, "the transfer is under way", "source-held")
    source = source_of(state, flight)
    target = target_of(state, flight)
    if source != NONE:
        check(state.status[source] == HELD and has_content(state, source, state.key[source]), "source-held")
    if target != NONE:
        check(state.status[target] == RESERVED and state.reads[target] == 0, "one-writer")
        key = state.key[target]
        state.memory[target] = copied(state.memory[source] if source != NONE else state.content[key])
        state.written[target] = state.length[key]
        check(has_content(state, target, key), "arrived-whole")
    end_transfer(state, flight, LANDED)


@rule
def fail(state: StoreState, flight: FlightId, row: Row) -> None:
    """The transfer has failed, was cancelled, or is fenced: it moves nothing more. `row` is what its target holds."""
    require(state.phase[flight] == SUBMITTED, "the transfer is under way", "source-held")
    target = target_of(state, flight)
    if target != NONE:
        check(state.status[target] == RESERVED and state.reads[target] == 0, "one-writer")
        state.memory[target] = copied(row)
        state.written[target] = 0
    end_transfer(state, flight, FAILED)


@rule
def report(state: StoreState, flight: FlightId) -> None:
    """The store learns that a transfer has landed or failed; its id may be used again."""
    require(state.phase[flight] == LANDED or state.phase[flight] == FAILED, "the transfer has ended", "source-held")
    state.phase[flight] = NONE
    check(is_idle(state, flight), "source-held")
