"""Appending within one block, and forking a table, refine the rules `append`, `reserve` and `fork`.

`append_within_block` is the path of almost every append of one token, with its copy-on-write. It refines `append` if
tokens become known, and `reserve` if only slots are added. `Growth.append`, for longer appends, is not covered.
A table is forked wherever its blocks are, with or without a prefix cache. Its blocks are shared one entry after
another: after k entries the refcounts are those of the rule for the first k; what is proved is the step from k to
k + 1.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import z3

from kvproof.impl.device_blocks import DeviceBlocks
from kvproof.impl.errors import NoFreeBlocksError
from kvproof.impl.growth import Growth
from kvproof.impl.table import Table
from kvproof.models.concolic.frame import is_same
from kvproof.models.concolic.scenario import Outcome
from kvproof.models.concolic.symbolic import SymbolicInt, both, number, truth
from kvproof.models.obligation import WELL_DEFINED, Hypothesis
from kvproof.models.refinement.abstraction import Agreement, as_truth
from kvproof.models.refinement.device_steps import LISTS, each_block
from kvproof.models.refinement.setting import Setting
from kvproof.models.refinement.simulation import Call, Simulation
from kvproof.models.refinement.unbounded import class_with_length, forget
from kvproof.models.translation.maps import Map, SymbolicState
from kvproof.spec.language import SLOTS

# Whether a block is taken, whether it is a copy, its source, the block -> what else is true then.
FrameClaims = Callable[[z3.BoolRef, z3.BoolRef, z3.ArithRef, z3.ArithRef], Iterator[Agreement]]


KNOWN, END = z3.Ints("known end")  # the tokens that are known after an append, and the end of its slots


class Device(Protocol):
    """A kind of device that a table grows on: how it represents a state, and what an append changes in it."""

    @property
    def changes(self) -> tuple[str, ...]: ...
    def made(self, setting: Setting) -> Any: ...
    def assumed(self, setting: Setting) -> tuple[Hypothesis, ...]: ...
    def agrees(self, setting: Setting, device: Any, state: SymbolicState) -> Iterator[Agreement]: ...
    def frame(self, device: Any) -> FrameClaims: ...


class UncachedDevice:
    """A device without a prefix cache."""

    changes = LISTS

    def made(self, setting: Setting) -> Any:
        return setting.abstraction.device(setting.before)

    def assumed(self, setting: Setting) -> tuple[Hypothesis, ...]:
        return setting.assumed

    def agrees(self, setting: Setting, device: Any, state: SymbolicState) -> Iterator[Agreement]:
        return setting.abstraction.device_agrees(device, state)

    def frame(self, device: Any) -> FrameClaims:
        """Nothing more is noted of a block that is taken or copied."""
        return lambda *_: iter(())


UNCACHED = UncachedDevice()


def simulations(setting: Setting) -> Iterator[Simulation]:
    """The functions about one table that refine a rule."""
    yield _dividing(setting)
    yield appending(setting)
    yield _reserving(setting)
    yield _holding(setting)
    yield _forking(setting)
    yield _sharing_next(setting)
    yield _sharing_all(setting)


def _division(setting: Setting) -> z3.BoolRef:
    """The number of tokens, divided by the block size, is the number of full blocks."""
    num_tokens = setting.abstraction.num_tokens(setting.before, setting.seq)
    return num_tokens / setting.abstraction.size("BLOCK_SIZE") == setting.read("num_full", setting.seq)


def _dividing(setting: Setting) -> Simulation:
    def claims(_: Outcome) -> Iterator[Agreement]:
        yield "the entry to write is the one after the full ones", WELL_DEFINED, _division(setting)

    ordered = [one for one in setting.assumed if one.name in ("lengths_are_ordered",) or one.name.startswith("sizes")]
    start = lambda: Call(None, "", claims)  # noqa: E731
    return Simulation("the entry that num_tokens names", Table.__init__, (*ordered, setting.is_seq), start)


@dataclass(frozen=True)
class Appended:
    """A call of `append_within_block`, and what is claimed of it.

    rule, arguments: what it simulates. writable_before: the slots that the table might write unseen before the call.
    """

    setting: Setting
    device_of: Device
    rule: str
    arguments: tuple[Any, ...]
    device: Any
    table: Any
    writable_before: Any
    taken: FrameClaims

    @classmethod
    def call(cls, setting: Setting, device_of: Device, rule: str, arguments: tuple[Any, ...]) -> Call:
        """The call, for any number of known tokens and any end."""
        device, table = device_of.made(setting), setting.abstraction.table(setting.before, setting.seq)
        growth = class_with_length(setting.code.growth)(
            device, SymbolicInt(setting.abstraction.size("BLOCK_SIZE")), None
        )
        forget(growth, ("blocks", "block_size", "cache"))
        taken = device_of.frame(device)
        made = cls(setting, device_of, rule, arguments, device, table, table.writable_slots, taken)
        return Call(
            growth,
            "append_within_block",
            made.claims,
            (table, SymbolicInt(KNOWN), SymbolicInt(END)),
            (*device_of.changes, "Table.ids"),
            ("Table.num_tokens", "Table.writable_slots"),
            (device, table),
        )

    @property
    def index(self) -> z3.ArithRef:
        """The entry that is written."""
        return self.setting.read("num_full", self.setting.seq)

    @property
    def old(self) -> z3.ArithRef:
        """The block of that entry before the call, if the table has one."""
        return self.setting.read("table", self.setting.seq, self.index)

    @property
    def is_new(self) -> z3.BoolRef:
        """Whether the entry is a new one."""
        return self.index == self.setting.read("num_blocks", self.setting.seq)

    @property
    def is_shared(self) -> z3.BoolRef:
        """Whether others hold the block of the entry."""
        return z3.And(z3.Not(self.is_new), self.setting.read("refcount", self.old) > 1)

    @property
    def block(self) -> z3.ArithRef:
        """The block of the entry after the call."""
        first_free = self.setting.abstraction.free(self.setting.before, z3.IntVal(0))
        found: z3.ArithRef = z3.If(z3.Or(self.is_new, self.is_shared), first_free, self.old)
        return found

    def claims(self, outcome: Outcome) -> Iterator[Agreement]:
        if outcome.error is not None:
            yield "a block is needed, and none is free", "no-use-after-free", self.setting.no_free_block()
            yield from self._unchanged()
        elif outcome.value is None:
            fits = END <= (self.index + 1) * self.setting.abstraction.size("BLOCK_SIZE")
            yield "without an answer, the slots do not fit into the block", "read-back", z3.Not(fits)
            yield from self._unchanged()
        else:
            yield from self._as_the_rule(outcome.value)

    def _unchanged(self) -> Iterator[Agreement]:
        before = self.setting.before
        yield from self.device_of.agrees(self.setting, self.device, before)
        yield from self.taken(z3.BoolVal(False), z3.BoolVal(False), self.old, self.block)
        yield from self.setting.abstraction.table_agrees(self.table, before, self.setting.seq)
        same = number(self.table.writable_slots) == number(self.writable_before)
        yield "as many slots are written unseen as before", "exclusive-writer", same

    def _as_the_rule(self, pairs: Any) -> Iterator[Agreement]:
        """The claims about a call that returns the pairs of blocks to copy."""
        setting, abstraction, seq = self.setting, self.setting.abstraction, self.setting.seq
        ran = setting.translator.run(self.rule, setting.before, seq, self.block, *self.arguments)
        for guard in ran.guards:
            yield f"the guard holds: {guard.text}", guard.property or WELL_DEFINED, as_truth(guard.formula)
        yield from self.device_of.agrees(setting, self.device, ran.state)
        yield from self.taken(z3.Or(self.is_new, self.is_shared), self.is_shared, self.old, self.block)
        yield from abstraction.table_agrees(self.table, ran.state, seq)
        as_the_rule = self.is_shared == z3.BoolVal(bool(pairs)) if len(pairs) <= 1 else z3.BoolVal(False)
        yield "a copy is asked for exactly if the rule copies", "cow-copied", as_the_rule
        for source, target in pairs:
            named = z3.And(number(source) == self.old, number(target) == self.block)
            yield "it is from the shared block to the new one", "cow-copied", named
        alone = abstraction.refcount(ran.state, abstraction.read(ran.state, "table", seq, self.index)) == 1
        writable = number(self.table.writable_slots) == (self.index + 1) * abstraction.size("BLOCK_SIZE")
        yield "only this table holds what it may write unseen", "exclusive-writer", z3.And(alone, writable)


def within_block(
    setting: Setting,
    subject: str,
    known: tuple[Hypothesis, ...],
    rule: str,
    arguments: tuple[Any, ...] = (),
    device_of: Device = UNCACHED,
) -> Simulation:
    """`append_within_block` simulates a rule, for the calls that satisfy `known`, with a device of some kind."""
    hypotheses = (
        *device_of.assumed(setting),
        setting.is_seq,
        setting.is_on_gpu,
        Hypothesis("the entry that num_tokens names", _division(setting)),
        *known,
    )
    start = partial(Appended.call, setting, device_of, rule, arguments)
    return Simulation(subject, Growth.append_within_block, hypotheses, start, (NoFreeBlocksError,))


def appending(
    setting: Setting, subject: str = "Growth.append_within_block refines append", device_of: Device = UNCACHED
) -> Simulation:
    """`append_within_block` where tokens become known."""
    seen = setting.abstraction.num_tokens(setting.before, setting.seq)
    row = Map((SLOTS,), z3.Function("given_row", z3.IntSort(), z3.IntSort()))
    index = setting.read("num_full", setting.seq)
    stop = KNOWN - index * setting.abstraction.size("BLOCK_SIZE")
    new = Hypothesis("tokens become known", z3.And(seen < KNOWN, KNOWN <= END))
    return within_block(setting, subject, (new,), "append", (row, stop), device_of)


def _reserving(setting: Setting) -> Simulation:
    seen = setting.abstraction.num_tokens(setting.before, setting.seq)
    is_new = setting.read("num_full", setting.seq) == setting.read("num_blocks", setting.seq)
    only = z3.And(KNOWN == seen, seen < END, is_new)
    subject = "Growth.append_within_block refines reserve"
    return within_block(setting, subject, (Hypothesis("only slots are added, in a new block", only),), "reserve")


# Forking -------------------------------------------------------------------------------------------------------------


def _holding(setting: Setting) -> Simulation:
    before, seq = setting.before, setting.seq

    def start() -> Call:
        table = setting.abstraction.table(before, seq)

        def claims(outcome: Outcome) -> Iterator[Agreement]:
            place = z3.Int("some_place")
            first, num_blocks = setting.read("first", seq), setting.read("num_blocks", seq)
            yield "as many as the table names", "refcount-exact", outcome.value.length.term == num_blocks - first
            is_place = z3.And(place >= 0, place < num_blocks - first)
            named = outcome.value.read(place) == setting.read("table", seq, first + place)
            yield "each block the table names", "refcount-exact", z3.Implies(is_place, named)

        return Call(table, "held_ids", claims)

    known = (*setting.assumed, setting.is_seq)
    return Simulation("Table.held_ids is what the table holds", Table.held_ids, known, start)


def _child(setting: Setting) -> tuple[z3.ArithRef, Hypothesis]:
    child = z3.Int("given_child")
    is_seq = z3.And(child >= 0, child < setting.abstraction.size("NUM_SEQS"))
    is_dead = z3.Not(as_truth(setting.before.maps["live"].read(child)))
    return child, Hypothesis("the child does not exist", z3.And(is_seq, is_dead))


OF_THE_CACHE = ("quiet_tokens", "extra", "block_extra", "num_hit_blocks", "num_marked_blocks", "last_accessed")


def _forking(setting: Setting) -> Simulation:
    child, is_free = _child(setting)

    def start() -> Call:
        table = setting.abstraction.table(setting.before, setting.seq)

        def claims(outcome: Outcome) -> Iterator[Agreement]:
            after, forked = setting.after("fork", setting.seq, child), outcome.value
            yield from setting.abstraction.table_agrees(forked, after, child)
            for sentence, property, formula in setting.abstraction.table_agrees(table, after, setting.seq):
                yield f"{sentence}, for the parent", property, formula
            unseen = z3.And(number(table.writable_slots) == 0, number(forked.writable_slots) == 0)
            yield "neither writes unseen", "exclusive-writer", unseen
            yield "the parent's table is its own", "frame-kept", z3.BoolVal(forked.ids is not table.ids)
            same = both(is_same(getattr(table, name), getattr(forked, name)) for name in OF_THE_CACHE)
            yield "the child knows of the cache what its parent knows", "frame-kept", truth(same)
            own = forked.contents is not table.contents
            contents = z3.And(z3.BoolVal(own), truth(forked.contents.has_content(table.contents.content())))
            yield "the child has a list of its own, of the same contents", "frame-kept", contents

        return Call(table, "fork", claims, replaced=("Table.writable_slots",))

    at_rest = Hypothesis("the parent is at rest", setting.spec_function("at_rest", setting.seq))
    known = (*setting.assumed, setting.is_seq, at_rest, is_free)
    return Simulation("Table.fork refines fork", Table.fork, known, start)


def _shared_up_to(setting: Setting, stop: z3.ArithRef) -> SymbolicState:
    """The state before, with one more reference to each block that the table names before the entry `stop`."""
    before, seq = setting.before, setting.seq

    def refcount(block: Any) -> Any:
        at = setting.read("position", seq, block)
        is_shared = z3.And(setting.read("first", seq) <= at, at < stop)
        return setting.read("refcount", block) + z3.If(is_shared, z3.IntVal(1), z3.IntVal(0))

    return before.written("refcount", Map(before.maps["refcount"].domains, refcount))


def _sharing_next(setting: Setting) -> Simulation:
    seq, index = setting.seq, setting.index
    so_far, then = _shared_up_to(setting, index), _shared_up_to(setting, index + 1)
    named = Hypothesis("the table names a block there", setting.spec_function("has_entry", seq, index))
    known = (*setting.assumed, setting.is_seq, setting.is_on_gpu, named)
    subject, block = "DeviceBlocks.share of a table, entry by entry", setting.read("table", seq, index)
    return each_block(setting, subject, "share", so_far, lambda: then, known, block)


def _sharing_all(setting: Setting) -> Simulation:
    before, seq = setting.before, setting.seq
    child, is_free = _child(setting)

    def claims(_: Outcome) -> Iterator[Agreement]:
        none, all_of_it = (
            setting.abstraction.device(_shared_up_to(setting, setting.read(name, seq)))
            for name in ("first", "num_blocks")
        )
        for sentence, property, formula in setting.abstraction.device_agrees(none, before):
            yield f"before the first entry, {sentence}", property, formula
        after = setting.after("fork", seq, child)
        for sentence, property, formula in setting.abstraction.device_agrees(all_of_it, after):
            yield f"after the last entry, {sentence}", property, formula

    known = (*setting.assumed, setting.is_seq, setting.is_on_gpu, is_free)
    start = lambda: Call(None, "", claims)  # noqa: E731
    return Simulation("DeviceBlocks.share of a table refines fork", DeviceBlocks.share, known, start)
