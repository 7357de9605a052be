"""The rules of flights: steps launched on the device, and transfers between the pools that arrive later.

A flight is a pending access of one block. It pins the block: the sequence that held the block may be freed, or may
replace the block, but the block is neither free nor evictable until its last flight has landed. So no block is reused
while a flight still reads or writes it.

A transfer reads one block and fills another block in the other pool. The table of the sequence names the new block as
soon as the entry is sent; nothing reads the new block before the transfer arrives.

A copy to another memory, which is none of the pools, reads a block that is cached: a table may name it, or none.
"""

from kvproof.spec.language import (
    BLOCK_SIZE,
    SLOTS,
    BlockId,
    FlightId,
    Index,
    Row,
    SeqId,
    check,
    copied,
    require,
    rule,
    same,
    spliced,
    step,
)
from kvproof.spec.text.state import NONE, USED, State, free_in, has_entry, is_idle, pool_of
from kvproof.spec.text.steps import gain, lose, move_to, retire


@step
def pin(state: State, flight: int, block: int) -> None:
    """Let the flight use `block`."""
    state.uses[flight] = block
    state.pinner[block][state.pins[block]] = flight
    state.pin_rank[flight] = state.pins[block]
    state.pins[block] += 1


@step
def unpin(state: State, flight: int) -> None:
    """End the flight. The last flight gives the block back if no table names it any more."""
    block = state.uses[flight]
    check(state.pins[block] > 0 and state.status[block] == USED, "in-flight-held")
    state.uses[flight] = NONE
    state.pins[block] -= 1
    last = state.pinner[block][state.pins[block]]
    state.pinner[block][state.pin_rank[flight]] = last
    state.pin_rank[last] = state.pin_rank[flight]
    if state.refcount[block] == 0:
        retire(state, block)


@rule
def launch(state: State, flight: FlightId, seq: SeqId, index: Index) -> None:
    """A step that reads or writes a block of the sequence starts on the device."""
    require(is_idle(state, flight), "the flight is a new one")
    require(state.live[seq] and has_entry(state, seq, index), "the sequence has the entry", "no-use-after-free")
    block = state.table[seq][index]
    require(state.filler[block] == NONE, "the KV that the step reads has arrived", "in-flight-held")
    pin(state, flight, block)
    check(state.uses[flight] == block and state.pins[block] > 0, "in-flight-held")
    check(state.fills[flight] == NONE and state.filler[block] == NONE, "in-flight-held")


@rule
def copy_out(state: State, flight: FlightId, block: BlockId) -> None:
    """A copy to another memory starts to read a cached block, which need not be in a table."""
    require(is_idle(state, flight), "the flight is a new one")
    require(state.cached[block], "the block that is copied is cached", "no-use-after-free")
    if state.status[block] != USED:
        move_to(state, block, USED)
    pin(state, flight, block)
    check(state.uses[flight] == block and state.status[block] == USED, "in-flight-held")


@rule
def write_late(state: State, flight: FlightId, row: Row) -> None:
    """A step under way writes the unwritten slots of its block; it does not change the written ones."""
    require(state.uses[flight] != NONE and state.fills[flight] == NONE, "the step is under way", "in-flight-held")
    block = state.uses[flight]
    written = state.num_written[block]
    check(state.status[block] == USED, "in-flight-held")
    state.memory[block] = spliced(state.memory[block], written, BLOCK_SIZE, row)
    check(all(o < written or state.memory[block][o] == row[o] for o in SLOTS), "in-flight-held")


@rule
def land(state: State, flight: FlightId) -> None:
    """A step has ended its access of this block."""
    require(state.uses[flight] != NONE and state.fills[flight] == NONE, "the step is under way", "in-flight-held")
    unpin(state, flight)
    check(state.uses[flight] == NONE, "in-flight-held")


@rule
def send_entry(state: State, seq: SeqId, block: BlockId, flight: FlightId) -> None:
    """Move the next entry of a swap without waiting for its content, which is in flight until `arrive`."""
    require(state.live[seq] and state.moving[seq] != NONE, "the sequence is being swapped")
    require(state.moving[seq] < state.num_blocks[seq], "an entry is left to move")
    require(
        free_in(state, block, 1 - state.home[seq]), "the target of a swap is free, in the other pool", "swap-mapping"
    )
    require(is_idle(state, flight), "the flight is a new one")
    index = state.moving[seq]
    old = state.table[seq][index]
    require(state.filler[old] == NONE, "the KV to send has arrived", "in-flight-held")
    pin(state, flight, old)
    state.fills[flight] = block
    state.filler[block] = flight
    state.brings[flight] = state.num_written[old]
    gain(state, seq, index, block)
    lose(state, seq, old)
    state.moving[seq] += 1
    check(state.status[old] == USED and state.status[block] == USED, "in-flight-held")
    check(state.table[seq][index] == block and state.moving[seq] == index + 1, "swap-mapping")
    check(pool_of(old) != pool_of(block), "swap-mapping")


@rule
def arrive(state: State, flight: FlightId) -> None:
    """A transfer has arrived, whether a sequence still holds the block or not; its flight has landed."""
    require(state.fills[flight] != NONE, "the transfer is under way", "in-flight-held")
    source = state.uses[flight]
    target = state.fills[flight]
    check(state.status[source] == USED and state.status[target] == USED, "in-flight-held")
    check(state.num_written[target] == 0 and not state.computed[target], "exclusive-writer")
    state.memory[target] = copied(state.memory[source])
    state.num_written[target] = state.brings[flight]
    state.fills[flight] = NONE
    state.filler[target] = NONE
    check(same(state.memory[target], state.memory[source], state.num_written[target]), "swap-mapping")
    unpin(state, flight)
    if state.refcount[target] == 0:
        retire(state, target)
    check(state.uses[flight] == NONE and state.filler[target] == NONE, "in-flight-held")
