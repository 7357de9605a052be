"""The state of a key-value store of several tiers, and predicates and functions to read it.

Theory of operation
-------------------
A *tier* is a memory that keeps KV: the device, the host's memory, a disk, a peer. It has *blocks*, each with BLOCK_SIZE
token slots; ids of blocks run over all tiers, and a block that no tier has yet waits for `grow`. A *key* names content:
the identities of the tokens of one chunk (`kvproof.spec.text.identity`), for one *group* of layers. An identity stands
for a token and everything before it, so a key is a prefix of a prompt, cut at a boundary. Its `length` is the number of
its token slots; a short chunk leaves the last slots of a block unused.

An *entry* of a tier names the block that is taken for a key. Every block of a tier is in exactly one list:

    FREE       it has no content;
    RESERVED   a writer fills it: the entry is *staged*, and no reader sees it;
    HELD       it is written to its end, and a reader has a pin on it;
    EVICTABLE  it is written to its end, an entry names it, and nobody has a pin on it.

A block that is HELD or EVICTABLE is *ready*. A ready entry is *resident*: a look-up may answer that it is a hit.

A *pin* belongs to an *owner* (a request, a worker, a call, the store itself) and keeps one block:

    WRITE    the owner writes the block; a block has at most one such pin, and then no other;
    READ     the owner reads the block, or has been given its address;
    PROMISE  a look-up answered that the key is a hit, and the load has not begun.

A pin with an end of validity is a *lease*: it is in force as long as the clock has not reached its end. A pin whose
owner has ended is not in force either. A pin that is not in force serves nobody, but it keeps its block until `expire`
removes it, which it may do only if no transfer uses the pin.

A *transfer* (a flight) moves the content of one key by one or two pins: from a block, to a block, or both. A transfer
of many keys is many flights, so that each may fail for itself. The bytes move at any time after it was submitted, until
it has *landed* or *failed*; the store learns this later, when it is *reported*. Blocks of two tiers may differ in how
many tokens they keep, so a flight from a block to a block names the first token slot that it moves in each, and goes to
the end of the shorter chunk. Whatever their keys are called, these slots must have the same identities. A block is
filled from its first slot on.

A lease may end under a flight whose source it keeps, and what reads the source from far away cannot be stopped by that.
The source may then be given up, and the flight is *void*: what it brings is not the content of its key. So its block
stays reserved until it has failed, and is not committed before another flight has filled it.

An owner may wait for several *parts*, of which each reads what its pins keep, for example the workers of a model that
is spread over devices. A *notice* tells that a part has ended. It counts once, and the pins end after the last one.

A removed entry (a reset, `drop`) may leave a block that is still pinned; the block is free when its last pin ends.
"""

from kvproof.spec.language import (
    BLOCKS,
    COUNTS,
    FLAGS,
    FLIGHTS,
    IDENTITIES,
    NUM_BLOCKS,
    NUM_FLIGHTS,
    RANKS,
    SLOTS,
    STATUSES,
    derived,
    function,
    ghost,
    implies,
    predicate,
    real,
)
from kvproof.spec.store.domains import CLOCKS, GROUPS, KEYS, NUM_PINS, OWNERS, PARTS, PINS, TIERS, TIMES

NONE = -1
FREE, RESERVED, HELD, EVICTABLE = 0, 1, 2, 3
READ, WRITE, PROMISE = 0, 1, 2
SUBMITTED, LANDED, FAILED = 0, 1, 2
MISS, HIT, PENDING = 0, 1, 2


