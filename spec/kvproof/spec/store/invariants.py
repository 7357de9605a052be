"""The invariants of stores: claims that every reachable state satisfies."""

from kvproof.spec.language import BLOCK_SIZE, BLOCKS, FLIGHTS, NUM_FLIGHTS, RANKS, SLOTS, STATUSES, implies, invariant
from kvproof.spec.store.domains import (
    KEYS,
    NUM_GROUPS,
    NUM_KEYS,
    NUM_OWNERS,
    NUM_PARTS,
    NUM_PINS,
    NUM_TIERS,
    OWNERS,
    PARTS,
    PINS,
    TIERS,
)
from kvproof.spec.store.state import (
    EVICTABLE,
    FAILED,
    FREE,
    HELD,
    NONE,
    PROMISE,
    READ,
    RESERVED,
    SUBMITTED,
    WRITE,
    StoreState,
    brings_what_is_wanted,
    is_block,
    is_listed,
    is_ready,
    is_within,
    source_of,
    target_of,
    unused_in,
)

# Lists -----------------------------------------------------------------------------------------------------------


@invariant("lists-agree")
def status_tells_who_refers(state: StoreState) -> bool:
    """A block is reserved if it has a writer, held if it has readers, evictable if only an entry names it."""
    return all(
        state.reads[b] >= 0
        and FREE <= state.status[b]
        and state.status[b] <= EVICTABLE
        and (state.status[b] == RESERVED) == (state.writer[b] != NONE)
        and (state.status[b] == HELD) == (state.reads[b] > 0)
        and implies(state.status[b] == EVICTABLE, is_listed(state, b))
        and (state.status[b] == FREE) == (state.key[b] == NONE)
        and implies(state.status[b] != FREE, state.tier[b] != NONE)
        for b in BLOCKS
    )


@invariant("lists-agree")
def every_block_is_listed(state: StoreState) -> bool:
    """Each block of a tier is in the list of its status."""
    return all(
        implies(
            state.tier[b] != NONE,
            0 <= state.tier[b]
            and state.tier[b] < NUM_TIERS
            and 0 <= state.place[b]
            and state.place[b] < state.count[state.tier[b]][state.status[b]]
            and state.member[state.tier[b]][state.status[b]][state.place[b]] == b,
        )
        for b in BLOCKS
    )


@invariant("lists-agree")
def only_such_blocks_are_listed(state: StoreState) -> bool:
    """Each list has as many distinct blocks, of its tier and status, as its counter says."""
    return all(
        implies(
            k < state.count[t][w],
            is_block(state.member[t][w][k])
            and state.tier[state.member[t][w][k]] == t
            and state.status[state.member[t][w][k]] == w
            and state.place[state.member[t][w][k]] == k,
        )
        for t in TIERS
        for w in STATUSES
        for k in RANKS
    )


@invariant("conservation")
def counters_add_up(state: StoreState) -> bool:
    """Free, reserved, held and evictable blocks together are all blocks of the tier."""
    return all(
        state.count[t][FREE] >= 0
        and state.count[t][RESERVED] >= 0
        and state.count[t][HELD] >= 0
        and state.count[t][EVICTABLE] >= 0
        and unused_in(state, t) + state.count[t][RESERVED] + state.count[t][HELD] == state.capacity[t]
        for t in TIERS
    )


@invariant("lists-agree")
def entries_name_blocks(state: StoreState) -> bool:
    """An entry of a tier names a block of that tier, which is taken for that key."""
    return all(
        state.entry[t][k] == NONE
        or (is_block(state.entry[t][k]) and state.tier[state.entry[t][k]] == t and state.key[state.entry[t][k]] == k)
        for t in TIERS
        for k in KEYS
    )


# Contents --------------------------------------------------------------------------------------------------------


@invariant("frame-kept")
def keys_fit_into_blocks(state: StoreState) -> bool:
    """The chunk of a key fits into a block, and belongs to a group of layers."""
    return all(
        0 <= state.length[k]
        and state.length[k] <= BLOCK_SIZE
        and implies(state.known[k], 0 <= state.group[k] and state.group[k] < NUM_GROUPS)
        for k in KEYS
    )


@invariant("hit-written")
def ready_blocks_are_written(state: StoreState) -> bool:
    """A block is taken for a key that was introduced; a ready one was written to the end of that key."""
    return all(
        implies(
            state.key[b] != NONE,
            0 <= state.key[b]
            and state.key[b] < NUM_KEYS
            and state.known[state.key[b]]
            and 0 <= state.written[b]
            and state.written[b] <= state.length[state.key[b]]
            and implies(is_ready(state, b), state.written[b] == state.length[state.key[b]]),
        )
        and implies(state.key[b] == NONE, state.written[b] == 0)
        for b in BLOCKS
    )


@invariant("arrived-whole")
def written_slots_have_the_content(state: StoreState) -> bool:
    """What is written in a block is, slot by slot, the content of its key."""
    return all(
        implies(
            state.key[b] != NONE and o < state.written[b],
            state.memory[b][o] == state.content[state.key[b]][o],
        )
        for b in BLOCKS
        for o in SLOTS
    )


# Pins ------------------------------------------------------------------------------------------------------------


@invariant("pin-own")
def pins_have_a_block_and_an_owner(state: StoreState) -> bool:
    """Every pin is of a kind, on a block, and of an owner. A writer's pin is the one that its block names."""
    return all(
        implies(
            state.kind[p] != NONE,
            READ <= state.kind[p]
            and state.kind[p] <= PROMISE
            and is_block(state.pinned[p])
            and 0 <= state.owner[p]
            and state.owner[p] < NUM_OWNERS
            and implies(state.kind[p] == WRITE, state.writer[state.pinned[p]] == p),
        )
        for p in PINS
    )


