"""The contract of an asynchronous swap: `send_entry` for each entry, `arrive` in any order, and `end_swap`.

The contract starts after `begin_swap` of the sequence, and ends when every entry has arrived. The sequence is at rest
in its other pool once all entries are sent. `send_progress` has the parameters and the loop invariant. Evictions come
before: every block it takes is free.
"""

from kvproof.spec.contracts.free_contract import other_tables_are_kept
from kvproof.spec.contracts.send_progress import (
    Transfer,
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
from kvproof.spec.language import BLOCKS, INDEXES, SLOTS, BlockId, FlightId, contract, function, implies, predicate
from kvproof.spec.text.flight_rules import arrive, send_entry
from kvproof.spec.text.state import (
    FREE,
    NONE,
    USED,
    State,
    at_rest,
    first_of_list,
    free_in,
    has_entry,
    holds,
    is_pending,
    num_done,
    pool_of,
)
from kvproof.spec.text.swap_rules import end_swap


@predicate
def transfer_precondition(start: State, transfer: Transfer) -> bool:
    """No entry has moved, no transfer fills one, and there is a free block and a new flight for each entry."""
    return (
        start.live[transfer.seq]
        and start.moving[transfer.seq] == start.first[transfer.seq]
        and all(
            implies(has_entry(start, transfer.seq, i), start.filler[start.table[transfer.seq][i]] == NONE)
            for i in INDEXES
        )
        and start.num_blocks[transfer.seq] - start.first[transfer.seq]
        <= start.count[1 - start.home[transfer.seq]][FREE]
        and entries_are_sent_in_order(start, transfer)
        and each_entry_arrives_once(start, transfer)
        and flights_are_new(start, transfer)
    )


@function
def transfer_variant(transfer: Transfer) -> int:
    """The steps left."""
    return transfer.num_steps - transfer.num_fired


@predicate
def transfer_invariant(start: State, state: State, transfer: Transfer) -> bool:
    """Sent entries are in the other pool or under way; the source of an entry is kept until the entry arrives."""
    return (
        transfer_precondition(start, transfer)
        and transfer.num_fired <= transfer.num_steps
        and turns_of_entries_so_far(start, transfer)
        and sequence_so_far(start, state, transfer)
        and table_so_far(start, state, transfer)
        and flights_so_far(start, state, transfer)
        and pins_so_far(start, state, transfer)
        and references_moved_so_far(start, state, transfer)
        and fillers_so_far(start, state, transfer)
        and free_targets_so_far(start, state, transfer)
        and sources_are_kept(start, state, transfer)
        and contents_are_where_they_were(start, state)
        and arrivals_so_far(start, state, transfer)
        and other_tables_are_kept(start, state, transfer.seq)
    )


@predicate
def next_is_sent(state: State, transfer: Transfer, block: BlockId, flight: FlightId) -> bool:
    """The next entry is sent in its flight, to any free block."""
    return (
        transfer.arriving[transfer.num_fired] == NONE
        and transfer.next_index[transfer.num_fired] < state.num_blocks[transfer.seq]
        and flight == transfer.flight_of[transfer.next_index[transfer.num_fired]]
        and free_in(state, block, 1 - state.home[transfer.seq])
    )


@predicate
def all_is_sent(state: State, transfer: Transfer) -> bool:
    """The last entry was sent, and the swap of the sequence ends."""
    return (
        transfer.arriving[transfer.num_fired] == NONE
        and transfer.next_index[transfer.num_fired] == state.num_blocks[transfer.seq]
    )


@predicate
def next_arrives(transfer: Transfer, flight: FlightId) -> bool:
    """The entry of this step arrives."""
    return (
        transfer.arriving[transfer.num_fired] != NONE
        and flight == transfer.flight_of[transfer.arriving[transfer.num_fired]]
    )


@predicate
def transfer_can_continue(state: State, transfer: Transfer) -> bool:
    """An entry arrives, or all entries are sent, or there is a free block for the next one."""
    return (
        transfer.arriving[transfer.num_fired] != NONE
        or transfer.next_index[transfer.num_fired] == state.num_blocks[transfer.seq]
        or state.count[1 - state.home[transfer.seq]][FREE] > 0
    )


@function
def block_to_send_to(state: State, transfer: Transfer) -> int:
    """A free block of the other pool."""
    return first_of_list(state, 1 - state.home[transfer.seq], FREE)


@function
def flight_to_send(transfer: Transfer) -> int:
    """The flight that carries the next entry."""
    return transfer.flight_of[transfer.next_index[transfer.num_fired]]


@function
def flight_to_arrive(transfer: Transfer) -> int:
    """The flight that carries the entry that arrives; NONE if none does."""
    return (
        transfer.flight_of[transfer.arriving[transfer.num_fired]]
        if transfer.arriving[transfer.num_fired] != NONE
        else NONE
    )


@contract(
    "in-flight-held",
    send_entry,
    precondition=transfer_precondition,
    variant=transfer_variant,
    loop_invariant=transfer_invariant,
    choice=next_is_sent,
    can_choose=transfer_can_continue,
    others={end_swap: all_is_sent, arrive: next_arrives},
    witnesses={
        send_entry: {"block": block_to_send_to, "flight": flight_to_send},
        arrive: {"flight": flight_to_arrive},
    },
)
@predicate
def what_is_sent_is_read_back_when_it_has_arrived(start: State, state: State, transfer: Transfer) -> bool:
    """When all entries have arrived the sequence reads back its KV from the other pool, and nothing is in flight."""
    return (
        at_rest(state, transfer.seq)
        and state.home[transfer.seq] == 1 - start.home[transfer.seq]
        and start.count[1 - start.home[transfer.seq]][FREE] - state.count[1 - start.home[transfer.seq]][FREE]
        == start.num_blocks[transfer.seq] - start.first[transfer.seq]
        and all(
            implies(
                has_entry(start, transfer.seq, i),
                pool_of(state.table[transfer.seq][i]) == 1 - start.home[transfer.seq]
                and state.filler[state.table[transfer.seq][i]] == NONE,
            )
            for i in INDEXES
        )
        and all(
            implies(
                has_entry(start, transfer.seq, i) and o < num_done(start, transfer.seq, i),
                o < state.num_written[state.table[transfer.seq][i]]
                and state.memory[state.table[transfer.seq][i]][o] == start.tokens[transfer.seq][i][o]
                and state.tokens[transfer.seq][i][o] == start.tokens[transfer.seq][i][o],
            )
            for i in INDEXES
            for o in SLOTS
        )
        and all(
            implies(
                holds(start, transfer.seq, b),
                (state.status[b] != USED) == (start.refcount[b] == 1 and not is_pending(start, b)),
            )
            for b in BLOCKS
        )
        and all(state.pins[b] == start.pins[b] for b in BLOCKS)
        and other_tables_are_kept(start, state, transfer.seq)
    )
