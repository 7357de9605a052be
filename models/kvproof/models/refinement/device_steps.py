"""Refcounts and the free list of `DeviceBlocks`, `RefCounter` and `CopyOnWriteTracker` refine the steps of the rules.

`take_one` has the guard and the effect of `gain` for a free block, `share` those for a block in use; `release` refines
`lose`; the answers of the other functions are guards of rules. `share` and `release` are loops over any number of
blocks; what is proved is one iteration (`loops`). The built-in manager runs `DeviceBlocks`; `RefCounter` and
`CopyOnWriteTracker` belong to `kvproof.impl.vllm_api`, which it does not run.
"""

import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.impl.device_blocks import DeviceBlocks
from kvproof.impl.errors import DoubleFreeError, NoFreeBlocksError, UnknownBlockError
from kvproof.impl.vllm_api.refcount import CopyOnWriteTracker, RefCounter
from kvproof.models.concolic.scenario import Outcome
from kvproof.models.concolic.symbolic import SymbolicInt, number, truth
from kvproof.models.obligation import Hypothesis
from kvproof.models.refinement.abstraction import Agreement
from kvproof.models.refinement.loops import Head, Items
from kvproof.models.refinement.setting import Setting
from kvproof.models.refinement.simulation import Call, Simulation
from kvproof.models.refinement.unbounded import forget
from kvproof.models.translation.maps import SymbolicState
from kvproof.spec.text.state import GPU, NONE, RESERVED, USED

COUNTS = ("DeviceBlocks.refcounts",)
LISTS = (*COUNTS, "DeviceBlocks.free_ids")


def simulations(setting: Setting) -> Iterator[Simulation]:
    """The functions of these classes that refine a step or a guard."""
    yield _taking(setting)
    yield _sharing(setting)
    yield _releasing(setting)
    yield _held(setting)
    yield _appendable(setting)
    yield free_blocks(setting, DeviceBlocks, lambda: setting.abstraction.device(setting.before), setting.assumed)
    yield from (_counting(setting, change) for change in (1, -1))


def _taking(setting: Setting) -> Simulation:
    before, abstraction = setting.before, setting.abstraction
    block = abstraction.free(before, z3.IntVal(0))

    def start() -> Call:
        device = abstraction.device(before)

        def claims(outcome: Outcome) -> Iterator[Agreement]:
            if outcome.error is not None:
                yield "no block of the pool is free", "no-use-after-free", setting.no_free_block()
                yield from abstraction.device_agrees(device, before)
                return
            yield (
                "the block taken is free, in the pool",
                "no-use-after-free",
                setting.spec_function("free_in", block, GPU),
            )
            yield "the block taken is the one freed last", "lists-agree", number(outcome.value) == block
            after = setting.after("gain", setting.seq, setting.index, block)
            yield from abstraction.device_agrees(device, after)

        return Call(device, "take_one", claims, changes=LISTS)

    subject = "DeviceBlocks.take_one refines gain of a free block"
    return Simulation(subject, DeviceBlocks.take_one, setting.assumed, start, (NoFreeBlocksError,))


def _sharing(setting: Setting) -> Simulation:
    in_use = Hypothesis("the block is in use", setting.read("status", setting.block) == USED)
    step = lambda: setting.after("gain", setting.seq, setting.index, setting.block)  # noqa: E731
    subject = "DeviceBlocks.share refines gain of a block in use"
    return each_block(setting, subject, "share", setting.before, step, (*setting.assumed, setting.is_block, in_use))


def _releasing(setting: Setting) -> Simulation:
    is_held = setting.read("position", setting.seq, setting.block) != NONE
    held = Hypothesis("the sequence holds the block", is_held)
    known = (*setting.assumed, setting.is_seq, setting.is_block, setting.is_on_gpu, held)
    step = lambda: setting.after("lose", setting.seq, setting.block)  # noqa: E731
    return each_block(setting, "DeviceBlocks.release refines lose", "release", setting.before, step, known)


def each_block(
    setting: Setting,
    subject: str,
    name: str,
    before: SymbolicState,
    step: Callable[[], SymbolicState],
    hypotheses: tuple[Hypothesis, ...],
    block: z3.ArithRef | None = None,
) -> Simulation:
    """The simulation of a function over any number of blocks: what one iteration does, by a step of the rules.

    block: of the iteration; an arbitrary one if none is given.
    """

    def start() -> Call:
        device = setting.abstraction.device(before)
        item = SymbolicInt(setting.block if block is None else block)
        blocks = Items(item, Head((device,), (device.refcounts, device.free_ids)))

        def claims(_: Outcome) -> Iterator[Agreement]:
            return setting.abstraction.device_agrees(device, step() if blocks.is_given else before)

        return Call(device, name, claims, (blocks,), LISTS)

    return Simulation(subject, getattr(DeviceBlocks, name), hypotheses, start)


