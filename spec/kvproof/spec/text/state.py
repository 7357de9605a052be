"""The state of a paged KV-cache block manager, and predicates and functions to read it.

Theory of operation
-------------------
Keys and values (KV) of a sequence live in blocks of BLOCK_SIZE token slots. Blocks lie in two pools, GPU and
HOST; ids run over both, GPU first. A sequence names its blocks in a table, and may share them: a block's
*refcount* is the number of table entries that name it. Every block is in exactly one list of its pool:

    USED       a table names it, or something in flight still reads or writes it;
    EVICTABLE  neither, but its computed content may still be hit;
    FREE       it has no content;
    RESERVED   the manager keeps it for itself (the storage behind its null block).

A *flight* is a pending access of one block: a step launched on the device reads and writes it, or a transfer reads it
and *fills* another with what it *brings*. The sequence that the block belonged to may be gone by then; the block is
not reused before the last access has landed (`flight_rules`). Each access is counted as a *pin*.

NULL is not a block: it is the table entry of a block that the sliding window left or never needed.

Layers attend to every earlier token, or to those in a sliding window, or, with *local attention*, to those in the same
chunk of a fixed number of tokens. Then the window is as large as the part of the chunk that is there already. One
number per sequence, `window`, says which: see `first_read`.

A slot holds an *identity*: a number for the token and everything else that its KV depends on, which is all
tokens before it, the adapter, the images with their positions, and the salt (`identity`). Two slots hold the
same KV exactly when the identities are equal; nothing here is compared by a hash.

A table has, in this order: entries the window left (or skipped), entries all of whose tokens are *known*, the tail in
which `num_filled` are, and reserved entries (lookahead), in which none is. Tokens are known first; their KV is *done*
later, when a step computes it, in order. `num_written` is the number of written slots of a block.

A full block may be *cached* under its content, so that other sequences find it. They may *hit* it, that is read it
without computing it, once it is marked *computed*.

Fields are *real*, *derived* (a function of real ones) or *ghost*: enumerations that make a counter a cardinality
without any sum. No real field depends on a ghost field.
"""

from kvproof.spec.language import (
    BLOCK_SIZE,
    BLOCKS,
    COUNTS,
    ENTRIES,
    FLAGS,
    FLIGHTS,
    IDENTITIES,
    INDEXES,
    NUM_BLOCKS,
    NUM_FLIGHTS,
    NUM_GPU_BLOCKS,
    POOLS,
    RANKS,
    SEQS,
    SLOTS,
    STATUSES,
    WINDOWS,
    derived,
    function,
    ghost,
    predicate,
    real,
)

NONE = -1
FREE, USED, EVICTABLE, RESERVED = 0, 1, 2, 3
GPU, HOST = 0, 1


@function
def pool_of(block: int) -> int:
    """The pool that a block lies in."""
    return GPU if block < NUM_GPU_BLOCKS else HOST


@function
def pool_size(pool: int) -> int:
    """How many blocks a pool has."""
    return NUM_GPU_BLOCKS if pool == GPU else NUM_BLOCKS - NUM_GPU_BLOCKS


@function
def all_free(pool: int, status: int) -> int:
    """The length of each list in the first state: every block is free."""
    return pool_size(pool) if status == FREE else 0


@function
def block_at(pool: int, rank: int) -> int:
    """The block at each place of a full list, in the first state."""
    return rank if pool == GPU else rank + NUM_GPU_BLOCKS


@function
def place_at(block: int) -> int:
    """The place of each block in the free list, in the first state."""
    return block if block < NUM_GPU_BLOCKS else block - NUM_GPU_BLOCKS


class State:
    """Maps from ids to values. The comment of a field says what the value means."""

    live: list[bool] = real(SEQS, to=FLAGS, start=False)  # the sequence exists
    ending: list[bool] = real(SEQS, to=FLAGS, start=False)  # it is being freed: its entries are dropped, last first
    home: list[int] = real(SEQS, to=POOLS)  # the pool its blocks are in
    moving: list[int] = real(SEQS, to=INDEXES, start=NONE)  # entries before it have moved pools; NONE at rest
    window: list[int] = real(SEQS, to=WINDOWS)  # how far back a token reads, see `first_read`
    table: list[list[int]] = real(SEQS, INDEXES, to=ENTRIES)  # logical block number -> block id
    num_blocks: list[int] = real(SEQS, to=INDEXES)  # entries of the table, those left and those reserved included
    first: list[int] = real(SEQS, to=INDEXES)  # entries before it were left by the sliding window, or skipped
    num_full: list[int] = real(SEQS, to=INDEXES)  # entries all of whose tokens are known
    num_filled: list[int] = real(SEQS, to=SLOTS)  # tokens known in the entry after those
    done_full: list[int] = real(SEQS, to=INDEXES)  # entries all of whose KV this sequence may read
    done_filled: list[int] = real(SEQS, to=SLOTS)  # slots it may read in the entry after those
    tokens: list[list[list[int]]] = real(SEQS, INDEXES, SLOTS, to=IDENTITIES)  # what each known slot shall hold

    status: list[int] = real(BLOCKS, to=STATUSES)
    refcount: list[int] = real(BLOCKS, to=COUNTS)  # table entries that name the block
    count: list[list[int]] = real(POOLS, STATUSES, to=COUNTS, start=all_free)  # length of each list
    cached: list[bool] = real(BLOCKS, to=FLAGS, start=False)  # the block can be found by its content
    computed: list[bool] = real(BLOCKS, to=FLAGS, start=False)  # its KV is complete and may be hit
    content: list[list[int]] = real(BLOCKS, SLOTS, to=IDENTITIES)  # what it is cached under
    memory: list[list[int]] = real(BLOCKS, SLOTS, to=IDENTITIES)  # what each slot's KV was computed from
    num_written: list[int] = real(BLOCKS, to=COUNTS)  # slots whose KV has been written

    pins: list[int] = real(BLOCKS, to=COUNTS)  # flights that use the block
    uses: list[int] = real(FLIGHTS, to=ENTRIES, start=NONE)  # the block that a flight reads or writes; NONE: no flight
    fills: list[int] = real(FLIGHTS, to=ENTRIES, start=NONE)  # the block that a transfer writes; NONE for a step
    brings: list[int] = real(FLIGHTS, to=COUNTS)  # slots that a transfer writes, when it arrives

    filler: list[int] = derived(BLOCKS, to=FLIGHTS, start=NONE)  # the transfer under way that fills the block
    position: list[list[int]] = derived(SEQS, BLOCKS, to=INDEXES, start=NONE)  # where the table names a block
    holder: list[list[int]] = ghost(BLOCKS, RANKS, to=SEQS)  # the holders of a block, enumerated,
    rank: list[list[int]] = ghost(BLOCKS, SEQS, to=RANKS)  # and where each is in that enumeration
    pinner: list[list[int]] = ghost(BLOCKS, RANKS, to=FLIGHTS)  # the flights that use a block, enumerated,
    pin_rank: list[int] = ghost(FLIGHTS, to=RANKS)  # and where each is in that enumeration
    member: list[list[list[int]]] = ghost(POOLS, STATUSES, RANKS, to=BLOCKS, start=block_at)  # each list, in full,
    place: list[int] = ghost(BLOCKS, to=RANKS, start=place_at)  # and where each block is in its list


