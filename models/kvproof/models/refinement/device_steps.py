"""Refcounts and the free list of `DeviceBlocks`, `RefCounter` and `CopyOnWriteTracker` refine the steps of the rules.

`take_one` has the guard and the effect of `gain` for a free block, `share` those for a block in use; `release` refines
`lose`; the answers of the other functions are guards of rules. `share` and `release` are folds of what they do for one
block. The built-in manager runs `DeviceBlocks`; `RefCounter` and `CopyOnWriteTracker` belong to
`kvproof.impl.vllm_api`, which it does not run.
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
from kvproof.models.proofs.obligation import Hypothesis
from kvproof.models.refinement.abstraction import Agreement
from kvproof.models.refinement.folds import require_fold
from kvproof.models.refinement.setting import Setting
from kvproof.models.refinement.simulation import Simulation
from kvproof.spec.text.state import GPU, NONE, RESERVED, USED


def simulations(setting: Setting) -> Iterator[Simulation]:
    """The functions of these classes that refine a step or a guard."""
    require_fold(DeviceBlocks.share)
    require_fold(DeviceBlocks.release)
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

    def start() -> Any:
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

        return device.take_one, claims

    subject = "DeviceBlocks.take_one refines gain of a free block"
    return Simulation(subject, DeviceBlocks.take_one, setting.assumed, start, (NoFreeBlocksError,))


def _sharing(setting: Setting) -> Simulation:
    in_use = Hypothesis("the block is in use", setting.read("status", setting.block) == USED)
    step = lambda: setting.after("gain", setting.seq, setting.index, setting.block)  # noqa: E731
    subject = "DeviceBlocks.share refines gain of a block in use"
    return _folded(setting, subject, DeviceBlocks.share, "share", step, (*setting.assumed, setting.is_block, in_use))


def _releasing(setting: Setting) -> Simulation:
    is_held = setting.read("position", setting.seq, setting.block) != NONE
    held = Hypothesis("the sequence holds the block", is_held)
    known = (*setting.assumed, setting.is_seq, setting.is_block, setting.is_on_gpu, held)
    step = lambda: setting.after("lose", setting.seq, setting.block)  # noqa: E731
    return _folded(setting, "DeviceBlocks.release refines lose", DeviceBlocks.release, "release", step, known)


def _folded(
    setting: Setting,
    subject: str,
    function: Callable[..., Any],
    name: str,
    step: Callable[[], Any],
    hypotheses: tuple[Hypothesis, ...],
) -> Simulation:
    """The simulation of one iteration of a function over blocks."""

    def start() -> Any:
        device = setting.abstraction.device(setting.before)
        call = lambda: getattr(device, name)((SymbolicInt(setting.block),))  # noqa: E731
        return call, lambda _: setting.abstraction.device_agrees(device, step())

    return Simulation(subject, function, hypotheses, start)


def _held(setting: Setting) -> Simulation:
    before, block = setting.before, setting.block
    null = setting.read("status", block) == RESERVED

    def start() -> Any:
        device = setting.abstraction.device(before)

        def claims(outcome: Outcome) -> Iterator[Agreement]:
            in_pool = z3.And(block >= 0, block < setting.abstraction.size("NUM_GPU_BLOCKS"))
            if outcome.raised(UnknownBlockError):
                yield "the block is not of this pool", "no-use-after-free", z3.Not(in_pool)
            elif outcome.raised(DoubleFreeError):
                yield "no table names the block", "no-double-free", setting.read("refcount", block) == 0
                yield "the block is of this pool", "no-use-after-free", in_pool
            else:
                yield "a table names the block", "no-double-free", setting.read("refcount", block) > 0
                yield "the block is given back", "frame-kept", number(outcome.value) == block
            yield from setting.abstraction.device_agrees(device, before)

        return lambda: device.require_held(SymbolicInt(block)), claims

    subject = "DeviceBlocks.require_held refines the guard of lose"
    no_null = Hypothesis("the null block was not taken", z3.Not(null))
    known = (*setting.assumed, no_null)
    return Simulation(subject, DeviceBlocks.require_held, known, start, (UnknownBlockError, DoubleFreeError))


def _appendable(setting: Setting) -> Simulation:
    before, block = setting.before, setting.block

    def start() -> Any:
        device = setting.abstraction.device(before)
        counter = setting.code.counter((), device.refcounts)
        counter._ids = device.ids
        tracker = setting.code.tracker(counter)

        def claims(outcome: Outcome) -> Iterator[Agreement]:
            alone = setting.read("refcount", block) == 1
            sentence = "it says that the block may be written exactly if the guard of append does"
            yield sentence, "cow-copied", truth(outcome.value) == alone

        return lambda: tracker.is_appendable(SimpleNamespace(block_id=SymbolicInt(block))), claims

    is_held = setting.read("position", setting.seq, block) != NONE
    held = Hypothesis("the sequence holds the block", is_held)
    subject = "CopyOnWriteTracker.is_appendable refines a guard of append"
    known = (*setting.assumed, setting.is_seq, setting.is_block, setting.is_on_gpu, held)
    return Simulation(subject, CopyOnWriteTracker.is_appendable, known, start)


def free_blocks(
    setting: Setting, code: type, make_device: Callable[[], Any], known: tuple[Hypothesis, ...]
) -> Simulation:
    """The simulation of `num_free` of a class of devices. known: about the state that the device represents."""

    def start() -> Any:
        device = make_device()

        def claims(outcome: Outcome) -> Iterator[Agreement]:
            unused = setting.translator.run("unused_in", setting.before, GPU).value
            yield "it counts what the rules can take", "conservation", number(outcome.value) == unused

        return lambda: device.num_free, claims

    getter = inspect.getattr_static(code, "num_free").fget
    return Simulation(f"{code.__name__}.num_free refines unused_in", getter, known, start)


def _counting(setting: Setting, change: int) -> Simulation:
    before, block = setting.before, setting.block
    name = "incr" if change == 1 else "decr"

    def start() -> Any:
        device = setting.abstraction.device(before)
        counter = setting.code.counter((), device.refcounts)
        counter._ids = device.ids

        def claims(outcome: Outcome) -> Iterator[Agreement]:
            old = setting.read("refcount", block)
            other = z3.Int("some_block")
            if outcome.error is not None:
                in_pool = z3.And(block >= 0, block < setting.abstraction.size("NUM_GPU_BLOCKS"))
                is_refused = z3.Or(z3.Not(in_pool), z3.And(old == 0, change == -1))
                yield "there is no such reference", "no-double-free", is_refused
                yield from setting.abstraction.device_agrees(device, before)
                return
            yield "the new count is given", "refcount-exact", number(outcome.value) == old + change
            is_block = z3.And(other >= 0, other < setting.abstraction.size("NUM_BLOCKS"))
            expected = setting.read("refcount", other) + z3.If(other == block, z3.IntVal(change), z3.IntVal(0))
            counted = device.refcounts.read(other) == expected
            yield "that count changes, and no other", "refcount-exact", z3.Implies(is_block, counted)

        return lambda: getattr(counter, name)(SymbolicInt(block)), claims

    subject = f"RefCounter.{name} refines the count of {'gain' if change == 1 else 'lose'}"
    no_null = setting.abstraction.for_blocks(lambda b: setting.read("status", b) != RESERVED)
    known = (*setting.assumed, Hypothesis("the null block was not taken", no_null))
    function = RefCounter.incr if change == 1 else RefCounter.decr
    return Simulation(subject, function, known, start, (UnknownBlockError, DoubleFreeError))
