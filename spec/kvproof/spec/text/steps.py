"""Writes that several rules share: a block changes its list; a table entry starts or stops to name a block."""

from kvproof.spec.language import BLOCK_SIZE, check, copied, spliced, step
from kvproof.spec.text.state import EVICTABLE, FREE, NONE, USED, State, is_pending, pool_of


@step
def move_to(state: State, block: int, status: int) -> None:
    """Take `block` out of its list and put it at the end of another."""
    check(status == USED or not is_pending(state, block), "in-flight-held")
    pool = pool_of(block)
    old = state.status[block]
    state.count[pool][old] -= 1
    last = state.member[pool][old][state.count[pool][old]]
    state.member[pool][old][state.place[block]] = last
    state.place[last] = state.place[block]
    state.member[pool][status][state.count[pool][status]] = block
    state.place[block] = state.count[pool][status]
    state.count[pool][status] += 1
    state.status[block] = status


@step
def forget(state: State, block: int) -> None:
    """Remove the block from the cache, and put it into the free list."""
    state.cached[block] = False
    state.computed[block] = False
    state.num_written[block] = 0
    move_to(state, block, FREE)


@step
def retire(state: State, block: int) -> None:
    """No table names the block any more: unless a flight uses it, it becomes evictable if computed, and free if not."""
    if state.pins[block] == 0 and state.filler[block] == NONE:
        if state.computed[block]:
            move_to(state, block, EVICTABLE)
        else:
            forget(state, block)


@step
def gain(state: State, seq: int, index: int, block: int) -> None:
    """Let the table entry name `block`, and count the reference."""
    if state.status[block] != USED:
        move_to(state, block, USED)
    state.table[seq][index] = block
    state.position[seq][block] = index
    state.holder[block][state.refcount[block]] = seq
    state.rank[block][seq] = state.refcount[block]
    state.refcount[block] += 1


@step
def lose(state: State, seq: int, block: int) -> None:
    """Drop the reference that `seq` has to `block`."""
    check(state.refcount[block] > 0, "no-double-free")
    check(state.status[block] == USED, "no-use-after-free")
    state.position[seq][block] = NONE
    state.refcount[block] -= 1
    last = state.holder[block][state.refcount[block]]
    state.holder[block][state.rank[block][seq]] = last
    state.rank[block][last] = state.rank[block][seq]
    if state.refcount[block] == 0:
        retire(state, block)


@step
def copy_block(state: State, source: int, target: int) -> None:
    """Copy the written KV of a block; the copy is not cached."""
    check(state.filler[source] == NONE, "in-flight-held")
    check(state.refcount[target] == 0 and not is_pending(state, target), "exclusive-writer")
    state.memory[target] = copied(state.memory[source])
    state.num_written[target] = state.num_written[source]


@step
def know(state: State, seq: int, index: int, row: list[int], stop: int) -> None:
    """Make the tokens of the entry known up to slot `stop`."""
    state.tokens[seq][index] = spliced(state.tokens[seq][index], state.num_filled[seq], stop, row)
    if stop == BLOCK_SIZE:
        state.num_full[seq] = index + 1
        state.num_filled[seq] = 0
    else:
        state.num_filled[seq] = stop


@step
def may_read(state: State, seq: int, index: int, stop: int) -> None:
    """Let the sequence read the entry up to slot `stop`."""
    if stop == BLOCK_SIZE:
        state.done_full[seq] = index + 1
        state.done_filled[seq] = 0
    else:
        state.done_filled[seq] = stop
