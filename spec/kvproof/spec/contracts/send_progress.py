"""The parameters of an asynchronous swap, and the parts of its loop invariant.

Entries are sent in their order. Each entry arrives at any time after it was sent: before others are sent, or long after
the sequence continues. Each step lets one entry arrive, or sends the next entry, or ends the swap of the
sequence after the last entry was sent.
"""

from dataclasses import dataclass

from kvproof.spec.language import (
    BLOCKS,
    FLIGHTS,
    INDEXES,
    NUM_FLIGHTS,
    SEQS,
    SLOTS,
    STEPS,
    Count,
    EntryNumbers,
    FlightNumbers,
    SeqId,
    StepNumbers,
    implies,
    predicate,
)
from kvproof.spec.text.state import FREE, NONE, USED, State, has_entry, holds, pool_of


@dataclass(frozen=True)
class Transfer:
    """What an asynchronous swap is given: the order of its steps, and a flight for each entry."""

    seq: SeqId
    num_steps: Count
    next_index: StepNumbers  # the first entry that is not sent before each step; one more when the swap has ended
    arriving: StepNumbers  # the entry that arrives with each step; NONE: the step sends an entry or ends the swap
    arrival: EntryNumbers  # the step with which each entry arrives
    flight_of: EntryNumbers  # the flight that carries each entry
    entry_of: FlightNumbers  # the entry that each flight carries; NONE: it carries none
    num_fired: Count  # steps done


@predicate
def entries_are_sent_in_order(start: State, transfer: Transfer) -> bool:
    """The steps without an arrival send each entry, from the first to the last; then one of them ends the swap."""
    return (
        transfer.next_index[0] == start.first[transfer.seq]
        and transfer.next_index[transfer.num_steps] == start.num_blocks[transfer.seq] + 1
        and all(
            implies(
                k < transfer.num_steps and transfer.arriving[k] == NONE,
                transfer.next_index[k] <= start.num_blocks[transfer.seq],
            )
            for k in STEPS
        )
        and all(
            implies(
                k < transfer.num_steps and n == k + 1,
                transfer.next_index[n] == transfer.next_index[k] + (1 if transfer.arriving[k] == NONE else 0),
            )
            for k in STEPS
            for n in STEPS
        )
    )


@predicate
def each_entry_arrives_once(start: State, transfer: Transfer) -> bool:
    """Each entry arrives with one step, after it was sent."""
    return all(
        implies(
            k < transfer.num_steps and transfer.arriving[k] != NONE,
            has_entry(start, transfer.seq, transfer.arriving[k])
            and transfer.arriving[k] < transfer.next_index[k]
            and transfer.arrival[transfer.arriving[k]] == k,
        )
        for k in STEPS
    ) and all(
        implies(
            has_entry(start, transfer.seq, i),
            0 <= transfer.arrival[i]
            and transfer.arrival[i] < transfer.num_steps
            and transfer.arriving[transfer.arrival[i]] == i,
        )
        for i in INDEXES
    )


@predicate
def flights_are_new(start: State, transfer: Transfer) -> bool:
    """Each entry has its own flight, and nothing is in flight under that id."""
    return all(
        implies(
            has_entry(start, transfer.seq, i),
            0 <= transfer.flight_of[i]
            and transfer.flight_of[i] < NUM_FLIGHTS
            and start.uses[transfer.flight_of[i]] == NONE
            and transfer.entry_of[transfer.flight_of[i]] == i,
        )
        for i in INDEXES
    ) and all(
        transfer.entry_of[f] == NONE
        or (has_entry(start, transfer.seq, transfer.entry_of[f]) and transfer.flight_of[transfer.entry_of[f]] == f)
        for f in FLIGHTS
    )


@predicate
def is_sent(start: State, transfer: Transfer, index: int) -> bool:
    """The entry has been sent."""
    return has_entry(start, transfer.seq, index) and index < transfer.next_index[transfer.num_fired]


@predicate
def is_under_way(start: State, transfer: Transfer, index: int) -> bool:
    """The entry has been sent, and has not arrived."""
    return is_sent(start, transfer, index) and transfer.num_fired <= transfer.arrival[index]


@predicate
def turns_of_entries_so_far(start: State, transfer: Transfer) -> bool:
    """Every entry that has arrived was sent."""
    return start.first[transfer.seq] <= transfer.next_index[transfer.num_fired] and all(
        implies(
            has_entry(start, transfer.seq, i) and transfer.arrival[i] < transfer.num_fired,
            i < transfer.next_index[transfer.num_fired],
        )
        for i in INDEXES
    )


@predicate
def sequence_so_far(start: State, state: State, transfer: Transfer) -> bool:
    """The sequence has moved the entries that were sent. Once the swap has ended it is at rest in its other pool."""
    return (
        state.live[transfer.seq]
        and not state.ending[transfer.seq]
        and state.home[transfer.seq]
        == (
            start.home[transfer.seq]
            if transfer.next_index[transfer.num_fired] <= start.num_blocks[transfer.seq]
            else 1 - start.home[transfer.seq]
        )
        and state.moving[transfer.seq]
        == (
            transfer.next_index[transfer.num_fired]
            if transfer.next_index[transfer.num_fired] <= start.num_blocks[transfer.seq]
            else NONE
        )
        and all(
            state.first[s] == start.first[s]
            and state.num_blocks[s] == start.num_blocks[s]
            and state.num_full[s] == start.num_full[s]
            and state.num_filled[s] == start.num_filled[s]
            and state.done_full[s] == start.done_full[s]
            and state.done_filled[s] == start.done_filled[s]
            for s in SEQS
        )
    )


