"""The steps: writes that several rules of stores share."""

from kvproof.spec.language import check, step
from kvproof.spec.store.state import (
    EVICTABLE,
    FREE,
    HELD,
    NONE,
    SUBMITTED,
    StoreState,
    is_listed,
)


@step
def list_as(state: StoreState, block: int, status: int) -> None:
    """Put `block`, which is in no list, at the end of a list of its tier."""
    tier = state.tier[block]
    state.member[tier][status][state.count[tier][status]] = block
    state.place[block] = state.count[tier][status]
    state.count[tier][status] += 1
    state.status[block] = status


@step
def move_to(state: StoreState, block: int, status: int) -> None:
    """Take `block` out of its list and put it at the end of another."""
    tier = state.tier[block]
    old = state.status[block]
    state.count[tier][old] -= 1
    last = state.member[tier][old][state.count[tier][old]]
    state.member[tier][old][state.place[block]] = last
    state.place[last] = state.place[block]
    list_as(state, block, status)


@step
def forget(state: StoreState, block: int) -> None:
    """Let the block be free: nothing in it counts any more."""
    check(state.reads[block] == 0 and state.writer[block] == NONE, "source-held")
    if is_listed(state, block):
        state.entry[state.tier[block]][state.key[block]] = NONE
    state.key[block] = NONE
    state.written[block] = 0
    move_to(state, block, FREE)


@step
def begin_pin(state: StoreState, pin: int, owner: int, block: int, until: int) -> None:
    """Let the owner have a pin on `block`, whose kind the rule says."""
    state.pinned[pin] = block
    state.owner[pin] = owner
    state.until[pin] = until
    check(state.pinned[pin] == block and state.owner[pin] == owner and state.until[pin] == until, "pin-own")


@step
def begin_read(state: StoreState, pin: int, kind: int, block: int) -> None:
    """Count the pin as one of those of readers and promises."""
    if state.status[block] != HELD:
        move_to(state, block, HELD)
    state.kind[pin] = kind
    state.reader[block][state.reads[block]] = pin
    state.read_rank[pin] = state.reads[block]
    state.reads[block] += 1


@step
def end_read(state: StoreState, pin: int) -> None:
    """End the pin of a reader, or a promise. After the last one, the block is evictable, or free if no entry has it."""
    block = state.pinned[pin]
    check(state.reads[block] > 0, "no-double-free")
    state.kind[pin] = NONE
    state.reads[block] -= 1
    last = state.reader[block][state.reads[block]]
    state.reader[block][state.read_rank[pin]] = last
    state.read_rank[last] = state.read_rank[pin]
    if state.reads[block] == 0:
        if is_listed(state, block):
            move_to(state, block, EVICTABLE)
        else:
            forget(state, block)


@step
def give_up(state: StoreState, pin: int) -> None:
    """End the pin of a writer without a result: its block is free, and nothing of it can be found."""
    block = state.pinned[pin]
    check(state.writer[block] == pin, "pin-own")
    state.kind[pin] = NONE
    state.is_void[pin] = False
    state.writer[block] = NONE
    forget(state, block)


@step
def make_ready(state: StoreState, pin: int) -> None:
    """End the pin of a writer; the caller says in which list its block is then."""
    block = state.pinned[pin]
    check(state.writer[block] == pin, "pin-own")
    state.kind[pin] = NONE
    state.writer[block] = NONE


@step
def end_transfer(state: StoreState, flight: int, phase: int) -> None:
    """The transfer does not touch its blocks any more; its pins may end."""
    if state.reads_by[flight] != NONE:
        state.mover[state.reads_by[flight]] = NONE
    if state.writes_by[flight] != NONE:
        state.mover[state.writes_by[flight]] = NONE
    state.reads_by[flight] = NONE
    state.writes_by[flight] = NONE
    state.reads_from[flight] = 0
    state.writes_from[flight] = 0
    state.phase[flight] = phase


@step
def make_void(state: StoreState, pin: int) -> None:
    """The transfer that reads by this pin loses its source. Whatever it brings, its slots are not written."""
    flight = state.mover[pin]
    write = state.writes_by[flight]
    state.reads_by[flight] = NONE
    state.reads_from[flight] = 0
    state.mover[pin] = NONE
    state.is_void[write] = True
    state.written[state.pinned[write]] = state.writes_from[flight]
    check(state.mover[write] == flight and state.phase[flight] == SUBMITTED, "source-held")
