"""The abstraction: which state of the specification the arrays of the block manager represent.

For a manager without a prefix cache, at rest and with nothing in flight; the device is the GPU:

    refcounts[b]      refcount[b]; 1 for a RESERVED block, which is the null block
    free_ids[k]       the free list from its end: member[GPU][FREE][count - 1 - k]; the left end was freed last
    len(free_ids)     count[GPU][FREE]
    null_id           the RESERVED block of the GPU, or -1
    table.ids[i]      table[seq][i], for as many entries as num_blocks[seq]
    table.num_tokens  num_full[seq] * BLOCK_SIZE + num_filled[seq]
    table.num_dropped first[seq]
    table.is_on_host  home[seq] == HOST

Of every other attribute nothing is known (`unbounded.forget`), and a call must leave it as it is.

With a prefix cache, the evictor also has the EVICTABLE blocks of the pool (`cached_steps`).

The arrays are a function of the state. So if the arrays represent a state that satisfies the invariants, and a step
ends in arrays that represent the state after the rule, then they represent a state that satisfies the invariants again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import z3

from kvproof.impl.block_manager import SelfAttnBlockSpaceManager
from kvproof.impl.cached_blocks import CachedBlocks
from kvproof.impl.device_blocks import NO_NULL_BLOCK, DeviceBlocks
from kvproof.impl.growth import Growth
from kvproof.impl.table import Table
from kvproof.impl.vllm_api.refcount import CopyOnWriteTracker, RefCounter
from kvproof.models.concolic.symbolic import SymbolicBool, SymbolicInt, number, truth
from kvproof.models.refinement.unbounded import Cells, Interval, Ring, class_with_length, forget
from kvproof.models.translation.maps import SymbolicState
from kvproof.models.translation.sizes import Universe
from kvproof.models.translation.terms import every
from kvproof.spec.language import BLOCKS, SEQS
from kvproof.spec.text.state import FREE, GPU, HOST, NONE, RESERVED

NULL_ID = z3.Int("null_id")
OF_A_DEVICE = ("ids", "refcounts", "free_ids", "null_id")  # the attributes that the relation names

Agreement = tuple[str, str, z3.BoolRef]  # a sentence, its property, and the formula
NO_PREFIX_CACHE = "no prefix cache"


@dataclass(frozen=True)
class Code:
    """The classes that the proofs are about. A test replaces one by a faulty class, to see a proof fail."""

    device: type = DeviceBlocks
    cached: type = CachedBlocks
    table: type = Table
    growth: type = Growth
    manager: type = SelfAttnBlockSpaceManager
    counter: type = RefCounter
    tracker: type = CopyOnWriteTracker


@dataclass(frozen=True)
class Abstraction:
    """The abstraction for given sizes; for the proofs they are unknown."""

    universe: Universe
    code: Code

    def size(self, name: str) -> z3.ArithRef:
        return as_number(self.universe.numbers[name])

    def read(self, state: SymbolicState, field: str, *indexes: z3.ArithRef | int) -> z3.ArithRef:
        return as_number(state.maps[field].read(*indexes))

    def refcount(self, state: SymbolicState, block: z3.ArithRef) -> z3.ArithRef:
        is_null = self.read(state, "status", block) == RESERVED
        found: z3.ArithRef = z3.If(is_null, z3.IntVal(1), self.read(state, "refcount", block))
        return found

    def num_free(self, state: SymbolicState, pool: int = GPU) -> z3.ArithRef:
        return self.read(state, "count", pool, FREE)

    def free(self, state: SymbolicState, place: z3.ArithRef, pool: int = GPU) -> z3.ArithRef:
        """The item of `free_ids` at an index."""
        return self.read(state, "member", pool, FREE, self.num_free(state, pool) - 1 - place)

    def num_tokens(self, state: SymbolicState, seq: z3.ArithRef) -> z3.ArithRef:
        """The value of `num_tokens` for a table."""
        return self.read(state, "num_full", seq) * self.size("BLOCK_SIZE") + self.read(state, "num_filled", seq)

    # The objects of a state ------------------------------------------------------------------------------------------

    def host(self, state: SymbolicState, gpu: Any) -> Any:
        """The host's `DeviceBlocks`, beside those of the GPU: they have one list of counts."""
        blocks = class_with_length(self.code.device)("the host", [], [])
        blocks.ids = Interval(self.size("NUM_GPU_BLOCKS"), self.size("NUM_BLOCKS"))
        blocks.refcounts = gpu.refcounts
        blocks.free_ids = Ring(self.num_free(state, HOST), lambda place: self.free(state, place, HOST))
        blocks.null_id = NO_NULL_BLOCK
        forget(blocks, OF_A_DEVICE)
        return blocks

    def device(self, state: SymbolicState, kind: type | None = None, *arguments: Any) -> Any:
        """The GPU's `DeviceBlocks`, or an object of a subclass `kind`, made with these arguments."""
        blocks = class_with_length(kind or self.code.device)(*(arguments or ("the GPU", [], [])))
        blocks.ids = Interval(z3.IntVal(0), self.size("NUM_GPU_BLOCKS"))
        blocks.refcounts = Cells(self.size("NUM_BLOCKS"), lambda block: self.refcount(state, block))
        blocks.free_ids = Ring(self.num_free(state), lambda place: self.free(state, place))
        blocks.null_id = SymbolicInt(NULL_ID)
        forget(blocks, OF_A_DEVICE)
        return blocks

    def table(self, state: SymbolicState, seq: z3.ArithRef) -> Any:
        table = class_with_length(self.code.table)([], 0)
        forget(table, ())
        table.ids = Cells(self.read(state, "num_blocks", seq), lambda index: self.read(state, "table", seq, index))
        table.num_tokens = SymbolicInt(self.num_tokens(state, seq))
        table.num_dropped = SymbolicInt(self.read(state, "first", seq))
        table.is_on_host = SymbolicBool(self.read(state, "home", seq) == HOST)
        return table

    # Agreement of the objects with a state ---------------------------------------------------------------------------

    def device_agrees(self, blocks: Any, state: SymbolicState, pool: int = GPU) -> Iterator[Agreement]:
        """The conditions for the device of a pool to represent the state."""
        block, place = z3.Int("some_block"), z3.Int("some_place")
        is_block = z3.And(block >= 0, block < self.size("NUM_BLOCKS"))
        counted = blocks.refcounts.read(block) == self.refcount(state, block)
        yield "the refcounts are those of the rule", "refcount-exact", z3.Implies(is_block, counted)
        length = blocks.free_ids.length.term
        yield "as many blocks are free as after the rule", "lists-agree", length == self.num_free(state, pool)
        is_place = z3.And(place >= 0, place < length)
        listed = blocks.free_ids.read(place) == self.free(state, place, pool)
        yield "the same blocks are free, in the same order", "lists-agree", z3.Implies(is_place, listed)

    def table_agrees(self, table: Table, state: SymbolicState, seq: z3.ArithRef) -> Iterator[Agreement]:
        """The conditions for the table to represent that of the sequence."""
        ids: Any = table.ids
        index = z3.Int("some_index")
        num_blocks = self.read(state, "num_blocks", seq)
        yield "the table is as long as after the rule", "lists-agree", ids.length.term == num_blocks
        is_index = z3.And(index >= 0, index < num_blocks)
        same = ids.read(index) == self.read(state, "table", seq, index)
        yield "the table names the same blocks", "no-use-after-free", z3.Implies(is_index, same)
        known = number(table.num_tokens) == self.num_tokens(state, seq)
        yield "as many tokens have slots as after the rule", "read-back", known
        dropped = number(table.num_dropped) == self.read(state, "first", seq)
        yield "the sliding window has left the same entries", "window-kept", dropped
        is_on_host = truth(table.is_on_host) == (self.read(state, "home", seq) == HOST)
        yield "its blocks are in the same pool", "swap-mapping", is_on_host

    def null_block(self, state: SymbolicState) -> z3.BoolRef:
        """The relation of `null_id` to the state."""

        def is_reserved(block: z3.ArithRef) -> z3.BoolRef:
            in_pool = z3.And(block >= 0, block < self.size("NUM_GPU_BLOCKS"))
            return z3.And(in_pool, self.read(state, "status", block) == RESERVED)

        only = self.for_blocks(lambda block: z3.Implies(is_reserved(block), block == NULL_ID))
        return z3.And(z3.Or(NULL_ID == NO_NULL_BLOCK, is_reserved(NULL_ID)), only)

    def nothing_else(self, state: SymbolicState) -> Iterator[tuple[str, z3.BoolRef]]:
        """Assumptions about the state in addition to the invariants: one null block, no prefix cache, no flight."""
        yield "the null block is the only reserved one", self.null_block(state)
        cached, computed = state.maps["cached"], state.maps["computed"]
        yield (
            NO_PREFIX_CACHE,
            self.for_blocks(lambda block: z3.Not(z3.Or(as_truth(cached.read(block)), as_truth(computed.read(block))))),
        )
        is_still = lambda b: z3.And(self.read(state, "pins", b) == 0, self.read(state, "filler", b) == NONE)  # noqa: E731
        yield "nothing in flight", self.for_blocks(is_still)

    def fits(self, state: SymbolicState) -> Iterator[tuple[str, z3.BoolRef]]:
        """An assumption in a small instance, where tables are finite: every table has room for one more entry."""
        seqs = self.universe.members(SEQS)
        if seqs is not None:
            room = self.size("NUM_INDEXES")
            yield "tables fit", every(self.read(state, "num_blocks", seq) < room for seq in seqs)

    def for_blocks(self, holds: Callable[[z3.ArithRef], z3.BoolRef]) -> z3.BoolRef:
        """The formula that `holds` is true of every block."""
        known = self.universe.members(BLOCKS)
        if known is not None:
            return every(holds(z3.IntVal(block)) for block in known)
        block = z3.Int("any_block")
        return z3.ForAll([block], holds(block))


def as_number(term: object) -> z3.ArithRef:
    found = z3.IntVal(term) if isinstance(term, int) else term
    assert isinstance(found, z3.ArithRef)
    return found


def as_truth(term: object) -> z3.BoolRef:
    found = z3.BoolVal(term) if isinstance(term, bool) else term
    assert isinstance(found, z3.BoolRef)
    return found