@invariant("one-writer")
def writers_have_a_pin(state: StoreState) -> bool:
    """The writer that a block names is a pin of a writer, on that block."""
    return all(
        implies(
            state.writer[b] != NONE,
            0 <= state.writer[b]
            and state.writer[b] < NUM_PINS
            and state.kind[state.writer[b]] == WRITE
            and state.pinned[state.writer[b]] == b,
        )
        for b in BLOCKS
    )


@invariant("refcount-exact")
def every_reader_is_counted(state: StoreState) -> bool:
    """Each pin of a reader, and each promise, is one of those that its block counts."""
    return all(
        implies(
            state.kind[p] == READ or state.kind[p] == PROMISE,
            0 <= state.read_rank[p]
            and state.read_rank[p] < state.reads[state.pinned[p]]
            and state.reader[state.pinned[p]][state.read_rank[p]] == p,
        )
        for p in PINS
    )


@invariant("refcount-exact")
def only_readers_are_counted(state: StoreState) -> bool:
    """A block has as many distinct pins of readers, promises included, as its count says."""
    return all(
        implies(
            k < state.reads[b],
            0 <= state.reader[b][k]
            and state.reader[b][k] < NUM_PINS
            and (state.kind[state.reader[b][k]] == READ or state.kind[state.reader[b][k]] == PROMISE)
            and state.pinned[state.reader[b][k]] == b
            and state.read_rank[state.reader[b][k]] == k,
        )
        for b in BLOCKS
        for k in RANKS
    )


# Transfers -------------------------------------------------------------------------------------------------------


@invariant("source-held")
def transfers_use_pins(state: StoreState) -> bool:
    """A transfer under way uses a reader's pin, a writer's pin or both, for one key; any other transfer uses none."""
    return all(
        NONE <= state.phase[f]
        and state.phase[f] <= FAILED
        and (state.phase[f] == SUBMITTED) == (state.reads_by[f] != NONE or state.writes_by[f] != NONE)
        and implies(
            state.reads_by[f] != NONE,
            0 <= state.reads_by[f]
            and state.reads_by[f] < NUM_PINS
            and state.kind[state.reads_by[f]] == READ
            and state.mover[state.reads_by[f]] == f,
        )
        and implies(
            state.writes_by[f] != NONE,
            0 <= state.writes_by[f]
            and state.writes_by[f] < NUM_PINS
            and state.kind[state.writes_by[f]] == WRITE
            and state.mover[state.writes_by[f]] == f,
        )
        for f in FLIGHTS
    )


@invariant("arrived-whole")
def transfers_move_slots_of_chunks(state: StoreState) -> bool:
    """A transfer into a block begins at the first slot or goes on where it is written; any other moves whole chunks."""
    return all(
        0 <= state.reads_from[f]
        and 0 <= state.writes_from[f]
        and implies(state.reads_by[f] == NONE, state.reads_from[f] == 0)
        and implies(state.writes_by[f] == NONE, state.writes_from[f] == 0 and state.reads_from[f] == 0)
        and implies(
            state.writes_by[f] != NONE,
            state.writes_from[f] <= state.written[target_of(state, f)]
            and is_within(state.writes_from[f], state.length[state.key[target_of(state, f)]])
            and implies(state.reads_by[f] == NONE and not state.is_void[state.writes_by[f]], state.writes_from[f] == 0),
        )
        and implies(
            state.reads_by[f] != NONE and state.writes_by[f] != NONE,
            is_within(state.reads_from[f], state.length[state.key[source_of(state, f)]]),
        )
        for f in FLIGHTS
    )


@invariant("arrived-whole")
def moves_bring_what_is_wanted(state: StoreState) -> bool:
    """The slots that a transfer moves between blocks have the same identities in both keys, for the same layers."""
    return all(
        implies(
            state.reads_by[f] != NONE and state.writes_by[f] != NONE,
            brings_what_is_wanted(
                state, source_of(state, f), target_of(state, f), state.reads_from[f], state.writes_from[f]
            ),
        )
        for f in FLIGHTS
    )


@invariant("void-told")
def what_lost_its_source_is_not_whole(state: StoreState) -> bool:
    """A pin that is void is one of a writer, whose block lacks slots of its chunk, if that has any."""
    return all(
        implies(
            state.is_void[p],
            state.kind[p] == WRITE
            and (
                state.written[state.pinned[p]] == 0
                or state.written[state.pinned[p]] < state.length[state.key[state.pinned[p]]]
            ),
        )
        for p in PINS
    )


@invariant("pin-own")
def only_awaited_parts_are_noticed(state: StoreState) -> bool:
    """A part that has ended is one of those that a living owner waits for."""
    return all(
        0 <= state.parts[o]
        and state.parts[o] <= NUM_PARTS
        and implies(not state.live[o], state.parts[o] == 0)
        and implies(state.noticed[o][p], p < state.parts[o])
        for o in OWNERS
        for p in PARTS
    )


@invariant("source-held")
def pins_are_used_by_transfers(state: StoreState) -> bool:
    """A pin that is used is one of the pins of the transfer that uses it."""
    return all(
        implies(
            state.mover[p] != NONE,
            0 <= state.mover[p]
            and state.mover[p] < NUM_FLIGHTS
            and (state.reads_by[state.mover[p]] == p or state.writes_by[state.mover[p]] == p),
        )
        for p in PINS
    )


@invariant("pin-own")
def the_clock_has_begun(state: StoreState) -> bool:
    """The clock shows no negative time."""
    return state.clock[0] >= 0