def _held(setting: Setting) -> Simulation:
    before, block = setting.before, setting.block
    is_null = setting.read("status", block) == RESERVED

    def start() -> Call:
        device = setting.abstraction.device(before)

        def claims(outcome: Outcome) -> Iterator[Agreement]:
            in_pool = z3.And(block >= 0, block < setting.abstraction.size("NUM_GPU_BLOCKS"))
            is_known = z3.And(in_pool, z3.Not(is_null))
            if outcome.raised(UnknownBlockError):
                yield "the block is not of this pool, or the null block", "no-use-after-free", z3.Not(is_known)
            elif outcome.raised(DoubleFreeError):
                yield "no table names the block", "no-double-free", setting.read("refcount", block) == 0
                yield "the block is of this pool, and not the null block", "no-use-after-free", is_known
            else:
                yield "a table names the block", "no-double-free", setting.read("refcount", block) > 0
                yield "the block is of this pool, and not the null block", "no-use-after-free", is_known
                yield "the block is given back", "frame-kept", number(outcome.value) == block
            yield from setting.abstraction.device_agrees(device, before)

        return Call(device, "require_held", claims, (SymbolicInt(block),), LISTS)

    subject = "DeviceBlocks.require_held refines the guard of lose"
    errors = (UnknownBlockError, DoubleFreeError)
    return Simulation(subject, DeviceBlocks.require_held, setting.assumed, start, errors)


def _counter(setting: Setting, device: Any) -> Any:
    """A counter that is a view of the counts of a device."""
    counter = setting.code.counter((), device.refcounts)
    counter._ids = device.ids
    return counter


def _appendable(setting: Setting) -> Simulation:
    before, block = setting.before, setting.block

    def start() -> Call:
        counter = _counter(setting, setting.abstraction.device(before))
        tracker = setting.code.tracker(counter)
        forget(tracker, ("_refcounter",))

        def claims(outcome: Outcome) -> Iterator[Agreement]:
            alone = setting.read("refcount", block) == 1
            sentence = "it says that the block may be written exactly if the guard of append does"
            yield sentence, "cow-copied", truth(outcome.value) == alone

        named = SimpleNamespace(block_id=SymbolicInt(block))
        return Call(tracker, "is_appendable", claims, (named,), others=(counter, named))

    is_held = setting.read("position", setting.seq, block) != NONE
    held = Hypothesis("the sequence holds the block", is_held)
    subject = "CopyOnWriteTracker.is_appendable refines a guard of append"
    known = (*setting.assumed, setting.is_seq, setting.is_block, setting.is_on_gpu, held)
    return Simulation(subject, CopyOnWriteTracker.is_appendable, known, start)


def free_blocks(
    setting: Setting, code: type, make_device: Callable[[], Any], known: tuple[Hypothesis, ...]
) -> Simulation:
    """The simulation of `num_free` of a class of devices. known: about the state that the device represents."""

    def start() -> Call:
        device = make_device()

        def claims(outcome: Outcome) -> Iterator[Agreement]:
            unused = setting.translator.run("unused_in", setting.before, GPU).value
            yield "it counts what the rules can take", "conservation", number(outcome.value) == unused

        return Call(device, "num_free", claims)

    getter = inspect.getattr_static(code, "num_free").fget
    return Simulation(f"{code.__name__}.num_free refines unused_in", getter, known, start)


def _counting(setting: Setting, change: int) -> Simulation:
    before, block = setting.before, setting.block
    name = "incr" if change == 1 else "decr"

    def start() -> Call:
        counter = _counter(setting, setting.abstraction.device(before))
        counts = counter._counts

        def claims(outcome: Outcome) -> Iterator[Agreement]:
            old = setting.abstraction.refcount(before, block)
            other = z3.Int("some_block")
            is_block = z3.And(other >= 0, other < setting.abstraction.size("NUM_BLOCKS"))
            in_pool = z3.And(block >= 0, block < setting.abstraction.size("NUM_GPU_BLOCKS"))
            if outcome.error is not None:
                is_refused = z3.Or(z3.Not(in_pool), z3.And(old == 0, change == -1))
                yield "there is no such reference", "no-double-free", is_refused
                same = counts.read(other) == setting.abstraction.refcount(before, other)
                yield "no count changes", "refcount-exact", z3.Implies(is_block, same)
                return
            there_is = z3.And(in_pool, old + change >= 0)
            yield "there is such a reference", "no-double-free", there_is
            yield "the new count is given", "refcount-exact", number(outcome.value) == old + change
            added = z3.If(other == block, z3.IntVal(change), z3.IntVal(0))
            counted = counts.read(other) == setting.abstraction.refcount(before, other) + added
            yield "that count changes, and no other", "refcount-exact", z3.Implies(is_block, counted)

        return Call(counter, name, claims, (SymbolicInt(block),), ("RefCounter._counts",))

    subject = f"RefCounter.{name} refines the count of {'gain' if change == 1 else 'lose'}"
    function = RefCounter.incr if change == 1 else RefCounter.decr
    return Simulation(subject, function, setting.assumed, start, (UnknownBlockError, DoubleFreeError))
