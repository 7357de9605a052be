"""The rules of stores: look-ups, loads, stores, eviction, leases, owners and resets, one key at a time.

Guards come first. Each names the property that a store breaks if it acts although the guard does not hold. Then come
the writes, with obligations in between. What a store may choose (the block, the victim) is a parameter. A rule that is
not enabled changes nothing. `transfer_rules` has the transfers.

A call that names several keys fires a rule for each. A call must not evict what it names: it takes a promise on each of
its resident keys first, and ends these at last.
"""

from kvproof.spec.language import BLOCK_SIZE, BlockId, Count, Row, check, copied, require, rule
from kvproof.spec.store.domains import NUM_PARTS, PARTS, PINS, GroupId, KeyId, OwnerId, PartId, PinId, TierId, Time
from kvproof.spec.store.state import (
    EVICTABLE,
    FREE,
    HELD,
    NONE,
    PROMISE,
    READ,
    RESERVED,
    WRITE,
    StoreState,
    all_noticed,
    has_content,
    is_in_force,
    is_listed,
    is_new_pin,
    is_over,
    is_resident,
    is_under_a_move,
    is_written,
)
from kvproof.spec.store.steps import (
    begin_pin,
    begin_read,
    end_read,
    forget,
    give_up,
    list_as,
    make_ready,
    make_void,
    move_to,
)

# Blocks, keys, owners and the clock --------------------------------------------------------------------------------


@rule
def grow(state: StoreState, block: BlockId, tier: TierId) -> None:
    """A tier gets one more block, which is free."""
    require(state.tier[block] == NONE, "no tier has the block")
    state.tier[block] = tier
    state.capacity[tier] += 1
    list_as(state, block, FREE)
    check(state.status[block] == FREE and state.tier[block] == tier, "conservation")


@rule
def introduce(state: StoreState, key: KeyId, group: GroupId, row: Row, length: Count) -> None:
    """Give a key its group and its content: the first `length` identities of the row."""
    require(not state.known[key], "the key is a new one")
    require(length <= BLOCK_SIZE, "the chunk fits into a block")
    state.known[key] = True
    state.group[key] = group
    state.length[key] = length
    state.content[key] = copied(row)
    check(state.known[key] and state.group[key] == group and state.length[key] == length, "frame-kept")


@rule
def begin_owner(state: StoreState, owner: OwnerId) -> None:
    """An owner begins: a request, a worker, a call of the store."""
    require(not state.live[owner], "the owner does not exist")
    require(
        all(state.kind[p] == NONE or state.owner[p] != owner for p in PINS),
        "no pin is left of an earlier owner of that id",
        "pin-own",
    )
    state.live[owner] = True
    check(state.live[owner], "pin-own")


@rule
def end_owner(state: StoreState, owner: OwnerId) -> None:
    """An owner ends: it has finished, was aborted, or is dead. Its pins are not in force any more."""
    require(state.live[owner], "the owner exists")
    state.live[owner] = False
    state.parts[owner] = 0
    state.noticed[owner] = [False for p in PARTS]
    check(all(state.owner[p] != owner or not is_in_force(state, p) for p in PINS), "pin-own")


@rule
def await_parts(state: StoreState, owner: OwnerId, number: Count) -> None:
    """Several parts read what an owner's pins keep, so its reads end after a notice of each of them."""
    require(state.live[owner], "the owner exists")
    require(state.parts[owner] == 0, "it waits for no parts yet")
    require(number <= NUM_PARTS, "there are so many parts")
    state.parts[owner] = number
    check(number == 0 or not all_noticed(state, owner), "pin-own")


@rule
def notice(state: StoreState, owner: OwnerId, part: PartId) -> None:
    """A part has ended. A notice that is late or doubled, or of another owner, fires nothing."""
    require(part < state.parts[owner], "the owner waits for the part", "pin-own")
    require(not state.noticed[owner][part], "the part has not ended before", "pin-own")
    state.noticed[owner][part] = True
    check(state.live[owner], "pin-own")


@rule
def advance(state: StoreState, seconds: Count) -> None:
    """The clock goes on. Leases whose end it reaches are not in force any more."""
    state.clock[0] += seconds
    check(state.clock[0] >= seconds, "pin-own")


