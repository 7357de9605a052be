"""`BlockManager.free` refines the end of a sequence, without a prefix cache, or changes nothing.

The operation is `begin_free`, `drop_last` for each entry, and `finish`. The blocks of a table are released in a loop
that is cut (`cuts`). The state after the last k entries are dropped is written down (`dropped_down_to`), and
`drop_last` is proved to lead from one to the next, in what the relation names.

The specification does not say in which order blocks become free. So after `free` the free list has exactly the FREE
blocks of the pool, each once; and the claims say in addition that those which were free keep their order, behind the
others, and that the entry that was released last is taken first.
"""

from collections.abc import Callable, Iterator
from typing import Any

import z3

from kvproof.impl.block_manager import SelfAttnBlockSpaceManager
from kvproof.models.concolic.scenario import Outcome
from kvproof.models.concolic.symbolic import number
from kvproof.models.obligation import WELL_DEFINED, Hypothesis
from kvproof.models.refinement.abstraction import Agreement, as_number, as_truth
from kvproof.models.refinement.cuts import Clause, Function, Loop, Moment
from kvproof.models.refinement.dictionaries import ABSENT
from kvproof.models.refinement.managed import (
    CHANGES,
    NAME,
    POOLS,
    Managed,
    in_pool,
    is_among,
    is_block,
    is_live,
    known,
    small,
)
from kvproof.models.refinement.setting import Setting
from kvproof.models.refinement.simulation import Call, Simulation
from kvproof.models.translation.maps import Map, SymbolicState
from kvproof.spec.text.state import FREE, GPU, HOST, NONE

IN_ORDER = "of those given back, the last one will be taken first"


def simulations(setting: Setting) -> Iterator[Simulation]:
    """The end of a sequence on the GPU, and of one on the host."""
    yield from (_freeing(setting, pool) for pool in POOLS)
    yield _dropping_next(setting)


def dropped_down_to(setting: Setting, stop: z3.ArithRef) -> SymbolicState:
    """The state in which the sequence is being freed, and has lost its entries from `stop` on.

    The lists and the enumerations of holders are those before: the relation does not name their order.
    """
    state, seq = setting.after("begin_free", setting.seq), setting.seq
    num_blocks = setting.read("num_blocks", seq)

    def changed(field: str, value: Callable[..., Any]) -> None:
        nonlocal state
        state = state.written(field, Map(state.maps[field].domains, value))

    def is_lost(block: Any) -> z3.BoolRef:
        return is_among(setting, as_number(block), stop, num_blocks)

    def status(block: Any) -> Any:
        is_given_back = z3.And(is_lost(block), setting.read("refcount", block) == 1)
        return z3.If(is_given_back, z3.IntVal(FREE), setting.read("status", block))

    def position(other: Any, block: Any) -> Any:
        is_so = z3.And(as_number(other) == seq, is_lost(block))
        return z3.If(is_so, z3.IntVal(NONE), setting.read("position", other, block))

    changed("refcount", lambda block: setting.read("refcount", block) - z3.If(is_lost(block), 1, 0))
    changed("status", status)
    changed("position", position)
    old = setting.before.maps["num_blocks"]
    changed("num_blocks", lambda other: z3.If(as_number(other) == seq, stop, as_number(old.read(other))))
    return state


def _release_loop(setting: Setting, device: Any, pool: int) -> Loop:
    """The loop of `release`, over the blocks of a table."""
    abstraction, before = setting.abstraction, setting.before
    first = setting.read("first", setting.seq)

    def so_far(now: Moment) -> Iterator[Clause]:
        as_long = now.length("counts") == abstraction.size("NUM_BLOCKS")
        yield Clause("each block has a count", "refcount-exact", lambda _: as_long)

        def count(block: z3.ArithRef) -> z3.BoolRef:
            lost = z3.If(is_among(setting, block, first, first + now.done), z3.IntVal(1), z3.IntVal(0))
            left = now.read("counts", block) == abstraction.refcount(before, block) - lost
            return z3.Implies(is_block(setting, block), left)

        yield Clause("each block so far has lost a reference, and no other", "refcount-exact", count)
        yield from _listed(setting, pool, now, now.done)

    def ghost_after(then: Moment, now: Moment) -> Function:
        is_given_back = now.length("free") > then.length("free")

        def place_of(block: z3.ArithRef) -> z3.ArithRef:
            is_new = z3.And(is_given_back, block == then.item(then.done))
            found: z3.ArithRef = z3.If(is_new, then.length("free"), then.ghost(block))
            return found

        return place_of

    place: Function = lambda block: setting.read("place", block)  # noqa: E731
    changes = {"counts": device.refcounts, "free": device.free_ids}
    return Loop("DeviceBlocks.release", so_far, changes, ghost=place, ghost_after=ghost_after)


