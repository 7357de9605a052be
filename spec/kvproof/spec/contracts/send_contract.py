"""What a swap does that nobody waits for, for every size: `send_entry`, `arrive` in any order, `end_swap`.

It begins when the sequence has begun to be swapped, and ends when all has arrived. The sequence is at rest in its other
pool as soon as all is sent. `send_progress` says what the maps mean. Evicting comes before: what is taken is free.
"""

from kvproof.spec.contracts.free_contract import other_tables_are_kept
from kvproof.spec.contracts.send_progress import (
    arrivals_so_far,
    contents_are_where_they_were,
    each_entry_arrives_once,
    entries_are_sent_in_order,
    fillers_so_far,
    flights_are_new,
    flights_so_far,
    free_targets_so_far,
    pins_so_far,
    references_moved_so_far,
    sequence_so_far,
    sources_are_kept,
    table_so_far,
    turns_of_entries_so_far,
)
from kvproof.spec.language import (
    BLOCKS,
    INDEXES,
    SLOTS,
    BlockId,
    Count,
    EntryNumbers,
    FlightId,
    FlightNumbers,
    SeqId,
    StepNumbers,
    contract,
    implies,
    word,
)
from kvproof.spec.text.flight_rules import arrive, send_entry
from kvproof.spec.text.state import (
    FREE,
    NONE,
    USED,
    State,
    at_rest,
    free_in,
    has_entry,
    holds,
    is_pending,
    num_done,
    pool_of,
)
from kvproof.spec.text.swap_rules import end_swap


@word
def sending_starts(
    start: State,
    seq: SeqId,
    num_steps: Count,
    place: StepNumbers,
    arriving: StepNumbers,
    arrival: EntryNumbers,
    flight_of: EntryNumbers,
    entry_of: FlightNumbers,
    fired: Count,
) -> bool:
    """Nothing has moved, all that is to be sent is there, and there is a free block and a new flight for each entry."""
    return (
        start.live[seq]
        and start.moving[seq] == start.first[seq]
        and all(implies(has_entry(start, seq, i), start.filler[start.table[seq][i]] == NONE) for i in INDEXES)
        and start.num_blocks[seq] - start.first[seq] <= start.count[1 - start.home[seq]][FREE]
        and entries_are_sent_in_order(start, seq, num_steps, place, arriving)
        and each_entry_arrives_once(start, seq, num_steps, place, arriving, arrival)
        and flights_are_new(start, seq, flight_of, entry_of)
    )


@word
def firings_left(
    state: State,
    seq: SeqId,
    num_steps: Count,
    place: StepNumbers,
    arriving: StepNumbers,
    arrival: EntryNumbers,
    flight_of: EntryNumbers,
    entry_of: FlightNumbers,
    fired: Count,
) -> int:
    """How often something is still sent, ended, or arrives."""
    return num_steps - fired


@word
def sending_so_far(
    start: State,
    state: State,
    seq: SeqId,
    num_steps: Count,
    place: StepNumbers,
    arriving: StepNumbers,
    arrival: EntryNumbers,
    flight_of: EntryNumbers,
    entry_of: FlightNumbers,
    fired: Count,
) -> bool:
    """What was sent is over there or under way; where it flies from is kept until it has arrived."""
    return (
        sending_starts(start, seq, num_steps, place, arriving, arrival, flight_of, entry_of, fired)
        and fired <= num_steps
        and turns_of_entries_so_far(start, seq, place, arrival, fired)
        and sequence_so_far(start, state, seq, place, fired)
        and table_so_far(start, state, seq, place, fired)
        and flights_so_far(start, state, seq, place, arrival, entry_of, fired)
        and pins_so_far(start, state, seq, place, arrival, fired)
        and references_moved_so_far(start, state, seq, place, fired)
        and fillers_so_far(start, state, seq, place, arrival, flight_of, fired)
        and free_targets_so_far(start, state, seq, place, fired)
        and sources_are_kept(start, state, seq, place, arrival, fired)
        and contents_are_where_they_were(start, state)
        and arrivals_so_far(start, state, seq, place, arrival, fired)
        and other_tables_are_kept(start, state, seq)
    )