class StoreState:
    """Maps from ids to values. The comment of a field says what the value means."""

    tier: list[int] = real(BLOCKS, to=TIERS, start=NONE)  # the tier that has the block; NONE: no tier has it yet
    status: list[int] = real(BLOCKS, to=STATUSES)
    key: list[int] = real(BLOCKS, to=KEYS, start=NONE)  # the key that the block is taken for; NONE if it is free
    written: list[int] = real(BLOCKS, to=COUNTS)  # token slots that have been written for the key
    memory: list[list[int]] = real(BLOCKS, SLOTS, to=IDENTITIES)  # what the KV in each token slot was computed from
    reads: list[int] = real(BLOCKS, to=COUNTS)  # pins of readers and promises
    writer: list[int] = real(BLOCKS, to=PINS, start=NONE)  # the pin of the writer
    capacity: list[int] = real(TIERS, to=COUNTS)  # blocks of the tier
    count: list[list[int]] = real(TIERS, STATUSES, to=COUNTS)  # length of each list
    entry: list[list[int]] = real(TIERS, KEYS, to=BLOCKS, start=NONE)  # the block that the tier has for a key

    known: list[bool] = real(KEYS, to=FLAGS, start=False)  # the key has been introduced
    group: list[int] = real(KEYS, to=GROUPS)  # the layers whose KV it names
    length: list[int] = real(KEYS, to=COUNTS)  # token slots of its chunk
    content: list[list[int]] = real(KEYS, SLOTS, to=IDENTITIES)  # what each of them shall hold

    kind: list[int] = real(PINS, to=STATUSES, start=NONE)  # READ, WRITE or PROMISE; NONE: no such pin
    pinned: list[int] = real(PINS, to=BLOCKS)  # the block that it keeps
    owner: list[int] = real(PINS, to=OWNERS)
    until: list[int] = real(PINS, to=TIMES)  # a lease: when it ends; a negative number: no lease
    mover: list[int] = derived(PINS, to=FLIGHTS, start=NONE)  # the transfer under way that uses the pin
    is_void: list[bool] = real(PINS, to=FLAGS, start=False)  # of a writer: a transfer into its block lost its source
    live: list[bool] = real(OWNERS, to=FLAGS, start=False)  # the owner exists
    parts: list[int] = real(OWNERS, to=COUNTS)  # how many parts its pins wait for
    noticed: list[list[bool]] = real(OWNERS, PARTS, to=FLAGS, start=False)  # the part has ended, by a notice
    clock: list[int] = real(CLOCKS, to=COUNTS)

    phase: list[int] = real(FLIGHTS, to=STATUSES, start=NONE)  # SUBMITTED, LANDED or FAILED; NONE: no such transfer
    reads_by: list[int] = real(FLIGHTS, to=PINS, start=NONE)  # the pin on its source; NONE: its owner has the bytes
    writes_by: list[int] = real(FLIGHTS, to=PINS, start=NONE)  # the pin on its target; NONE: its owner gets the bytes
    reads_from: list[int] = real(FLIGHTS, to=COUNTS)  # the first token slot of the source that it moves
    writes_from: list[int] = real(FLIGHTS, to=COUNTS)  # the slot of the target that this one goes to

    reader: list[list[int]] = ghost(BLOCKS, RANKS, to=PINS)  # the pins that `reads` counts, enumerated,
    read_rank: list[int] = ghost(PINS, to=RANKS)  # and where each is in that enumeration
    member: list[list[list[int]]] = ghost(TIERS, STATUSES, RANKS, to=BLOCKS)  # each list, in full,
    place: list[int] = ghost(BLOCKS, to=RANKS)  # and where each block is in its list


@predicate
def is_block(block: int) -> bool:
    """The number is the id of a block."""
    return 0 <= block and block < NUM_BLOCKS


@predicate
def is_listed(state: StoreState, block: int) -> bool:
    """The entry of the block's key names the block."""
    return (
        state.tier[block] != NONE
        and state.key[block] != NONE
        and state.entry[state.tier[block]][state.key[block]] == block
    )


@predicate
def is_ready(state: StoreState, block: int) -> bool:
    """The block was written to its end, by a writer that said so."""
    return state.status[block] == HELD or state.status[block] == EVICTABLE


@predicate
def is_resident(state: StoreState, tier: int, key: int) -> bool:
    """The tier has a ready block for the key: a look-up may answer that it is a hit."""
    return state.entry[tier][key] != NONE and is_ready(state, state.entry[tier][key])


@predicate
def is_staged(state: StoreState, tier: int, key: int) -> bool:
    """The tier has a block for the key that a writer still fills."""
    return state.entry[tier][key] != NONE and not is_ready(state, state.entry[tier][key])


@function
def answer(state: StoreState, tier: int, key: int) -> int:
    """The answer of a look-up that tells everything: MISS, HIT, or PENDING if the key is staged."""
    return MISS if state.entry[tier][key] == NONE else HIT if is_resident(state, tier, key) else PENDING


