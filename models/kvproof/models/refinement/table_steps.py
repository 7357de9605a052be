"""Appending within one block, and forking a table, refine the rules `append`, `reserve` and `fork`.

`append_within_block` is the path of almost every append of one token, with its copy-on-write. It refines `append` if
tokens become known, and `reserve` if only slots are added. `Growth.append`, for longer appends, is not covered.
Forking shares one entry after another: after k entries the refcounts are those of the rule for the first k; what is
proved is the step from k to k + 1.
"""

from collections.abc import Iterator
from typing import Any

import z3

from kvproof.impl.device_blocks import DeviceBlocks
from kvproof.impl.errors import NoFreeBlocksError
from kvproof.impl.growth import Growth
from kvproof.impl.table import Table
from kvproof.models.concolic.scenario import Outcome
from kvproof.models.concolic.symbolic import SymbolicInt, number
from kvproof.models.proofs.obligation import WELL_DEFINED, Hypothesis
from kvproof.models.refinement.abstraction import Agreement, as_truth
from kvproof.models.refinement.setting import Setting
from kvproof.models.refinement.simulation import Simulation
from kvproof.models.refinement.unbounded import class_with_length
from kvproof.models.translation.maps import Map, SymbolicState
from kvproof.spec.language import SLOTS


def simulations(setting: Setting) -> Iterator[Simulation]:
    """The functions about one table that refine a rule."""
    yield _dividing(setting)
    yield _appending(setting)
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
    seen = SymbolicInt(setting.abstraction.num_tokens(setting.before, setting.seq))

    def start() -> Any:
        table = setting.abstraction.table(setting.before, setting.seq)

        def claims(_: Outcome) -> Iterator[Agreement]:
            yield "the entry to write is the one after the full ones", WELL_DEFINED, _division(setting)

        return lambda: table.num_tokens == seen, claims

    ordered = [one for one in setting.assumed if one.name in ("lengths_are_ordered",) or one.name.startswith("sizes")]
    return Simulation("the entry that num_tokens names", Table.__init__, (*ordered, setting.is_seq), start)


def _within_block(setting: Setting, subject: str, known: Hypothesis, rule: str, *arguments: Any) -> Simulation:
    """`append_within_block` simulates a rule, for the calls that satisfy `known`."""
    before, abstraction, seq = setting.before, setting.abstraction, setting.seq
    size = abstraction.size("BLOCK_SIZE")
    num_known, end = z3.Ints("known end")
    index, num_blocks = setting.read("num_full", seq), setting.read("num_blocks", seq)
    old = setting.read("table", seq, index)
    is_new = index == num_blocks
    is_shared = z3.And(z3.Not(is_new), setting.read("refcount", old) > 1)
    block = z3.If(z3.Or(is_new, is_shared), abstraction.free(before, z3.IntVal(0)), old)

    def start() -> Any:
        device, table = abstraction.device(before), abstraction.table(before, seq)
        growth = class_with_length(setting.code.growth)(device, SymbolicInt(size), None)

        def unchanged() -> Iterator[Agreement]:
            yield from abstraction.device_agrees(device, before)
            yield from abstraction.table_agrees(table, before, seq)

        def claims(outcome: Outcome) -> Iterator[Agreement]:
            if outcome.error is not None:
                yield "a block is needed, and none is free", "no-use-after-free", setting.no_free_block()
                yield from unchanged()
                return
            if outcome.value is None:
                fits = end <= (index + 1) * size
                yield "without an answer, the slots do not fit into the block", "read-back", z3.Not(fits)
                yield from unchanged()
                return
            ran = setting.translator.run(rule, before, seq, block, *arguments)
            for guard in ran.guards:
                yield f"the guard holds: {guard.text}", guard.property or WELL_DEFINED, as_truth(guard.formula)
            yield from abstraction.device_agrees(device, ran.state)
            yield from abstraction.table_agrees(table, ran.state, seq)
            pairs = outcome.value
            yield "a copy is asked for exactly if the rule copies", "cow-copied", is_shared == z3.BoolVal(bool(pairs))
            for source, target in pairs:
                named = z3.And(number(source) == old, number(target) == block)
                yield "it is from the shared block to the new one", "cow-copied", named
            alone = abstraction.refcount(ran.state, abstraction.read(ran.state, "table", seq, index)) == 1
            writable = number(table.writable_slots) == (index + 1) * size
            yield "only this table holds what it may write unseen", "exclusive-writer", z3.And(alone, writable)

        return lambda: growth.append_within_block(table, SymbolicInt(num_known), SymbolicInt(end)), claims

    hypotheses = (
        *setting.assumed,
        setting.is_seq,
        setting.is_on_gpu,
        Hypothesis("the entry that num_tokens names", _division(setting)),
        known,
    )
    return Simulation(subject, Growth.append_within_block, hypotheses, start, (NoFreeBlocksError,))


