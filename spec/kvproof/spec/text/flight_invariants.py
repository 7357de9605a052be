"""The invariants about flights, and the theorem that follows from them."""

from kvproof.spec.language import (
    BLOCKS,
    FLIGHTS,
    NUM_BLOCKS,
    NUM_FLIGHTS,
    RANKS,
    SEQS,
    SLOTS,
    implies,
    invariant,
    theorem,
)
from kvproof.spec.text.state import NONE, USED, State, holds, num_known


@invariant("in-flight-held")
def every_flight_is_counted(state: State) -> bool:
    """Each flight is one of the enumerated users of its block."""
    return all(
        implies(
            state.uses[f] != NONE,
            0 <= state.uses[f]
            and state.uses[f] < NUM_BLOCKS
            and 0 <= state.pin_rank[f]
            and state.pin_rank[f] < state.pins[state.uses[f]]
            and state.pinner[state.uses[f]][state.pin_rank[f]] == f,
        )
        for f in FLIGHTS
    )


@invariant("in-flight-held")
def only_flights_are_counted(state: State) -> bool:
    """A block has as many distinct flights that use it as its pins say."""
    return all(
        implies(
            k < state.pins[b],
            0 <= state.pinner[b][k]
            and state.pinner[b][k] < NUM_FLIGHTS
            and state.uses[state.pinner[b][k]] == b
            and state.pin_rank[state.pinner[b][k]] == k,
        )
        for b in BLOCKS
        for k in RANKS
    )


@invariant("in-flight-held")
def pins_are_no_debt(state: State) -> bool:
    """The number of pins of a block is not negative."""
    return all(state.pins[b] >= 0 for b in BLOCKS)


@invariant("in-flight-held")
def transfers_have_two_blocks(state: State) -> bool:
    """A transfer uses one block and fills another, whose `filler` is the transfer."""
    return all(
        implies(
            state.fills[f] != NONE,
            state.uses[f] != NONE
            and state.uses[f] != state.fills[f]
            and 0 <= state.fills[f]
            and state.fills[f] < NUM_BLOCKS
            and state.filler[state.fills[f]] == f,
        )
        for f in FLIGHTS
    )


@invariant("in-flight-held")
def blocks_are_filled_by_transfers(state: State) -> bool:
    """A block that is being filled is filled by one transfer, and no slot of it is written."""
    return all(
        implies(
            state.filler[b] != NONE,
            0 <= state.filler[b]
            and state.filler[b] < NUM_FLIGHTS
            and state.fills[state.filler[b]] == b
            and state.num_written[b] == 0,
        )
        for b in BLOCKS
    )


@invariant("in-flight-held")
def what_is_brought_stays_at_the_source(state: State) -> bool:
    """The slots that a transfer brings are written in its source block."""
    return all(
        implies(state.fills[f] != NONE, 0 <= state.brings[f] and state.brings[f] <= state.num_written[state.uses[f]])
        for f in FLIGHTS
    )


@invariant("read-back")
def only_known_tokens_are_brought(state: State) -> bool:
    """A transfer brings KV only for tokens that every holder of the filled block knows."""
    return all(
        implies(
            state.fills[f] != NONE and holds(state, s, state.fills[f]),
            state.brings[f] <= num_known(state, s, state.position[s][state.fills[f]]),
        )
        for f in FLIGHTS
        for s in SEQS
    )


@invariant("read-back")
def transfers_bring_the_tokens_of_the_holders(state: State) -> bool:
    """A transfer brings the KV of the tokens of every sequence that holds the filled block."""
    return all(
        implies(
            state.fills[f] != NONE and holds(state, s, state.fills[f]) and o < state.brings[f],
            state.memory[state.uses[f]][o] == state.tokens[s][state.position[s][state.fills[f]]][o],
        )
        for f in FLIGHTS
        for s in SEQS
        for o in SLOTS
    )


@invariant("cache-content")
def transfers_bring_the_content(state: State) -> bool:
    """A transfer brings to a cached block the KV of the content that the block is cached under."""
    return all(
        implies(
            state.fills[f] != NONE and state.cached[state.fills[f]] and o < state.brings[f],
            state.memory[state.uses[f]][o] == state.content[state.fills[f]][o],
        )
        for f in FLIGHTS
        for o in SLOTS
    )


@theorem("in-flight-held")
def blocks_in_flight_are_used(state: State) -> bool:
    """A block that a flight uses or fills is neither free nor evictable nor reserved."""
    return all(
        implies(state.uses[f] != NONE, state.status[state.uses[f]] == USED)
        and implies(state.fills[f] != NONE, state.status[state.fills[f]] == USED)
        for f in FLIGHTS
    )