@predicate
def at_rest(state: State, seq: int) -> bool:
    """The sequence is live, and neither being swapped nor freed."""
    return state.live[seq] and not state.ending[seq] and state.moving[seq] == NONE


@predicate
def free_in(state: State, block: int, pool: int) -> bool:
    """The block is free in that pool."""
    return 0 <= block and block < NUM_BLOCKS and state.status[block] == FREE and pool_of(block) == pool


@predicate
def holds(state: State, seq: int, block: int) -> bool:
    """The table of the sequence names the block."""
    return state.position[seq][block] != NONE


@predicate
def is_pending(state: State, block: int) -> bool:
    """Something in flight still reads or writes the block."""
    return state.pins[block] > 0 or state.filler[block] != NONE


@predicate
def is_idle(state: State, flight: int) -> bool:
    """No flight has that id."""
    return 0 <= flight and flight < NUM_FLIGHTS and state.uses[flight] == NONE


@function
def num_promised(state: State, block: int) -> int:
    """Slots that are written, or that the transfer which fills the block will write."""
    return state.num_written[block] if state.filler[block] == NONE else state.brings[state.filler[block]]


@predicate
def has_arrived(state: State, seq: int) -> bool:
    """No transfer under way fills a block of the sequence."""
    return NUM_FLIGHTS == 0 or all(state.fills[f] == NONE or not holds(state, seq, state.fills[f]) for f in FLIGHTS)


@predicate
def has_entry(state: State, seq: int, index: int) -> bool:
    """The table of the sequence names a block at that index."""
    return state.first[seq] <= index and index < state.num_blocks[seq]


@function
def num_known(state: State, seq: int, index: int) -> int:
    """How many tokens of that table entry are known."""
    return BLOCK_SIZE if index < state.num_full[seq] else (state.num_filled[seq] if index == state.num_full[seq] else 0)


@function
def num_done(state: State, seq: int, index: int) -> int:
    """How many slots of that table entry the sequence may read."""
    return (
        BLOCK_SIZE if index < state.done_full[seq] else (state.done_filled[seq] if index == state.done_full[seq] else 0)
    )


@function
def pool_of_entry(state: State, seq: int, index: int) -> int:
    """The pool of an entry: during a swap, the entries before `moving` are in the other pool."""
    return 1 - state.home[seq] if index < state.moving[seq] else state.home[seq]


@function
def first_read(position: int, window: int) -> int:
    """The first position that the token at a position reads; negative if its window is not full.

    window: 0 if tokens read all before them. A positive number is how many positions they read, their own included. A
    negative number, -c, is local attention: positions are divided into chunks of c, and a token reads its own chunk.

    Source: `get_num_skipped_tokens` of the managers of vLLM's V1 line.
    """
    return 0 if window == 0 else position + 1 - window if window > 0 else position - position % -window


@predicate
def is_within(state: State, seq: int, index: int, window: int) -> bool:
    """With that window, a token that is not done yet reads a slot of the entry."""
    return (index + 1) * BLOCK_SIZE > first_read(state.done_full[seq] * BLOCK_SIZE + state.done_filled[seq], window)


@predicate
def can_still_be_read(state: State, seq: int, index: int) -> bool:
    """A token that is not done yet reads a slot of the entry."""
    return is_within(state, seq, index, state.window[seq])


@function
def unused_in(state: State, pool: int) -> int:
    """Blocks of a pool that can be taken: free ones, and evictable ones after their eviction."""
    return state.count[pool][FREE] + state.count[pool][EVICTABLE]


@function
def first_of_list(state: State, pool: int, status: int) -> int:
    """The first block of a list, if there is one: the block that a proof names where it says that one exists."""
    return state.member[pool][status][0]