def _listed(setting: Setting, pool: int, now: Moment, done: z3.ArithRef) -> Iterator[Clause]:
    """The free list has each block of the pool without a reference once; places are counted from its right end."""
    abstraction, before, seq = setting.abstraction, setting.before, setting.seq
    num_free, length = abstraction.num_free(before, pool), now.length("free")
    first = setting.read("first", seq)

    def at(place: z3.ArithRef) -> z3.ArithRef:
        return now.read("free", length - 1 - place)

    def of_each(holds: Callable[[z3.ArithRef, z3.ArithRef], z3.BoolRef]) -> Callable[[z3.ArithRef], z3.BoolRef]:
        return lambda place: z3.Implies(z3.And(place >= 0, place < length), holds(at(place), place))

    def has_place(block: z3.ArithRef) -> z3.BoolRef:
        is_free = z3.And(in_pool(setting, block, pool), now.read("counts", block) == 0)
        place = now.ghost(block)
        return z3.Implies(is_free, z3.And(place >= 0, place < length, at(place) == block))

    def stays(place: z3.ArithRef) -> z3.BoolRef:
        was = setting.read("member", pool, FREE, place)
        return z3.Implies(z3.And(place >= 0, place < num_free), at(place) == was)

    def is_in_order(place: z3.ArithRef) -> z3.BoolRef:
        here = setting.read("position", seq, at(place))
        there = setting.read("position", seq, at(place + 1))
        is_given_back = z3.And(place >= num_free, place < length)
        in_order = z3.Implies(place + 1 < length, here < there)
        return z3.Implies(is_given_back, z3.And(first <= here, here < first + done, in_order))

    yield Clause("the list has as many as before, or more", "lists-agree", lambda _: length >= num_free)
    for sentence, holds in (
        ("what is listed is of the pool", lambda block, _: in_pool(setting, block, pool)),
        ("what is listed has no reference", lambda block, _: now.read("counts", block) == 0),
        ("what is listed is listed once", lambda block, place: now.ghost(block) == place),
    ):
        yield Clause(sentence, "lists-agree", of_each(holds))
    yield Clause("each block of the pool without a reference is listed", "lists-agree", has_place)
    yield Clause("those that were free stay so, in their order, behind the others", "lists-agree", stays)
    yield Clause(IN_ORDER, "lists-agree", is_in_order)


def _freeing(setting: Setting, pool: int) -> Simulation:
    seq, first = setting.seq, setting.read("first", setting.seq)
    count = setting.read("num_blocks", seq) - first

    def start() -> Call:
        managed = Managed.of(setting, pool)
        manager, table = managed.manager, managed.table
        num_unmarked = manager._num_unmarked
        of_table = table.contents.length.term - number(table.num_marked_blocks)
        loop = _release_loop(setting, managed.device, pool)

        def claims(outcome: Outcome) -> Iterator[Agreement]:
            yield "nothing is returned", "frame-kept", z3.BoolVal(outcome.value is None)
            if not manager.tables.written:
                yield "the sequence has no table", "total-calls", z3.Not(is_live(setting, seq))
                yield from managed.unchanged(num_unmarked)
                return
            yield "the sequence had a table", "total-calls", is_live(setting, seq)
            dropped = dropped_down_to(setting, first)
            finished = setting.translator.run("finish", dropped, seq)
            for guard in finished.guards:
                yield f"the guard holds: {guard.text}", guard.property or WELL_DEFINED, as_truth(guard.formula)
            end = finished.state
            yield from managed.has_tables_of(end)
            emptied = all(one is ABSENT for name in ("tables", "_ids") for _, one in getattr(manager, name).written)
            yield "no table and no list of ids comes", "frame-kept", z3.BoolVal(emptied)
            yield "no target of a swap is held back any more", "frame-kept", z3.BoolVal(manager._landed.is_emptied)
            yield from managed.frame(num_unmarked, -of_table)
            yield from _given_back(managed, end, z3.If(count >= 0, count, z3.IntVal(0)))
            yield from _contracts(setting, dropped, end)

        arguments, changes = (managed.seq,), (f"{NAME}._num_unmarked",)
        few = small(setting, pool)
        return Call(manager, "free", claims, arguments, CHANGES, changes, managed.others, (loop,), few)

    subject = f"BlockManager.free refines the end of a sequence on {POOLS[pool]}"
    return Simulation(subject, SelfAttnBlockSpaceManager.free, known(setting, pool), start)


