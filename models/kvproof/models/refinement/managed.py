"""A block manager of any state, without a prefix cache: its objects, and when they represent a state.

A manager represents a state if its two devices do, and its `tables` have a table of exactly each live sequence, at
rest. Of the tables of other sequences nothing is known, and no call may ask for them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.models.concolic.refusal import Opaque
from kvproof.models.concolic.symbolic import SymbolicBool, SymbolicInt, number
from kvproof.models.obligation import Hypothesis
from kvproof.models.refinement.abstraction import Agreement, as_truth
from kvproof.models.refinement.device_steps import LISTS
from kvproof.models.refinement.dictionaries import Dictionary, UnknownSet
from kvproof.models.refinement.replay import LENGTH_MAX
from kvproof.models.refinement.setting import Setting
from kvproof.models.refinement.unbounded import class_with_length, forget
from kvproof.models.translation.maps import SymbolicState
from kvproof.spec.text.state import FREE, GPU, HOST, NONE

NAME = "SelfAttnBlockSpaceManager"
OF_A_MANAGER = ("_gpu", "_host", "_cache", "tables", "_ids", "_landed")  # the attributes that the relation names
CHANGES = (*LISTS, f"{NAME}.tables", f"{NAME}._ids", f"{NAME}._landed")
POOLS = {GPU: "the GPU", HOST: "the host"}
CHILD = z3.Int("given_child")


@dataclass(frozen=True)
class Managed:
    """A manager of any state, the table of the sequence, and what there was before the call."""

    setting: Setting
    pool: int
    manager: Any
    table: Any
    seq: Any
    child: Any

    @classmethod
    def of(cls, setting: Setting, pool: int, asks_none: bool = False) -> "Managed":
        """The manager of the state before. asks_none: the call reads what may be None, so each case has its paths."""
        abstraction, before = setting.abstraction, setting.before
        manager = class_with_length(setting.code.manager)(1, 0, 0)
        manager._gpu = abstraction.device(before)
        manager._host = abstraction.host(before, manager._gpu)
        table = abstraction.table(before, setting.seq)
        table.is_on_host = SymbolicBool(z3.BoolVal(pool == HOST))  # its pool is known
        for name in ("extra", "block_extra") if asks_none else ():
            is_none = bool(SymbolicBool(z3.Bool(f"{name}_is_none")))
            setattr(table, name, None if is_none else Opaque(f"Table.{name}"))
        manager.tables = Dictionary(lambda key: is_live(setting, key), (setting.seq, table))
        manager._ids = Dictionary(lambda key: is_live(setting, key), (setting.seq, table.ids))
        manager._landed = UnknownSet()
        forget(manager, OF_A_MANAGER)
        named = (SimpleNamespace(seq_id=SymbolicInt(one), data=Opaque("data")) for one in (setting.seq, CHILD))
        return cls(setting, pool, manager, table, *named)

    @property
    def others(self) -> tuple[Any, ...]:
        """The objects that a call can reach beyond the manager."""
        return self.manager._gpu, self.manager._host, self.table, self.seq, self.child

    @property
    def device(self) -> Any:
        """The device of the table."""
        return self.manager._gpu if self.pool == GPU else self.manager._host

    def unchanged(self, num_unmarked: Any) -> Iterator[Agreement]:
        """The claims that the manager is as it was."""
        manager, before = self.manager, self.setting.before
        yield from self.devices_agree(before)
        yield from self.setting.abstraction.table_agrees(self.table, before, self.setting.seq)
        kept = not manager.tables.written and not manager._ids.written and not manager._landed.is_emptied
        yield "no table comes or goes, and no id", "frame-kept", z3.BoolVal(kept)
        yield from self.frame(num_unmarked, z3.IntVal(0))

    def frame(self, num_unmarked: Any, change: z3.ArithRef) -> Iterator[Agreement]:
        """The claim about the count of full blocks that are not known to be computed."""
        counted = number(self.manager._num_unmarked) == number(num_unmarked) + change
        yield "full blocks that are not computed are counted", "frame-kept", counted

    def devices_agree(self, state: SymbolicState, *pools: int) -> Iterator[Agreement]:
        """The claims that devices represent a state; both, if no pool is given."""
        for pool in pools or POOLS:
            device = self.manager._gpu if pool == GPU else self.manager._host
            for sentence, property, formula in self.setting.abstraction.device_agrees(device, state, pool):
                yield f"{sentence}, on {POOLS[pool]}", property, formula

    def has_tables_of(self, state: SymbolicState) -> Iterator[Agreement]:
        """The claims that exactly each live sequence has a table."""
        key = z3.Int("some_key")
        for name in ("tables", "_ids"):
            found = getattr(self.manager, name).has(key) == is_live(self.setting, key, state)
            yield f"{name} has exactly the live sequences", "frame-kept", found


def is_live(setting: Setting, key: z3.ArithRef, state: SymbolicState | None = None) -> z3.BoolRef:
    """Whether a number is the id of a live sequence."""
    is_seq = z3.And(key >= 0, key < setting.abstraction.size("NUM_SEQS"))
    return z3.And(is_seq, as_truth((state or setting.before).maps["live"].read(key)))


def known(setting: Setting, pool: int) -> tuple[Hypothesis, ...]:
    """What is assumed of the state, and of the sequence, which may be live or not."""
    at_rest = z3.Implies(is_live(setting, setting.seq), setting.spec_function("at_rest", setting.seq))
    return (
        *setting.assumed,
        setting.is_seq,
        Hypothesis("no swap and no end of the sequence is under way", at_rest),
        Hypothesis(f"its pool is {POOLS[pool]}", setting.read("home", setting.seq) == pool),
    )


def small(setting: Setting, pool: int) -> tuple[z3.BoolRef, ...]:
    """What the invariants say of a small table and a small free list, for a replay."""
    seq, size = setting.seq, setting.abstraction.size("NUM_BLOCKS")
    first, num_blocks = setting.read("first", seq), setting.read("num_blocks", seq)
    facts = [z3.And(first >= 0, first < num_blocks, num_blocks <= LENGTH_MAX, size <= LENGTH_MAX)]
    facts += [one.formula for one in setting.assumed if one.name.startswith("sizes")]
    is_at_rest = known(setting, pool)[-2].formula
    facts += [is_at_rest, setting.read("home", seq) == pool, setting.is_seq.formula]
    facts.append(z3.And(setting.abstraction.size("NUM_SEQS") <= LENGTH_MAX, z3.Not(is_live(setting, z3.IntVal(-1)))))
    num_free = setting.abstraction.num_free(setting.before, pool)
    for number_ in map(z3.IntVal, range(LENGTH_MAX)):
        block, at = setting.read("table", seq, number_), setting.read("position", seq, number_)
        is_entry = z3.And(first <= number_, number_ < num_blocks)
        named = z3.And(in_pool(setting, block, pool), setting.read("position", seq, block) == number_)
        facts.append(z3.Implies(is_entry, z3.And(named, setting.read("refcount", block) > 0)))
        is_there = z3.And(first <= at, at < num_blocks, setting.read("table", seq, at) == number_)
        facts.append(z3.Or(at == NONE, is_there))
        listed = setting.read("member", pool, FREE, number_)
        is_free = z3.And(in_pool(setting, listed, pool), setting.abstraction.refcount(setting.before, listed) == 0)
        placed = z3.And(is_free, setting.read("place", listed) == number_)
        facts.append(z3.Implies(number_ < num_free, placed))
        is_unused = z3.And(in_pool(setting, number_, pool), setting.abstraction.refcount(setting.before, number_) == 0)
        place = setting.read("place", number_)
        is_listed = z3.And(place >= 0, place < num_free, setting.read("member", pool, FREE, place) == number_)
        facts.append(z3.Implies(is_unused, is_listed))
        facts.append(setting.abstraction.refcount(setting.before, number_) >= 0)
    return tuple(facts)


def in_pool(setting: Setting, block: z3.ArithRef, pool: int) -> z3.BoolRef:
    """Whether a number is the id of a block of the pool."""
    gpu, end = setting.abstraction.size("NUM_GPU_BLOCKS"), setting.abstraction.size("NUM_BLOCKS")
    return z3.And(block >= 0, block < gpu) if pool == GPU else z3.And(block >= gpu, block < end)


def is_block(setting: Setting, block: z3.ArithRef) -> z3.BoolRef:
    """Whether a number is the id of a block."""
    return z3.And(block >= 0, block < setting.abstraction.size("NUM_BLOCKS"))


def is_among(setting: Setting, block: z3.ArithRef, start: z3.ArithRef, stop: z3.ArithRef) -> z3.BoolRef:
    """Whether the block is named by an entry from `start` up to `stop`."""
    at = setting.read("position", setting.seq, block)
    return z3.And(start <= at, at < stop, at != NONE)