@predicate
def is_in_force(state: StoreState, pin: int) -> bool:
    """The pin exists, its owner has not ended, and its lease, if it is one, has not run out."""
    return (
        state.kind[pin] != NONE
        and state.live[state.owner[pin]]
        and (state.until[pin] < 0 or state.clock[0] < state.until[pin])
    )


@predicate
def is_over(state: StoreState, pin: int) -> bool:
    """The pin was a lease, and has run out."""
    return 0 <= state.until[pin] and state.until[pin] <= state.clock[0]


@predicate
def is_under_a_move(state: StoreState, pin: int) -> bool:
    """A transfer to another block reads the block by this pin."""
    return state.kind[pin] == READ and state.mover[pin] != NONE and state.writes_by[state.mover[pin]] != NONE


@predicate
def all_noticed(state: StoreState, owner: int) -> bool:
    """Every part that the owner waits for has ended."""
    return all(implies(p < state.parts[owner], state.noticed[owner][p]) for p in PARTS)


@predicate
def is_new_pin(state: StoreState, pin: int) -> bool:
    """No pin has that id."""
    return 0 <= pin and pin < NUM_PINS and state.kind[pin] == NONE


@predicate
def is_idle(state: StoreState, flight: int) -> bool:
    """No transfer has that id."""
    return 0 <= flight and flight < NUM_FLIGHTS and state.phase[flight] == NONE


@predicate
def is_written(state: StoreState, block: int) -> bool:
    """Every token slot of the block's key has been written."""
    return state.key[block] != NONE and state.written[block] == state.length[state.key[block]]


@predicate
def has_content(state: StoreState, block: int, key: int) -> bool:
    """The token slots of the block hold the content of the key."""
    return all(implies(o < state.length[key], state.memory[block][o] == state.content[key][o]) for o in SLOTS)


@predicate
def is_right(state: StoreState, block: int) -> bool:
    """What is written in the block is the content of its key."""
    return all(
        implies(o < state.written[block], state.memory[block][o] == state.content[state.key[block]][o]) for o in SLOTS
    )


@predicate
def is_within(first: int, length: int) -> bool:
    """A chunk of that length has the slot, or it is the first one of a chunk that may be empty."""
    return first == 0 or first < length


@function
def num_moved(state: StoreState, source: int, target: int, source_first: int, target_first: int) -> int:
    """How many token slots a transfer moves from these slots on: up to the end of the shorter chunk."""
    return min(state.length[state.key[source]] - source_first, state.length[state.key[target]] - target_first)


@predicate
def brings_what_is_wanted(state: StoreState, source: int, target: int, source_first: int, target_first: int) -> bool:
    """A transfer from these slots on brings what the key of the target wants there, for the same layers."""
    return state.group[state.key[source]] == state.group[state.key[target]] and all(
        implies(
            target_first <= o and o < target_first + num_moved(state, source, target, source_first, target_first),
            state.content[state.key[source]][o - target_first + source_first] == state.content[state.key[target]][o],
        )
        for o in SLOTS
    )


@function
def source_of(state: StoreState, flight: int) -> int:
    """The block that the transfer reads; NONE if its owner has the bytes."""
    return NONE if state.reads_by[flight] == NONE else state.pinned[state.reads_by[flight]]


@function
def target_of(state: StoreState, flight: int) -> int:
    """The block that the transfer writes; NONE if its owner gets the bytes."""
    return NONE if state.writes_by[flight] == NONE else state.pinned[state.writes_by[flight]]


@function
def unused_in(state: StoreState, tier: int) -> int:
    """Blocks of a tier that can be taken: free ones, and evictable ones after their eviction."""
    return state.count[tier][FREE] + state.count[tier][EVICTABLE]


@function
def first_of_list(state: StoreState, tier: int, status: int) -> int:
    """The first block of a list, if there is one: the block that a proof names where it says that one exists."""
    return state.member[tier][status][0]


@function
def first_reader(state: StoreState, block: int) -> int:
    """The first pin of a reader that the block counts, if there is one."""
    return state.reader[block][0]