# Look-ups and loads ------------------------------------------------------------------------------------------------


@rule
def promise(state: StoreState, pin: PinId, owner: OwnerId, tier: TierId, key: KeyId, until: Time) -> None:
    """A look-up answers that the key is a hit. The block stays until the load begins, or the promise ends."""
    require(is_new_pin(state, pin), "the pin is a new one")
    require(state.live[owner], "the owner exists")
    require(is_resident(state, tier, key), "what a look-up calls a hit is resident", "hit-written")
    block = state.entry[tier][key]
    begin_pin(state, pin, owner, block, until)
    begin_read(state, pin, PROMISE, block)
    check(state.status[block] == HELD and has_content(state, block, key), "hit-written")


@rule
def redeem(state: StoreState, pin: PinId, owner: OwnerId) -> None:
    """The load that was promised begins: the promise becomes the pin of a reader."""
    require(state.kind[pin] == PROMISE, "the promise has not ended", "promise-kept")
    require(state.owner[pin] == owner, "the promise was made to that owner", "pin-own")
    require(is_in_force(state, pin), "the promise is in force", "pin-own")
    state.kind[pin] = READ
    check(state.status[state.pinned[pin]] == HELD, "promise-kept")
    check(has_content(state, state.pinned[pin], state.key[state.pinned[pin]]), "promise-kept")


@rule
def begin_load(state: StoreState, pin: PinId, owner: OwnerId, tier: TierId, key: KeyId, until: Time) -> None:
    """An owner begins to read the block of a key."""
    require(is_new_pin(state, pin), "the pin is a new one")
    require(state.live[owner], "the owner exists")
    require(is_resident(state, tier, key), "what is loaded is resident", "hit-written")
    block = state.entry[tier][key]
    begin_pin(state, pin, owner, block, until)
    begin_read(state, pin, READ, block)
    check(state.status[block] == HELD and has_content(state, block, key), "arrived-whole")


@rule
def end_load(state: StoreState, pin: PinId, owner: OwnerId) -> None:
    """An owner has read a block, or does without what was promised to it."""
    require(state.kind[pin] == READ or state.kind[pin] == PROMISE, "the pin is one of a reader", "no-double-free")
    require(state.owner[pin] == owner, "who ends a pin holds it", "pin-own")
    require(is_in_force(state, pin), "the pin is in force", "pin-own")
    require(state.mover[pin] == NONE, "no transfer reads the block by this pin", "source-held")
    require(all_noticed(state, owner), "every part that the owner waits for has ended", "pin-own")
    end_read(state, pin)
    check(state.kind[pin] == NONE, "pin-own")


# Stores ------------------------------------------------------------------------------------------------------------


@rule
def begin_store(state: StoreState, pin: PinId, owner: OwnerId, block: BlockId, key: KeyId, until: Time) -> None:
    """An owner begins to write a free block, in the tier of that block. No reader sees the entry."""
    require(is_new_pin(state, pin), "the pin is a new one")
    require(state.live[owner], "the owner exists")
    require(state.tier[block] != NONE and state.status[block] == FREE, "the block taken is free", "no-use-after-free")
    require(state.known[key], "the key has been introduced")
    require(state.entry[state.tier[block]][key] == NONE, "the tier has no entry for the key", "one-writer")
    begin_pin(state, pin, owner, block, until)
    state.kind[pin] = WRITE
    state.writer[block] = pin
    state.key[block] = key
    state.entry[state.tier[block]][key] = block
    move_to(state, block, RESERVED)
    check(not is_resident(state, state.tier[block], key), "hit-written")
    check(state.written[block] == 0 and state.reads[block] == 0, "one-writer")


