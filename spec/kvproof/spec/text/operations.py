"""The operations: what an engine calls, as programs of rules.

A program yields rule calls (a rule and its arguments) one by one, and reads the state that the earlier calls have left.
The choices of an implementation are given as `named(index)`: the block that the table names at that index afterwards.
So the same program runs forwards, with the choices of the exhaustive search, and backwards, as the explanation of a
table that was observed. An operation is atomic: if a rule refuses, the caller restores the state before the operation.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kvproof.spec.text.state import EVICTABLE, FREE, NONE, USED, State, first_read

RuleCall = tuple[str, tuple[Any, ...]]  # the name of a rule, and its arguments after the state
Program = Iterator[RuleCall]
Named = Callable[[int], int]


def row_of(tokens: Sequence[int], index: int, block_size: int) -> list[int]:
    """The identities of one table entry; NONE for tokens that are not known yet."""
    row = list(tokens[index * block_size : (index + 1) * block_size])
    return row + [NONE] * (block_size - len(row)) if len(row) < block_size else row


def holds_content(state: State, block: int, row: list[int]) -> bool:
    """Whether a block, used or evictable, is cached under this content."""
    return 0 <= block < len(state.cached) and state.cached[block] and state.content[block] == row


def take(state: State, block: int) -> Program:
    """Evict the block if it is evictable, so that it can be taken."""
    if 0 <= block < len(state.status) and state.status[block] == EVICTABLE:
        yield "evict", (block,)


def admit_sequence(
    state: State,
    block_size: int,
    seq: int,
    window: int,
    tokens: Sequence[int],
    num_hit: int,
    num_entries: int,
    named: Named,
    caching: bool,
) -> Program:
    """A prompt gets its table of `num_entries` entries; the first `num_hit` are cache hits."""
    yield "admit", (seq, window)
    for index in range(num_hit):
        yield "hit", (seq, named(index), row_of(tokens, index, block_size))
    yield from know_tokens(state, block_size, seq, tokens, num_entries, named, caching)
    yield from reserve_entries(state, seq, num_entries, named)


def admit_past_window(
    state: State,
    block_size: int,
    seq: int,
    window: int,
    tokens: Sequence[int],
    first: int,
    num_entries: int,
    named: Named,
) -> Program:
    """A prompt longer than its window gets blocks only for the entries from `first` on.

    The explanation is a prefill, entry by entry, that uses these blocks in turn: a block that the window left is taken
    again for a later entry.
    """
    yield "admit", (seq, window)
    num_held = num_entries - first
    for index in range(num_entries):
        if index >= num_held:
            while state.done_full[seq] < index:
                yield "compute", (seq, block_size)
            yield "slide", (seq,)
        stop = min(block_size, len(tokens) - index * block_size)
        yield "append", (seq, named(first + (index - first) % num_held), row_of(tokens, index, block_size), stop)


def admit_past_window_hit(
    state: State,
    block_size: int,
    seq: int,
    window: int,
    tokens: Sequence[int],
    first: int,
    num_hit: int,
    num_entries: int,
    named: Named,
    caching: bool,
) -> Program:
    """A prompt gets its table; the first `num_hit` entries are cached, and those before `first` are NULL.

    No later token reads the NULL entries: the window reaches back to entry `first` at most.
    """
    yield from hit_past_window(block_size, seq, tokens, first, num_hit, named)
    yield "widen", (seq, window)
    yield from know_tokens(state, block_size, seq, tokens, num_entries, named, caching)
    yield from reserve_entries(state, seq, num_entries, named)


def hit_past_window(
    block_size: int, seq: int, tokens: Sequence[int], first: int, num_hit: int, named: Named
) -> Program:
    """The first part of `admit_past_window_hit`, before the window is widened: skipped entries, then hits."""
    yield "admit", (seq, 1)
    for index in range(first):
        yield "skip", (seq, row_of(tokens, index, block_size))
    for index in range(first, num_hit):
        yield "hit", (seq, named(index), row_of(tokens, index, block_size))


def know_tokens(
    state: State,
    block_size: int,
    seq: int,
    tokens: Sequence[int],
    num_entries: int,
    named: Named,
    caching: bool,
) -> Program:
    """Make `tokens` (all of the sequence) known, as many as fit into `num_entries` entries, reserved slots first."""
    while (index := state.num_full[seq]) < num_entries:
        slot = state.num_filled[seq]
        stop = min(block_size, len(tokens) - index * block_size)
        if stop <= slot:
            return
        row, block = row_of(tokens, index, block_size), named(index)
        is_new = index == state.num_blocks[seq]
        if stop == block_size and (is_new or state.table[seq][index] != block) and holds_content(state, block, row):
            yield ("share", (seq, block, row)) if is_new else ("exchange", (seq, index, block, row))
            continue
        if is_new or state.table[seq][index] != block:
            yield from take(state, block)
        yield "append", (seq, block, row, stop)
        if caching and stop == block_size:
            yield "promote", (seq, index)


def exchange_entries(state: State, seq: int, named: Named) -> Program:
    """After a step, cached blocks of equal content replace the blocks of full entries."""
    for index in range(state.first[seq], state.num_full[seq]):
        if state.table[seq][index] != named(index):
            yield "exchange", (seq, index, named(index), state.tokens[seq][index])


def reserve_entries(state: State, seq: int, num_entries: int, named: Named) -> Program:
    """Lookahead: the table gets entries in which no token is known yet."""
    while (index := state.num_blocks[seq]) < num_entries:
        block = named(index)
        yield from take(state, block)
        yield "reserve", (seq, block)


def drop_reserved(state: State, seq: int, num_entries: int) -> Program:
    """Give lookahead blocks back: the table shrinks to `num_entries` entries."""
    while state.num_blocks[seq] > num_entries:
        yield "drop_last", (seq,)


def slide_window(state: State, seq: int, first: int) -> Program:
    """The window leaves every entry before `first`."""
    while state.first[seq] < first:
        yield "slide", (seq,)


def compute_tokens(state: State, block_size: int, seq: int, num_tokens: int) -> Program:
    """A step computes the KV of the next tokens of the sequence."""
    while num_tokens > 0:
        slot = state.done_filled[seq]
        stop = min(block_size, slot + num_tokens)
        yield "compute", (seq, stop)
        num_tokens -= stop - slot


def catch_up(state: State, block_size: int, seq: int, num_tokens: int) -> Program:
    """The sequence may read the KV that others have computed in blocks that it holds too."""
    while num_tokens > 0:
        slot = state.done_filled[seq]
        stop = min(block_size, slot + num_tokens)
        yield "catch_up", (seq, stop)
        num_tokens -= stop - slot


def mark_computed(state: State, block_size: int, seq: int, from_index: int) -> Program:
    """After the step, the complete cached blocks of the sequence can be hit."""
    for index in range(max(from_index, state.first[seq]), state.done_full[seq]):
        block = state.table[seq][index]
        if state.cached[block] and not state.computed[block] and state.num_written[block] == block_size:
            yield "mark_computed", (block,)


def free_sequence(state: State, seq: int) -> Program:
    """Drop every entry, and end the sequence. Preemption by recomputation does the same."""
    yield "begin_free", (seq,)
    while state.num_blocks[seq] > state.first[seq]:
        yield "drop_last", (seq,)
    yield "finish", (seq,)


def fork_sequence(parent: int, child: int) -> Program:
    """The child shares every block of its parent."""
    yield "fork", (parent, child)


def swap_group(
    state: State, block_size: int, seqs: Sequence[int], named: Callable[[int, int], int], is_sent: bool = False
) -> Program:
    """Whole sequences move to their other pool; a shared block moves once. `named(seq, index)` is the new block.

    is_sent: the copies are asynchronous; they are in flight until `arrive`.
    """
    for seq in seqs:
        yield "begin_swap", (seq,)
    leaders: dict[int, int] = {}  # of each block that has moved, the sequence that it moved with
    for seq in seqs:
        while (index := state.moving[seq]) < state.num_blocks[seq]:
            block = named(seq, index)
            leader = leaders.setdefault(state.table[seq][index], seq)
            if leader != seq and state.table[leader][index] == block:
                yield "follow_entry", (seq, leader)
            elif is_rehit(state, block_size, seq, index, block):
                yield "rehit_entry", (seq, block)
            else:
                yield from take(state, block)
                yield ("send_entry", (seq, block, idle_flight(state))) if is_sent else ("move_entry", (seq, block))
    for seq in seqs:
        yield "end_swap", (seq,)


def arrive(flights: Iterable[int]) -> Program:
    """These transfers have arrived."""
    for flight in flights:
        yield "arrive", (flight,)


def launch_step(state: State, seqs: Sequence[int]) -> Program:
    """A step that reads and writes the blocks of these sequences starts on the device."""
    for seq in seqs:
        for index in range(state.first[seq], state.num_blocks[seq]):
            yield "launch", (idle_flight(state), seq, index)


def land_step(flights: Iterable[int]) -> Program:
    """A step has ended."""
    for flight in flights:
        yield "land", (flight,)


def idle_flight(state: State) -> int:
    """The id of a flight that is not in use; NONE if there is none."""
    return state.uses.index(NONE) if NONE in state.uses else NONE


def register_entries(state: State, block_size: int, seq: int) -> Program:
    """Blocks that came back from the host are cached; the complete ones can be hit."""
    for index in range(state.first[seq], state.num_full[seq]):
        block = state.table[seq][index]
        if not state.cached[block]:
            yield "promote", (seq, index)
        if not state.computed[block] and state.num_written[block] == block_size:
            yield "mark_computed", (block,)


def is_rehit(state: State, block_size: int, seq: int, index: int, block: int) -> bool:
    """Whether an entry that moves to a block finds its content there, at least as far as it is written."""
    if index >= state.num_full[seq] or not holds_content(state, block, state.tokens[seq][index]):
        return False
    return state.status[block] == USED or state.num_written[state.table[seq][index]] == block_size


def hittable_identities(state: State, blocks: Iterable[int], is_same_step: bool) -> set[int]:
    """The identities up to which a prefix can be hit now: those of the last slots of those blocks that are computed.

    is_same_step: a hit may also name a block that the step under way computes.
    """
    return {
        state.content[block][-1] for block in blocks if state.computed[block] or (is_same_step and state.cached[block])
    }


def first_entry_read(block_size: int, num_done: int, window: int) -> int:
    """The first entry that the tokens after the first `num_done` ones read. window: as `first_read` takes it."""
    return max(0, first_read(num_done, window) // block_size)


def entry_not_hittable(
    hittable: set[int], block_size: int, tokens: Sequence[int], num_hit: int, window: int
) -> int | None:
    """The first entry of a prefix of `num_hit` entries that is read and cannot be hit; None if the prefix can be hit.

    The last token of a prompt is computed even if all of it is hit, so it reads as far back as its window.
    """
    num_done = min(num_hit * block_size, len(tokens) - 1)
    for index in range(first_entry_read(block_size, num_done, window), num_hit):
        if tokens[(index + 1) * block_size - 1] not in hittable:
            return index
    return None


def growth_cost_max(state: State, block_size: int, ends: Mapping[int, int], counts_touched: bool) -> int:
    """At most so many blocks these sequences take to write their next tokens, each up to so many slots in all.

    These are their missing entries, and copies of the entries that are written and shared. Of the sequences that share
    a block the last one writes it in place, if no other sequence holds the block. counts_touched: each entry that is
    written counts, as if it had to be a new block.
    """
    cost, shared = 0, list[int]()
    for seq, num_slots in ends.items():
        first, stop = state.num_full[seq], -(-num_slots // block_size)
        cost += max(0, stop - first)
        if counts_touched:
            continue
        for block in state.table[seq][first : min(stop, state.num_blocks[seq])]:
            if state.refcount[block] > 1:
                shared.append(block)
            else:
                cost -= 1
    return cost - len([block for block in {*shared} if shared.count(block) == state.refcount[block]])


def blocks_to_move(state: State, seqs: Iterable[int]) -> int:
    """The blocks that a swap of these sequences takes: one for each block that they hold."""
    return len({b for seq in seqs for b in state.table[seq][state.first[seq] : state.num_blocks[seq]]})


def set_aside(state: State, block: int) -> Program:
    """The manager reserves a block for itself."""
    yield from take(state, block)
    yield "set_aside", (block,)


def reset_cache(state: State) -> Program:
    """Evict every evictable block."""
    for block, status in enumerate(state.status):
        if status == EVICTABLE:
            yield "evict", (block,)


def lowest_free(state: State, blocks: range) -> int:
    """The lowest block that is free, else evictable; NONE if there is none. A choice without loss of generality."""
    for wanted in (FREE, EVICTABLE):
        for block in blocks:
            if state.status[block] == wanted:
                return block
    return NONE
