"""Taking any number of blocks refines as many times `gain`; the null block refines `set_aside`.

`DeviceBlocks.take` goes over any number of blocks twice: it takes them, and counts a reference of each. Both loops are
cut (`cuts`). The state after k of them is that of the rule fired k times, which is proved from one to the next, for the
relation alone.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import z3

from kvproof.impl.device_blocks import NO_NULL_BLOCK, DeviceBlocks
from kvproof.impl.errors import NoFreeBlocksError
from kvproof.models.concolic.scenario import Outcome
from kvproof.models.concolic.symbolic import SymbolicInt, number, truth
from kvproof.models.obligation import Hypothesis
from kvproof.models.refinement.abstraction import NULL_ID, Agreement, as_number, as_truth
from kvproof.models.refinement.cuts import Clause, Loop, Moment
from kvproof.models.refinement.device_steps import LISTS
from kvproof.models.refinement.replay import LENGTH_MAX
from kvproof.models.refinement.setting import Setting
from kvproof.models.refinement.simulation import Call, Simulation
from kvproof.models.refinement.unbounded import Unbounded
from kvproof.models.translation.maps import Map, SymbolicState
from kvproof.spec.text.state import EVICTABLE, FREE, GPU, RESERVED, USED

WANTED = z3.Int("given_wanted")  # as many blocks are asked for
NUM_TAKEN = z3.If(WANTED >= 0, WANTED, z3.IntVal(0))


def simulations(setting: Setting) -> Iterator[Simulation]:
    """The functions of a device that take any number of blocks, or the null block, and its other counts."""
    yield _taking(setting)
    yield _taking_next(setting)
    yield _null_block(setting)
    yield _one_reserved(setting)
    yield from (_counting(setting, name) for name in ("num_usable", "is_idle", "all_free_ids"))


def taken_up_to(setting: Setting, stop: z3.ArithRef) -> SymbolicState:
    """The state before, in which the first `stop` blocks of the free list are in use, with one reference each."""
    before = setting.before

    def changed(field: str, value: Callable[..., Any]) -> Map:
        return Map(before.maps[field].domains, value)

    def refcount(block: Any) -> Any:
        is_taken = is_among_first(setting, block, stop)
        return setting.read("refcount", block) + z3.If(is_taken, z3.IntVal(1), z3.IntVal(0))

    def status(block: Any) -> Any:
        return z3.If(is_among_first(setting, block, stop), z3.IntVal(USED), setting.read("status", block))

    def count(pool: Any, which: Any) -> Any:
        is_free = z3.And(_term(pool) == GPU, _term(which) == FREE)
        is_used = z3.And(_term(pool) == GPU, _term(which) == USED)
        old = setting.read("count", pool, which)
        return z3.If(is_free, old - stop, z3.If(is_used, old + stop, old))

    after = before.written("refcount", changed("refcount", refcount)).written("status", changed("status", status))
    return after.written("count", changed("count", count))


def is_among_first(setting: Setting, block: z3.ArithRef, stop: z3.ArithRef) -> z3.BoolRef:
    """Whether a block is among the first `stop` of the free list."""
    in_pool = z3.And(block >= 0, block < setting.abstraction.size("NUM_GPU_BLOCKS"))
    is_free = z3.And(in_pool, setting.read("status", block) == FREE)
    return z3.And(is_free, setting.read("place", block) >= setting.abstraction.num_free(setting.before) - stop)


def _term(value: Any) -> z3.ArithRef:
    return as_number(value)


def lists_are_plain(setting: Setting) -> tuple[z3.BoolRef, ...]:
    """What the invariants say of the first blocks of the free list, for a replay."""
    places = range(LENGTH_MAX)
    free = [setting.abstraction.free(setting.before, z3.IntVal(place)) for place in places]
    num_free = setting.abstraction.num_free(setting.before)
    of_each = [
        z3.Implies(
            place < num_free,
            z3.And(
                setting.spec_function("free_in", block, GPU),
                setting.read("place", block) == num_free - 1 - place,
                setting.read("refcount", block) == 0,
            ),
        )
        for place, block in zip(places, free, strict=True)
    ]
    blocks = [z3.IntVal(block) for block in places]
    listed = [
        z3.Implies(
            z3.And(block < setting.abstraction.size("NUM_GPU_BLOCKS"), setting.read("status", block) == FREE),
            z3.And(
                setting.read("place", block) >= 0,
                setting.read("place", block) < num_free,
                setting.read("member", GPU, FREE, setting.read("place", block)) == block,
            ),
        )
        for block in blocks
    ]
    return (*of_each, *listed)


def take_loops(setting: Setting, name: str, device: Any) -> tuple[Loop, ...]:
    """The loops of `take` of a class: the blocks that are taken, and their counts."""
    before, abstraction = setting.before, setting.abstraction
    num_free = abstraction.num_free(before)

    def popped(now: Moment) -> Iterator[Clause]:
        length = now.length("free") == num_free - now.done
        yield Clause("so many fewer are free", "lists-agree", lambda _: length)
        left = lambda place: now.read("free", place) == abstraction.free(before, place + now.done)  # noqa: E731
        yield Clause("the others are free, in their order", "lists-agree", left)
        as_many = now.length("collected") == now.done
        yield Clause("so many are taken", "conservation", lambda _: as_many)

        def is_first(place: z3.ArithRef) -> z3.BoolRef:
            is_place = z3.And(place >= 0, place < now.done)
            return z3.Implies(is_place, now.read("collected", place) == abstraction.free(before, place))

        yield Clause("those freed last are taken", "lists-agree", is_first)

    def counted(now: Moment) -> Iterator[Clause]:
        as_long = now.length("counts") == abstraction.size("NUM_BLOCKS")
        yield Clause("each block has a count", "refcount-exact", lambda _: as_long)

        def count(block: z3.ArithRef) -> z3.BoolRef:
            is_block = z3.And(block >= 0, block < abstraction.size("NUM_BLOCKS"))
            one = z3.If(is_among_first(setting, block, now.done), z3.IntVal(1), abstraction.refcount(before, block))
            return z3.Implies(is_block, now.read("counts", block) == one)

        yield Clause("each block so far has one reference", "refcount-exact", count)

    return (
        Loop(f"{name}.take.<locals>.as_a_loop", popped, {"free": device.free_ids}, ("collected",)),
        Loop(f"{name}.take", counted, {"counts": device.refcounts}),
    )


def _taking(setting: Setting) -> Simulation:
    before, abstraction = setting.before, setting.abstraction
    num_free = abstraction.num_free(before)

    def start() -> Call:
        device = abstraction.device(before)

        def claims(outcome: Outcome) -> Iterator[Agreement]:
            if outcome.error is not None:
                yield "fewer blocks are free than are asked for", "no-use-after-free", WANTED > num_free
                yield from abstraction.device_agrees(device, before)
                return
            taken: Any = outcome.value
            if not isinstance(taken, Unbounded):
                yield "a list is returned", "frame-kept", z3.BoolVal(False)
                return
            yield "so many blocks are free", "no-use-after-free", WANTED <= num_free
            yield "as many are taken as are asked for", "conservation", taken.length.term == NUM_TAKEN
            place = z3.Int("some_place")
            is_place = z3.And(place >= 0, place < NUM_TAKEN)
            first = taken.read(place) == abstraction.free(before, place)
            yield "those freed last are taken, in order", "lists-agree", z3.Implies(is_place, first)
            own = taken is not device.free_ids and taken is not device.refcounts
            yield "the list is the caller's own", "frame-kept", z3.BoolVal(own)
            yield from abstraction.device_agrees(device, taken_up_to(setting, NUM_TAKEN))

        loops = take_loops(setting, "DeviceBlocks", device)
        small = (WANTED > 1, WANTED <= LENGTH_MAX, *lists_are_plain(setting))
        return Call(device, "take", claims, (SymbolicInt(WANTED),), LISTS, loops=loops, small=small)

    subject = "DeviceBlocks.take refines as many times gain of a free block"
    return Simulation(subject, DeviceBlocks.take, setting.assumed, start, (NoFreeBlocksError,))


def _taking_next(setting: Setting) -> Simulation:
    """After k + 1 blocks the device is in the state to which `gain` leads from that after k."""
    abstraction, at = setting.abstraction, z3.Int("given_taken")

    def claims(_: Outcome) -> Iterator[Agreement]:
        so_far = taken_up_to(setting, at)
        none = abstraction.device(taken_up_to(setting, z3.IntVal(0)))
        for sentence, property, formula in abstraction.device_agrees(none, setting.before):
            yield f"before the first block, {sentence}", property, formula
        block = abstraction.free(so_far, z3.IntVal(0))
        is_free = as_truth(setting.translator.run("free_in", so_far, block, GPU).value)
        yield "the next block is free, in the pool", "no-use-after-free", is_free
        after = setting.translator.run("gain", so_far, setting.seq, setting.index, block).state
        for sentence, property, formula in abstraction.device_agrees(
            abstraction.device(taken_up_to(setting, at + 1)), after
        ):
            yield f"with the next block, {sentence}", property, formula

    some_left = Hypothesis("a block is left", z3.And(at >= 0, at < abstraction.num_free(setting.before)))
    start = lambda: Call(None, "", claims)  # noqa: E731
    subject = "DeviceBlocks.take, block by block"
    return Simulation(subject, DeviceBlocks.take, (*setting.assumed, some_left), start)


def _null_block(setting: Setting) -> Simulation:
    before, abstraction = setting.before, setting.abstraction
    first = abstraction.free(before, z3.IntVal(0))

    def start() -> Call:
        device = abstraction.device(before)

        def claims(outcome: Outcome) -> Iterator[Agreement]:
            null_id = number(device.null_id)
            is_there = NULL_ID != NO_NULL_BLOCK
            if outcome.error is not None:
                yield "there is no null block", "frame-kept", z3.Not(is_there)
                yield "no block of the pool is free", "no-use-after-free", setting.no_free_block()
                yield "there is no null block still", "frame-kept", null_id == NULL_ID
                yield from abstraction.device_agrees(device, before)
                return
            yield "the null block is given", "frame-kept", number(outcome.value) == null_id
            yield "the one that is there stays", "frame-kept", z3.Implies(is_there, null_id == NULL_ID)
            new = z3.Implies(z3.Not(is_there), null_id == first)
            yield "a new one is the block freed last", "lists-agree", new
            aside = setting.translator.run("set_aside", before, first)
            for guard in aside.guards:
                holds = z3.Or(is_there, as_truth(guard.formula))
                yield f"the guard holds: {guard.text}", guard.property or "frame-kept", holds
            for (sentence, property, same), (_, _, then) in zip(
                abstraction.device_agrees(device, before),
                abstraction.device_agrees(device, aside.state),
                strict=True,
            ):
                yield sentence, property, z3.If(is_there, same, then)

        replaced = ("DeviceBlocks.null_id",)
        return Call(device, "null_block", claims, changes=LISTS, replaced=replaced, small=lists_are_plain(setting))

    subject = "DeviceBlocks.null_block refines set_aside, once"
    return Simulation(subject, DeviceBlocks.null_block, setting.assumed, start, (NoFreeBlocksError,))


def _reserved(setting: Setting) -> Iterator[tuple[str, z3.BoolRef]]:
    """At most one block is reserved: the first two of the list would both be the null block."""
    count = setting.read("count", GPU, RESERVED)
    for place, which in enumerate(("first", "second")):
        block = setting.read("member", GPU, RESERVED, place)
        is_null = z3.And(block == NULL_ID, setting.read("place", NULL_ID) == place)
        yield f"the {which} reserved block is the null block", z3.Implies(count > place, is_null)
    yield "no block is evictable", setting.read("count", GPU, EVICTABLE) == 0


def _one_reserved(setting: Setting) -> Simulation:
    def claims(_: Outcome) -> Iterator[Agreement]:
        yield from ((sentence, "lists-agree", formula) for sentence, formula in _reserved(setting))

    start = lambda: Call(None, "", claims)  # noqa: E731
    return Simulation("the list of reserved blocks", DeviceBlocks.__init__, setting.assumed, start)


def _counting(setting: Setting, name: str) -> Simulation:
    before, abstraction = setting.before, setting.abstraction
    getter: Any = inspect.getattr_static(DeviceBlocks, name)

    def start() -> Call:
        device = abstraction.device(before)
        device.num_total = SymbolicInt(abstraction.size("NUM_GPU_BLOCKS"))
        kept = number(device.num_kept)

        def claims(outcome: Outcome) -> Iterator[Agreement]:
            if name == "num_usable":
                usable = abstraction.size("NUM_GPU_BLOCKS") - setting.read("count", GPU, RESERVED) - kept
                yield "all are usable but those kept or reserved", "conservation", number(outcome.value) == usable
            elif name == "is_idle":
                is_idle = setting.read("count", GPU, USED) == kept
                yield "it is idle exactly if those in use are kept", "conservation", truth(outcome.value) == is_idle
            else:
                listed, place = outcome.value, z3.Int("some_place")
                num_free = abstraction.num_free(before)
                yield "as many are listed as are free", "lists-agree", listed.length.term == num_free
                is_place = z3.And(place >= 0, place < num_free)
                same = listed.read(place) == abstraction.free(before, place)
                yield "they are listed in the order in which they are taken", "lists-agree", z3.Implies(is_place, same)
                own = listed is not device.free_ids
                yield "the list is the caller's own", "frame-kept", z3.BoolVal(own)

        return Call(device, name, claims)

    known = (*setting.assumed, *(Hypothesis(sentence, formula) for sentence, formula in _reserved(setting)))
    subject = f"DeviceBlocks.{name} is what the pool has"
    return Simulation(subject, getattr(getter, "fget", getter), known, start)
