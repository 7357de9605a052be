"""`BlockManager.fork` refines `fork` without a prefix cache, or changes nothing.

The blocks of the parent's table are shared in a loop that is cut (`cuts`).
"""

from collections.abc import Iterator
from typing import Any

import z3

from kvproof.impl.block_manager import SelfAttnBlockSpaceManager
from kvproof.impl.errors import DuplicateSequenceError
from kvproof.models.concolic.frame import is_same
from kvproof.models.concolic.scenario import Outcome
from kvproof.models.concolic.symbolic import both, number, truth
from kvproof.models.obligation import WELL_DEFINED, Hypothesis
from kvproof.models.refinement.abstraction import Agreement, as_truth
from kvproof.models.refinement.cuts import Clause, Loop, Moment
from kvproof.models.refinement.managed import (
    CHANGES,
    CHILD,
    NAME,
    POOLS,
    Managed,
    is_among,
    is_block,
    is_live,
    known,
    small,
)
from kvproof.models.refinement.setting import Setting
from kvproof.models.refinement.simulation import Call, Simulation
from kvproof.models.refinement.table_steps import OF_THE_CACHE


def simulations(setting: Setting) -> Iterator[Simulation]:
    """A fork of a sequence on the GPU, and of one on the host."""
    yield from (_forking(setting, pool) for pool in POOLS)


def _share_loop(setting: Setting, device: Any) -> Loop:
    first = setting.read("first", setting.seq)

    def so_far(now: Moment) -> Iterator[Clause]:
        as_long = now.length("counts") == setting.abstraction.size("NUM_BLOCKS")
        yield Clause("each block has a count", "refcount-exact", lambda _: as_long)

        def count(block: z3.ArithRef) -> z3.BoolRef:
            more = z3.If(is_among(setting, block, first, first + now.done), z3.IntVal(1), z3.IntVal(0))
            counted = now.read("counts", block) == setting.abstraction.refcount(setting.before, block) + more
            return z3.Implies(is_block(setting, block), counted)

        yield Clause("each block so far has one reference more, and no other", "refcount-exact", count)

    return Loop("DeviceBlocks.share", so_far, {"counts": device.refcounts})


def _forking(setting: Setting, pool: int) -> Simulation:
    seq = setting.seq

    def start() -> Call:
        managed = Managed.of(setting, pool, asks_none=True)
        manager, table = managed.manager, managed.table
        num_unmarked = manager._num_unmarked
        of_table = table.contents.length.term - number(table.num_marked_blocks)
        writable = table.writable_slots

        def claims(outcome: Outcome) -> Iterator[Agreement]:
            yield "nothing is returned", "frame-kept", z3.BoolVal(outcome.value is None)
            if outcome.error is not None or not manager.tables.written:
                is_refused = is_live(setting, CHILD)
                if outcome.error is None:
                    yield (
                        "the parent has no table, and the child neither",
                        "total-calls",
                        z3.Not(z3.Or(is_live(setting, seq), is_refused)),
                    )
                else:
                    yield "the child has a table already", "total-calls", is_refused
                yield from managed.unchanged(num_unmarked)
                same = number(table.writable_slots) == number(writable)
                yield "as many slots are written unseen as before", "exclusive-writer", same
                return
            yield from _forked(managed, of_table, num_unmarked)

        replaced = (f"{NAME}._num_unmarked", "Table.writable_slots")
        loops, few = (_share_loop(setting, managed.device),), small(setting, pool)
        arguments = (managed.seq, managed.child)
        return Call(manager, "fork", claims, arguments, CHANGES, replaced, managed.others, loops, few)

    is_child = Hypothesis("parameter child", z3.And(CHILD >= 0, CHILD < setting.abstraction.size("NUM_SEQS")))
    subject = f"BlockManager.fork refines fork of a table on {POOLS[pool]}"
    assumed = (*known(setting, pool), is_child)
    return Simulation(subject, SelfAttnBlockSpaceManager.fork, assumed, start, (DuplicateSequenceError,))


def _forked(managed: Managed, of_table: z3.ArithRef, num_unmarked: Any) -> Iterator[Agreement]:
    """The claims after a fork."""
    setting, manager, table = managed.setting, managed.manager, managed.table
    ran = setting.translator.run("fork", setting.before, setting.seq, CHILD)
    for guard in ran.guards:
        yield f"the guard holds: {guard.text}", guard.property or WELL_DEFINED, as_truth(guard.formula)
    yield from managed.has_tables_of(ran.state)
    yield from managed.devices_agree(ran.state)
    (at, child), *others = manager.tables.written
    (at_ids, ids), *other_ids = manager._ids.written
    is_one = not others and not other_ids and child is not table and ids is child.ids and ids is not table.ids
    yield "the child gets one table of its own, and its ids", "frame-kept", z3.BoolVal(is_one)
    yield "it is found by the child's id", "frame-kept", z3.And(at == CHILD, at_ids == CHILD)
    yield from setting.abstraction.table_agrees(child, ran.state, CHILD)
    for sentence, property, formula in setting.abstraction.table_agrees(table, ran.state, setting.seq):
        yield f"{sentence}, for the parent", property, formula
    unseen = z3.And(number(table.writable_slots) == 0, number(child.writable_slots) == 0)
    yield "neither writes unseen", "exclusive-writer", unseen
    same = both(is_same(getattr(table, name), getattr(child, name)) for name in OF_THE_CACHE)
    yield "the child knows of the cache what its parent knows", "frame-kept", truth(same)
    own = z3.BoolVal(child.contents is not table.contents)
    contents = z3.And(own, truth(child.contents.has_content(table.contents.content())))
    yield "the child has a list of its own, of the same contents", "frame-kept", contents
    yield "no target of a swap is held back any more", "frame-kept", z3.BoolVal(manager._landed.is_emptied)
    yield from managed.frame(num_unmarked, of_table)
