"""How far a swap has come that nobody waits for: its schedule, and what holds after any number of its firings.

Entries are sent in their order; each arrives when it likes, after it was sent, also before others are sent or long
after the sequence has gone on. The n-th firing lets entry `arriving[n]` arrive, which is firing `arrival[i]` of entry
i; where `arriving[n]` is NONE the next entry is sent, or, after the last one, the swap of the sequence ends. Before
the n-th firing every entry before `place[n]` has been sent. Entry i flies in `flight_of[i]`, and flight f carries
`entry_of[f]`.
"""

from kvproof.spec.language import (
    BLOCKS,
    FLIGHTS,
    INDEXES,
    NUM_FLIGHTS,
    SEQS,
    SLOTS,
    STEPS,
    EntryNumbers,
    FlightNumbers,
    StepNumbers,
    implies,
    word,
)
from kvproof.spec.text.state import FREE, NONE, USED, State, has_entry, holds, pool_of


@word
def entries_are_sent_in_order(
    start: State, seq: int, num_steps: int, place: StepNumbers, arriving: StepNumbers
) -> bool:
    """What does not arrive is sent, from the first entry to the last; then the swap ends."""
    return (
        place[0] == start.first[seq]
        and place[num_steps] == start.num_blocks[seq] + 1
        and all(implies(k < num_steps and arriving[k] == NONE, place[k] <= start.num_blocks[seq]) for k in STEPS)
        and all(
            implies(k < num_steps and n == k + 1, place[n] == place[k] + (1 if arriving[k] == NONE else 0))
            for k in STEPS
            for n in STEPS
        )
    )


@word
def each_entry_arrives_once(
    start: State, seq: int, num_steps: int, place: StepNumbers, arriving: StepNumbers, arrival: EntryNumbers
) -> bool:
    """Each entry arrives with one firing, after it was sent."""
    return all(
        implies(
            k < num_steps and arriving[k] != NONE,
            has_entry(start, seq, arriving[k]) and arriving[k] < place[k] and arrival[arriving[k]] == k,
        )
        for k in STEPS
    ) and all(
        implies(has_entry(start, seq, i), 0 <= arrival[i] and arrival[i] < num_steps and arriving[arrival[i]] == i)
        for i in INDEXES
    )


@word
def flights_are_new(start: State, seq: int, flight_of: EntryNumbers, entry_of: FlightNumbers) -> bool:
    """Each entry has a flight of its own, in a name in which nothing is under way."""
    return all(
        implies(
            has_entry(start, seq, i),
            0 <= flight_of[i]
            and flight_of[i] < NUM_FLIGHTS
            and start.uses[flight_of[i]] == NONE
            and entry_of[flight_of[i]] == i,
        )
        for i in INDEXES
    ) and all(
        entry_of[f] == NONE or (has_entry(start, seq, entry_of[f]) and flight_of[entry_of[f]] == f) for f in FLIGHTS
    )


@word
def is_sent(start: State, seq: int, index: int, place: StepNumbers, fired: int) -> bool:
    """The entry has been sent."""
    return has_entry(start, seq, index) and index < place[fired]


@word
def is_under_way(start: State, seq: int, index: int, place: StepNumbers, arrival: EntryNumbers, fired: int) -> bool:
    """The entry has been sent, and has not arrived."""
    return is_sent(start, seq, index, place, fired) and fired <= arrival[index]


@word
def turns_of_entries_so_far(start: State, seq: int, place: StepNumbers, arrival: EntryNumbers, fired: int) -> bool:
    """What has arrived was sent."""
    return start.first[seq] <= place[fired] and all(
        implies(has_entry(start, seq, i) and arrival[i] < fired, i < place[fired]) for i in INDEXES
    )