@predicate
def table_so_far(start: State, state: State, transfer: Transfer) -> bool:
    """Sent entries name blocks of the other pool that were free; the rest of the table is unchanged."""
    return all(
        start.status[state.table[transfer.seq][i]] == FREE
        and pool_of(state.table[transfer.seq][i]) == 1 - start.home[transfer.seq]
        if is_sent(start, transfer, i)
        else state.table[transfer.seq][i] == start.table[transfer.seq][i]
        for i in INDEXES
    )


@predicate
def flights_so_far(start: State, state: State, transfer: Transfer) -> bool:
    """A flight under way carries its entry from the old block to the new one; no other flight has changed."""
    return all(
        state.uses[f] == start.table[transfer.seq][transfer.entry_of[f]]
        and state.fills[f] == state.table[transfer.seq][transfer.entry_of[f]]
        and state.brings[f] == start.num_written[start.table[transfer.seq][transfer.entry_of[f]]]
        if transfer.entry_of[f] != NONE and is_under_way(start, transfer, transfer.entry_of[f])
        else state.uses[f] == start.uses[f]
        and state.fills[f] == start.fills[f]
        and implies(transfer.entry_of[f] == NONE, state.brings[f] == start.brings[f])
        for f in FLIGHTS
    )


@predicate
def pins_so_far(start: State, state: State, transfer: Transfer) -> bool:
    """The source block of each flight under way has one more pin."""
    return all(
        state.pins[b]
        == start.pins[b]
        + (1 if holds(start, transfer.seq, b) and is_under_way(start, transfer, start.position[transfer.seq][b]) else 0)
        for b in BLOCKS
    )


@predicate
def references_moved_so_far(start: State, state: State, transfer: Transfer) -> bool:
    """In the old pool the sequence holds the blocks that were not sent; no other sequence's references have changed."""
    return all(
        implies(
            pool_of(b) == start.home[transfer.seq],
            holds(state, transfer.seq, b)
            == (holds(start, transfer.seq, b) and not is_sent(start, transfer, start.position[transfer.seq][b])),
        )
        for b in BLOCKS
    ) and all(
        state.refcount[b]
        == start.refcount[b] - (1 if holds(start, transfer.seq, b) else 0) + (1 if holds(state, transfer.seq, b) else 0)
        for b in BLOCKS
    )


@predicate
def fillers_so_far(start: State, state: State, transfer: Transfer) -> bool:
    """A sent entry is being filled until it arrives; the filler of every other block is unchanged."""
    return all(
        implies(
            is_sent(start, transfer, i),
            state.filler[state.table[transfer.seq][i]]
            == (transfer.flight_of[i] if transfer.num_fired <= transfer.arrival[i] else NONE),
        )
        for i in INDEXES
    ) and all(
        implies(
            pool_of(b) == start.home[transfer.seq] or not holds(state, transfer.seq, b),
            state.filler[b] == start.filler[b],
        )
        for b in BLOCKS
    )


@predicate
def free_targets_so_far(start: State, state: State, transfer: Transfer) -> bool:
    """The entries sent took one free block each in the other pool; no other block of that pool changed its status."""
    return start.count[1 - start.home[transfer.seq]][FREE] - state.count[1 - start.home[transfer.seq]][FREE] == (
        transfer.next_index[transfer.num_fired]
        if transfer.next_index[transfer.num_fired] <= start.num_blocks[transfer.seq]
        else start.num_blocks[transfer.seq]
    ) - start.first[transfer.seq] and all(
        implies(
            pool_of(b) == 1 - start.home[transfer.seq],
            state.status[b] == (USED if holds(state, transfer.seq, b) else start.status[b]),
        )
        for b in BLOCKS
    )


@predicate
def sources_are_kept(start: State, state: State, transfer: Transfer) -> bool:
    """Until an entry arrives nobody can take its source block, and what was written there stays."""
    return all(
        implies(
            is_under_way(start, transfer, i),
            state.status[start.table[transfer.seq][i]] == USED
            and not holds(state, transfer.seq, start.table[transfer.seq][i]),
        )
        for i in INDEXES
    ) and all(
        implies(start.status[b] == USED and state.status[b] == USED, state.num_written[b] == start.num_written[b])
        for b in BLOCKS
    )


@predicate
def contents_are_where_they_were(start: State, state: State) -> bool:
    """KV was written only to blocks that were free; the tokens of every sequence are unchanged."""
    return all(
        implies(start.status[b] != FREE, state.memory[b][o] == start.memory[b][o]) for b in BLOCKS for o in SLOTS
    ) and all(state.tokens[s][i][o] == start.tokens[s][i][o] for s in SEQS for i in INDEXES for o in SLOTS)


@predicate
def arrivals_so_far(start: State, state: State, transfer: Transfer) -> bool:
    """An entry that has arrived is a full copy of its source; nothing is written of an entry under way."""
    return all(
        implies(
            is_sent(start, transfer, i),
            state.num_written[state.table[transfer.seq][i]]
            == (0 if transfer.num_fired <= transfer.arrival[i] else start.num_written[start.table[transfer.seq][i]]),
        )
        for i in INDEXES
    ) and all(
        implies(
            is_sent(start, transfer, i) and transfer.arrival[i] < transfer.num_fired,
            state.memory[state.table[transfer.seq][i]][o] == start.memory[start.table[transfer.seq][i]][o],
        )
        for i in INDEXES
        for o in SLOTS
    )
