"""The contract of freeing a sequence: `drop_last`, until no entry is left."""

from kvproof.spec.language import BLOCKS, INDEXES, SEQS, SeqId, contract, function, implies, predicate
from kvproof.spec.text.rules import drop_last
from kvproof.spec.text.state import USED, State, holds, is_pending


@predicate
def free_precondition(start: State, seq: SeqId) -> bool:
    """The sequence is live, and `begin_free` has fired."""
    return start.live[seq] and start.ending[seq]


@function
def free_variant(state: State, seq: SeqId) -> int:
    """The entries left to drop."""
    return state.num_blocks[seq] - state.first[seq]


@predicate
def is_dropped(start: State, state: State, seq: SeqId, block: int) -> bool:
    """The sequence held the block at the start, and does not hold it any more."""
    return holds(start, seq, block) and start.position[seq][block] >= state.num_blocks[seq]


@predicate
def other_tables_are_kept(start: State, state: State, seq: SeqId) -> bool:
    """The tables of all other sequences are unchanged."""
    return (
        all(
            implies(s != seq, state.live[s] == start.live[s] and state.num_blocks[s] == start.num_blocks[s])
            for s in SEQS
        )
        and all(implies(s != seq, state.first[s] == start.first[s]) for s in SEQS)
        and all(implies(s != seq, state.table[s][i] == start.table[s][i]) for s in SEQS for i in INDEXES)
        and all(implies(s != seq, state.position[s][b] == start.position[s][b]) for s in SEQS for b in BLOCKS)
    )


@predicate
def free_invariant(start: State, state: State, seq: SeqId) -> bool:
    """Every block has lost the references of the dropped entries, and no others."""
    return (
        state.live[seq]
        and state.ending[seq]
        and state.first[seq] == start.first[seq]
        and state.num_blocks[seq] <= start.num_blocks[seq]
        and all(implies(i < state.num_blocks[seq], state.table[seq][i] == start.table[seq][i]) for i in INDEXES)
        and all(holds(state, seq, b) == (holds(start, seq, b) and not is_dropped(start, state, seq, b)) for b in BLOCKS)
        and all(implies(holds(state, seq, b), state.position[seq][b] == start.position[seq][b]) for b in BLOCKS)
        and all(state.refcount[b] == start.refcount[b] - (1 if is_dropped(start, state, seq, b) else 0) for b in BLOCKS)
        and all(state.pins[b] == start.pins[b] and state.filler[b] == start.filler[b] for b in BLOCKS)
        and other_tables_are_kept(start, state, seq)
    )


@contract(
    "conservation",
    drop_last,
    precondition=free_precondition,
    variant=free_variant,
    loop_invariant=free_invariant,
)
@predicate
def free_gives_back_what_nobody_else_uses(start: State, state: State, seq: SeqId) -> bool:
    """Freeing gives back exactly the blocks that no other sequence holds and that nothing in flight uses."""
    return all(
        (state.status[b] != USED and start.status[b] == USED)
        == (holds(start, seq, b) and start.refcount[b] == 1 and not is_pending(start, b))
        for b in BLOCKS
    ) and other_tables_are_kept(start, state, seq)