@word
def sequence_so_far(start: State, state: State, seq: int, place: StepNumbers, fired: int) -> bool:
    """The sequence is at its place; when all is sent it is at rest in its other pool, whatever has arrived."""
    return (
        state.live[seq]
        and not state.ending[seq]
        and state.home[seq] == (start.home[seq] if place[fired] <= start.num_blocks[seq] else 1 - start.home[seq])
        and state.moving[seq] == (place[fired] if place[fired] <= start.num_blocks[seq] else NONE)
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


@word
def table_so_far(start: State, state: State, seq: int, place: StepNumbers, fired: int) -> bool:
    """What was sent is in blocks of the other pool that were free; the rest of the table is as it was."""
    return all(
        start.status[state.table[seq][i]] == FREE and pool_of(state.table[seq][i]) == 1 - start.home[seq]
        if is_sent(start, seq, i, place, fired)
        else state.table[seq][i] == start.table[seq][i]
        for i in INDEXES
    )


@word
def flights_so_far(
    start: State,
    state: State,
    seq: int,
    place: StepNumbers,
    arrival: EntryNumbers,
    entry_of: FlightNumbers,
    fired: int,
) -> bool:
    """What is under way flies from where it was to where it will be; no other flight has changed."""
    return all(
        state.uses[f] == start.table[seq][entry_of[f]]
        and state.fills[f] == state.table[seq][entry_of[f]]
        and state.brings[f] == start.num_written[start.table[seq][entry_of[f]]]
        if entry_of[f] != NONE and is_under_way(start, seq, entry_of[f], place, arrival, fired)
        else state.uses[f] == start.uses[f]
        and state.fills[f] == start.fills[f]
        and implies(entry_of[f] == NONE, state.brings[f] == start.brings[f])
        for f in FLIGHTS
    )


@word
def pins_so_far(start: State, state: State, seq: int, place: StepNumbers, arrival: EntryNumbers, fired: int) -> bool:
    """Where something flies from has one pin more."""
    return all(
        state.pins[b]
        == start.pins[b]
        + (1 if holds(start, seq, b) and is_under_way(start, seq, start.position[seq][b], place, arrival, fired) else 0)
        for b in BLOCKS
    )


@word
def references_moved_so_far(start: State, state: State, seq: int, place: StepNumbers, fired: int) -> bool:
    """Over here the sequence holds what was not sent; the references of no other sequence have changed."""
    return all(
        implies(
            pool_of(b) == start.home[seq],
            holds(state, seq, b)
            == (holds(start, seq, b) and not is_sent(start, seq, start.position[seq][b], place, fired)),
        )
        for b in BLOCKS
    ) and all(
        state.refcount[b] == start.refcount[b] - (1 if holds(start, seq, b) else 0) + (1 if holds(state, seq, b) else 0)
        for b in BLOCKS
    )


@word
def fillers_so_far(
    start: State,
    state: State,
    seq: int,
    place: StepNumbers,
    arrival: EntryNumbers,
    flight_of: EntryNumbers,
    fired: int,
) -> bool:
    """What was sent is filled until it arrives; no other block is filled that was not before."""
    return all(
        implies(
            is_sent(start, seq, i, place, fired),
            state.filler[state.table[seq][i]] == (flight_of[i] if fired <= arrival[i] else NONE),
        )
        for i in INDEXES
    ) and all(
        implies(
            pool_of(b) == start.home[seq] or not holds(state, seq, b),
            state.filler[b] == start.filler[b],
        )
        for b in BLOCKS
    )


@word
def free_targets_so_far(start: State, state: State, seq: int, place: StepNumbers, fired: int) -> bool:
    """Over there as many free blocks were taken as entries were sent, and nothing else has changed its list."""
    return start.count[1 - start.home[seq]][FREE] - state.count[1 - start.home[seq]][FREE] == (
        place[fired] if place[fired] <= start.num_blocks[seq] else start.num_blocks[seq]
    ) - start.first[seq] and all(
        implies(
            pool_of(b) == 1 - start.home[seq],
            state.status[b] == (USED if holds(state, seq, b) else start.status[b]),
        )
        for b in BLOCKS
    )


@word
def sources_are_kept(
    start: State, state: State, seq: int, place: StepNumbers, arrival: EntryNumbers, fired: int
) -> bool:
    """Until an entry has arrived nobody can take the block that it flies from, and what was written there stays."""
    return all(
        implies(
            is_under_way(start, seq, i, place, arrival, fired),
            state.status[start.table[seq][i]] == USED and not holds(state, seq, start.table[seq][i]),
        )
        for i in INDEXES
    ) and all(
        implies(start.status[b] == USED and state.status[b] == USED, state.num_written[b] == start.num_written[b])
        for b in BLOCKS
    )


@word
def contents_are_where_they_were(start: State, state: State) -> bool:
    """No KV was written but in blocks that were free; every sequence knows what it knew."""
    return all(
        implies(start.status[b] != FREE, state.memory[b][o] == start.memory[b][o]) for b in BLOCKS for o in SLOTS
    ) and all(state.tokens[s][i][o] == start.tokens[s][i][o] for s in SEQS for i in INDEXES for o in SLOTS)


@word
def arrivals_so_far(
    start: State, state: State, seq: int, place: StepNumbers, arrival: EntryNumbers, fired: int
) -> bool:
    """What has arrived is written as far as it was, and is the same; of what has not nothing is written."""
    return all(
        implies(
            is_sent(start, seq, i, place, fired),
            state.num_written[state.table[seq][i]]
            == (0 if fired <= arrival[i] else start.num_written[start.table[seq][i]]),
        )
        for i in INDEXES
    ) and all(
        implies(
            is_sent(start, seq, i, place, fired) and arrival[i] < fired,
            state.memory[state.table[seq][i]][o] == start.memory[start.table[seq][i]][o],
        )
        for i in INDEXES
        for o in SLOTS
    )