def _appending(setting: Setting) -> Simulation:
    num_known, end = z3.Ints("known end")
    seen = setting.abstraction.num_tokens(setting.before, setting.seq)
    row = Map((SLOTS,), z3.Function("given_row", z3.IntSort(), z3.IntSort()))
    index = setting.read("num_full", setting.seq)
    stop = num_known - index * setting.abstraction.size("BLOCK_SIZE")
    new = Hypothesis("tokens become known", z3.And(seen < num_known, num_known <= end))
    subject = "Growth.append_within_block refines append"
    return _within_block(setting, subject, new, "append", row, stop)


def _reserving(setting: Setting) -> Simulation:
    num_known, end = z3.Ints("known end")
    seen = setting.abstraction.num_tokens(setting.before, setting.seq)
    is_new = setting.read("num_full", setting.seq) == setting.read("num_blocks", setting.seq)
    only = z3.And(num_known == seen, seen < end, is_new)
    subject = "Growth.append_within_block refines reserve"
    return _within_block(setting, subject, Hypothesis("only slots are added, in a new block", only), "reserve")


# Forking -------------------------------------------------------------------------------------------------------------


def _holding(setting: Setting) -> Simulation:
    before, seq = setting.before, setting.seq

    def start() -> Any:
        table = setting.abstraction.table(before, seq)

        def claims(outcome: Outcome) -> Iterator[Agreement]:
            place = z3.Int("some_place")
            first, num_blocks = setting.read("first", seq), setting.read("num_blocks", seq)
            yield "as many as the table names", "refcount-exact", outcome.value.length.term == num_blocks - first
            is_place = z3.And(place >= 0, place < num_blocks - first)
            named = outcome.value.read(place) == setting.read("table", seq, first + place)
            yield "each block the table names", "refcount-exact", z3.Implies(is_place, named)

        return table.held_ids, claims

    known = (*setting.assumed, setting.is_seq)
    return Simulation("Table.held_ids is what the table holds", Table.held_ids, known, start)


def _child(setting: Setting) -> tuple[z3.ArithRef, Hypothesis]:
    child = z3.Int("given_child")
    is_seq = z3.And(child >= 0, child < setting.abstraction.size("NUM_SEQS"))
    is_dead = z3.Not(as_truth(setting.before.maps["live"].read(child)))
    return child, Hypothesis("the child does not exist", z3.And(is_seq, is_dead))


def _forking(setting: Setting) -> Simulation:
    child, is_free = _child(setting)

    def start() -> Any:
        table = setting.abstraction.table(setting.before, setting.seq)
        writable: Any = SymbolicInt(z3.Int("writable"))
        table.writable_slots = writable

        def claims(outcome: Outcome) -> Iterator[Agreement]:
            after = setting.after("fork", setting.seq, child)
            yield from setting.abstraction.table_agrees(outcome.value, after, child)
            for sentence, property, formula in setting.abstraction.table_agrees(table, after, setting.seq):
                yield f"{sentence}, for the parent", property, formula
            unseen = z3.BoolVal(table.writable_slots == 0 and outcome.value.writable_slots == 0)
            yield "neither writes unseen", "exclusive-writer", unseen
            yield "the parent's table is its own", "frame-kept", z3.BoolVal(outcome.value.ids is not table.ids)

        return table.fork, claims

    known = (*setting.assumed, setting.is_seq, setting.is_on_gpu, is_free)
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

    def start() -> Any:
        device = setting.abstraction.device(so_far)
        block = SymbolicInt(setting.read("table", seq, index))
        return lambda: device.share((block,)), lambda _: setting.abstraction.device_agrees(device, then)

    named = Hypothesis("the table names a block there", setting.spec_function("has_entry", seq, index))
    known = (*setting.assumed, setting.is_seq, setting.is_on_gpu, named)
    return Simulation("DeviceBlocks.share of a table, entry by entry", DeviceBlocks.share, known, start)


def _sharing_all(setting: Setting) -> Simulation:
    before, seq = setting.before, setting.seq
    child, is_free = _child(setting)

    def start() -> Any:
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

        return lambda: None, claims

    known = (*setting.assumed, setting.is_seq, setting.is_on_gpu, is_free)
    return Simulation("DeviceBlocks.share of a table refines fork", DeviceBlocks.share, known, start)