def _given_back(managed: Managed, end: SymbolicState, count: z3.ArithRef) -> Iterator[Agreement]:
    """The claims about the devices after the release of a table."""
    setting, pool, device = managed.setting, managed.pool, managed.device
    abstraction, some = setting.abstraction, z3.Int("some_number")
    counted = device.refcounts.read(some) == abstraction.refcount(end, some)
    yield "the refcounts are those of the rules", "refcount-exact", z3.Implies(is_block(setting, some), counted)
    place = z3.Function("loop_0_ghost", z3.IntSort(), z3.IntSort())  # where the loop has put each block
    contents = {"counts": device.refcounts.content(), "free": device.free_ids.content()}
    for clause in _listed(setting, pool, Moment(count, lambda at: at, contents, lambda block: place(block)), count):
        if clause.sentence != IN_ORDER:  # nothing comes after the loop, of which it is proved
            yield clause.sentence, clause.property, clause.holds(some)
    is_free = z3.And(abstraction.read(end, "status", some) == FREE, in_pool(setting, some, pool))
    listed = z3.And(place(some) >= 0, place(some) < device.free_ids.length.term)
    there = device.free_ids.read(device.free_ids.length.term - 1 - place(some)) == some
    free = is_free == z3.And(in_pool(setting, some, pool), listed, there)
    yield "exactly the blocks that the rules have freed are listed", "conservation", free
    other = HOST if pool == GPU else GPU
    for sentence, property, formula in managed.devices_agree(setting.before, other):
        if "refcounts" not in sentence:  # both devices have one list of them
            yield sentence, property, formula


def _contracts(setting: Setting, dropped: SymbolicState, end: SymbolicState) -> Iterator[Agreement]:
    """The postconditions of the two contracts of freeing, of the states that the claims are about."""
    started = setting.after("begin_free", setting.seq)
    for name, start, now, property in (
        ("free_gives_back_what_nobody_else_uses", started, dropped, "conservation"),
        ("a_sequence_at_rest_can_be_freed", setting.before, end, "total-calls"),
    ):
        holds = setting.translator.call(name, start, now, setting.seq, has_demands=False).value
        yield f"the contract holds: {name}", property, as_truth(holds)


def _dropping_next(setting: Setting) -> Simulation:
    """`drop_last` leads from the state without the entries from `stop + 1` on to that without those from `stop` on."""
    stop, seq = setting.index, setting.seq

    def claims(_: Outcome) -> Iterator[Agreement]:
        other = z3.Int("some_seq")
        none = dropped_down_to(setting, setting.read("num_blocks", seq))
        started = setting.after("begin_free", seq)
        yield from _same(setting, "before the first drop", none, started, other)
        ran = setting.translator.run("drop_last", dropped_down_to(setting, stop + 1), seq)
        for guard in ran.guards:
            yield f"the guard holds: {guard.text}", guard.property or WELL_DEFINED, as_truth(guard.formula)
        yield from _same(setting, "after one more", dropped_down_to(setting, stop), ran.state, other)

    named = Hypothesis("the table names a block there", setting.spec_function("has_entry", seq, stop))
    at_rest = Hypothesis("the sequence is at rest", setting.spec_function("at_rest", seq))
    start = lambda: Call(None, "", claims)  # noqa: E731
    subject = "BlockManager.free, entry by entry"
    assumed = (*setting.assumed, setting.is_seq, at_rest, named)
    return Simulation(subject, SelfAttnBlockSpaceManager.free, assumed, start)


def _same(
    setting: Setting, when: str, ours: SymbolicState, theirs: SymbolicState, seq: z3.ArithRef
) -> Iterator[Agreement]:
    """The claims that two states have the same of what the relation names, but for the order of lists."""
    block, is_seq = z3.Int("some_block"), z3.And(seq >= 0, seq < setting.abstraction.size("NUM_SEQS"))
    for name in ("refcount", "status"):
        same = setting.abstraction.read(ours, name, block) == setting.abstraction.read(theirs, name, block)
        yield f"{when}, {name} is the same", "refcount-exact", z3.Implies(is_block(setting, block), same)
    is_both = z3.And(is_seq, is_block(setting, block))
    held = setting.abstraction.read(ours, "position", seq, block)
    same = held == setting.abstraction.read(theirs, "position", seq, block)
    yield f"{when}, position is the same", "no-use-after-free", z3.Implies(is_both, same)
    for name in ("num_blocks", "first", "live", "ending", "moving", "home"):
        equal = ours.maps[name].read(seq) == theirs.maps[name].read(seq)
        formula = equal if isinstance(equal, z3.BoolRef) else z3.BoolVal(equal)
        yield f"{when}, {name} is the same", "frame-kept", z3.Implies(is_seq, formula)