@word
def next_is_sent(
    state: State,
    seq: SeqId,
    num_steps: Count,
    place: StepNumbers,
    arriving: StepNumbers,
    arrival: EntryNumbers,
    flight_of: EntryNumbers,
    entry_of: FlightNumbers,
    fired: Count,
    block: BlockId,
    flight: FlightId,
) -> bool:
    """The next entry is sent, to any free block, in its flight."""
    return (
        arriving[fired] == NONE
        and place[fired] < state.num_blocks[seq]
        and flight == flight_of[place[fired]]
        and free_in(state, block, 1 - state.home[seq])
    )


@word
def all_is_sent(
    state: State,
    seq: SeqId,
    num_steps: Count,
    place: StepNumbers,
    arriving: StepNumbers,
    arrival: EntryNumbers,
    flight_of: EntryNumbers,
    entry_of: FlightNumbers,
    fired: Count,
) -> bool:
    """The last entry was sent, and the sequence goes on."""
    return arriving[fired] == NONE and place[fired] == state.num_blocks[seq]


@word
def next_arrives(
    state: State,
    seq: SeqId,
    num_steps: Count,
    place: StepNumbers,
    arriving: StepNumbers,
    arrival: EntryNumbers,
    flight_of: EntryNumbers,
    entry_of: FlightNumbers,
    fired: Count,
    flight: FlightId,
) -> bool:
    """An entry arrives whose turn it is."""
    return arriving[fired] != NONE and flight == flight_of[arriving[fired]]


@word
def sending_goes_on(
    state: State,
    seq: SeqId,
    num_steps: Count,
    place: StepNumbers,
    arriving: StepNumbers,
    arrival: EntryNumbers,
    flight_of: EntryNumbers,
    entry_of: FlightNumbers,
    fired: Count,
) -> bool:
    """An entry arrives, or all is sent, or there is a free block for the next."""
    return (
        arriving[fired] != NONE or place[fired] == state.num_blocks[seq] or state.count[1 - state.home[seq]][FREE] > 0
    )


@contract(
    "in-flight-held",
    send_entry,
    starts=sending_starts,
    left=firings_left,
    so_far=sending_so_far,
    choice=next_is_sent,
    can_choose=sending_goes_on,
    others={end_swap: all_is_sent, arrive: next_arrives},
)
@word
def what_is_sent_is_read_back_when_it_has_arrived(
    start: State,
    state: State,
    seq: SeqId,
    num_steps: Count,
    place: StepNumbers,
    arriving: StepNumbers,
    arrival: EntryNumbers,
    flight_of: EntryNumbers,
    entry_of: FlightNumbers,
    fired: Count,
) -> bool:
    """When all has arrived the sequence reads back its KV from the other pool, and nothing is left under way."""
    return (
        at_rest(state, seq)
        and state.home[seq] == 1 - start.home[seq]
        and start.count[1 - start.home[seq]][FREE] - state.count[1 - start.home[seq]][FREE]
        == start.num_blocks[seq] - start.first[seq]
        and all(
            implies(
                has_entry(start, seq, i),
                pool_of(state.table[seq][i]) == 1 - start.home[seq] and state.filler[state.table[seq][i]] == NONE,
            )
            for i in INDEXES
        )
        and all(
            implies(
                has_entry(start, seq, i) and o < num_done(start, seq, i),
                o < state.num_written[state.table[seq][i]]
                and state.memory[state.table[seq][i]][o] == start.tokens[seq][i][o]
                and state.tokens[seq][i][o] == start.tokens[seq][i][o],
            )
            for i in INDEXES
            for o in SLOTS
        )
        and all(
            implies(
                holds(start, seq, b),
                (state.status[b] != USED) == (start.refcount[b] == 1 and not is_pending(start, b)),
            )
            for b in BLOCKS
        )
        and all(state.pins[b] == start.pins[b] for b in BLOCKS)
        and other_tables_are_kept(start, state, seq)
    )