@rule
def commit(state: StoreState, pin: PinId, owner: OwnerId) -> None:
    """The writer says that it has written the block to its end. Readers see the entry."""
    require(state.kind[pin] == WRITE, "the pin is one of a writer", "no-double-free")
    require(state.owner[pin] == owner, "who ends a pin holds it", "pin-own")
    require(is_in_force(state, pin), "the pin is in force", "hit-written")
    require(state.mover[pin] == NONE, "no transfer writes the block any more", "hit-written")
    require(not state.is_void[pin], "no transfer into the block lost its source before its bytes moved", "void-told")
    block = state.pinned[pin]
    require(is_written(state, block), "every token slot of the chunk has been written", "hit-written")
    require(is_listed(state, block), "the entry has not been dropped since", "abort-unseen")
    make_ready(state, pin)
    move_to(state, block, EVICTABLE)
    check(is_resident(state, state.tier[block], state.key[block]), "hit-written")
    check(has_content(state, block, state.key[block]), "hit-written")


@rule
def keep(state: StoreState, pin: PinId, owner: OwnerId) -> None:
    """The writer has written the block to its end, and reads it from now on, for example for a cascade.

    Its pin becomes the pin of a reader, so that there is no moment at which the block may be evicted.
    """
    require(state.kind[pin] == WRITE, "the pin is one of a writer", "no-double-free")
    require(state.owner[pin] == owner, "who ends a pin holds it", "pin-own")
    require(is_in_force(state, pin), "the pin is in force", "hit-written")
    require(state.mover[pin] == NONE, "no transfer writes the block any more", "hit-written")
    require(not state.is_void[pin], "no transfer into the block lost its source before its bytes moved", "void-told")
    block = state.pinned[pin]
    require(is_written(state, block), "every token slot of the chunk has been written", "hit-written")
    require(is_listed(state, block), "the entry has not been dropped since", "abort-unseen")
    make_ready(state, pin)
    begin_read(state, pin, READ, block)
    check(is_resident(state, state.tier[block], state.key[block]), "hit-written")
    check(state.status[block] == HELD and has_content(state, block, state.key[block]), "hit-written")


@rule
def abort(state: StoreState, pin: PinId, owner: OwnerId) -> None:
    """The writer gives up: the block is free, and nothing of it can be found."""
    require(state.kind[pin] == WRITE, "the pin is one of a writer", "no-double-free")
    require(state.owner[pin] == owner, "who ends a pin holds it", "pin-own")
    require(is_in_force(state, pin), "the pin is in force", "pin-own")
    require(state.mover[pin] == NONE, "no transfer writes the block any more", "source-held")
    block = state.pinned[pin]
    give_up(state, pin)
    check(state.status[block] == FREE and state.key[block] == NONE, "abort-unseen")


# What ends by itself, eviction and reset ---------------------------------------------------------------------------


@rule
def expire(state: StoreState, pin: PinId) -> None:
    """Remove a pin that is not in force, as its lease has run out or its owner has ended. What it wrote is given up.

    A lease on a source may run out while its transfer to another block is under way. The transfer is void then.
    """
    require(state.kind[pin] != NONE, "the pin has not ended", "no-double-free")
    require(not is_in_force(state, pin), "the lease has run out, or the owner has ended", "pin-own")
    require(
        state.mover[pin] == NONE or (is_under_a_move(state, pin) and is_over(state, pin)),
        "no transfer uses the block by this pin, but one that moves it under a lease which has run out",
        "source-held",
    )
    block = state.pinned[pin]
    if state.mover[pin] != NONE:
        make_void(state, pin)
    if state.kind[pin] == WRITE:
        give_up(state, pin)
        check(state.status[block] == FREE and state.key[block] == NONE, "abort-unseen")
    else:
        end_read(state, pin)
    check(state.kind[pin] == NONE, "pin-own")


@rule
def evict(state: StoreState, block: BlockId) -> None:
    """Free a block that is ready and on which nobody has a pin."""
    require(
        state.status[block] == EVICTABLE, "the block evicted is ready, and nobody has a pin on it", "evict-unreferenced"
    )
    forget(state, block)
    check(state.status[block] == FREE and not is_listed(state, block), "evict-unreferenced")


@rule
def drop(state: StoreState, tier: TierId, key: KeyId) -> None:
    """Remove an entry, whoever has a pin on its block; a reset drops every entry. The block stays with its pins."""
    block = state.entry[tier][key]
    require(block != NONE, "the tier has an entry for the key")
    state.entry[tier][key] = NONE
    if state.status[block] == EVICTABLE:
        forget(state, block)
    check(state.entry[tier][key] == NONE, "abort-unseen")
