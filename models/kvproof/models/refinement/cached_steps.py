"""With a prefix cache: `CachedBlocks.pin` refines `gain` of a block in use or evictable; `num_free` counts both lists.

The evictor does not run here. It is replaced by its specification: it has a set of blocks, and `remove` takes out one
of them and refuses any other. `kvproof.models.concolic.eviction` proves this of the real evictor, for up to four
blocks. The evictor represents the state if it has exactly the EVICTABLE blocks of the pool, and counts them.
"""

from collections.abc import Callable, Iterator
from typing import Any

import z3

from kvproof.impl.cached_blocks import NEVER_ACCESSED, CachedBlocks
from kvproof.impl.errors import UnknownBlockError
from kvproof.models.concolic.scenario import Outcome
from kvproof.models.concolic.symbolic import SymbolicBool, SymbolicInt, number
from kvproof.models.obligation import Hypothesis
from kvproof.models.refinement.abstraction import NO_PREFIX_CACHE, Agreement
from kvproof.models.refinement.device_steps import free_blocks
from kvproof.models.refinement.replay import LENGTH_MAX, Specified, Value
from kvproof.models.refinement.setting import Setting
from kvproof.models.refinement.simulation import Call, Simulation
from kvproof.models.refinement.table_steps import FrameClaims, appending
from kvproof.models.refinement.unbounded import Cells, unknown_content
from kvproof.models.translation.maps import SymbolicState
from kvproof.spec.text.state import EVICTABLE, FREE, GPU, USED

PLAIN_IDS = range(-1, 4 * LENGTH_MAX)  # the ids that a replay looks at

LISTS = ("CachedBlocks.refcounts", "CachedBlocks.free_ids")
OF_THE_EVICTOR = ("SpecifiedEvictor.num_blocks", "SpecifiedEvictor.has")


def simulations(setting: Setting) -> Iterator[Simulation]:
    """The functions of the cached device that refine a rule and do not read contents."""
    yield _pinning(setting)
    yield free_blocks(setting, CachedBlocks, lambda: cached_device(setting), _known(setting))
    yield appending(setting, "Growth.append_within_block refines append, with a prefix cache", CachedDevice())


class PlainEvictor:
    """The specification of an evictor, with plain numbers."""

    def __init__(self, blocks: set[int], num_blocks: int) -> None:
        self.blocks, self.num_blocks = blocks, num_blocks

    def remove(self, block_id: int) -> None:
        """Remove a block. Raises UnknownBlockError if the evictor does not have it."""
        if block_id not in self.blocks:
            raise UnknownBlockError(block_id, "the evictor")
        self.blocks.remove(block_id)
        self.num_blocks -= 1


class SpecifiedEvictor(Specified):
    """The specification of an evictor: the set of its blocks, and their number."""

    def __init__(self, num_blocks: z3.ArithRef, has: Callable[[z3.ArithRef], z3.BoolRef]) -> None:
        self.num_blocks = SymbolicInt(num_blocks)
        self.has = has

    def plain(self, value: Value) -> PlainEvictor:
        """The same with plain numbers, for a replay."""
        blocks = {block for block in PLAIN_IDS if value(self.has(z3.IntVal(block)))}
        return PlainEvictor(blocks, value(self.num_blocks.term))

    def agrees(self, plain: PlainEvictor, value: Value) -> bool:
        """Whether a plain evictor is what the terms say."""
        same = self.plain(value)
        return (same.blocks, same.num_blocks) == (plain.blocks, plain.num_blocks)

    def remove(self, block_id: Any) -> None:
        """Remove a block. Raises UnknownBlockError if the evictor does not have it."""
        block, before = number(block_id), self.has
        if not SymbolicBool(before(block)):
            raise UnknownBlockError(block_id, "the evictor")
        self.num_blocks = self.num_blocks - 1
        self.has = lambda other: z3.And(before(other), other != block)


class CachedDevice:
    """A device with a prefix cache, where an id that holds nothing can be taken."""

    changes = (*LISTS, "CachedBlocks.was_copied", "CachedBlocks.last_accessed")

    def made(self, setting: Setting) -> Any:
        return cached_device(setting)

    def assumed(self, setting: Setting) -> tuple[Hypothesis, ...]:
        some_free = Hypothesis("an id that holds nothing is free", setting.read("count", GPU, FREE) > 0)
        return (*_known(setting), some_free)

    def agrees(self, setting: Setting, device: Any, state: SymbolicState) -> Iterator[Agreement]:
        return _agrees(setting, device, state)

    def frame(self, device: Any) -> FrameClaims:
        """A block that is taken was never accessed, and is no source of a copy; the source of a copy is noted."""
        copied, accessed = device.was_copied.content()[1], device.last_accessed.content()[1]

        def noted(
            is_taken: z3.BoolRef, is_copy: z3.BoolRef, source: z3.ArithRef, target: z3.ArithRef
        ) -> Iterator[Agreement]:
            block = z3.Int("some_block")
            is_new = z3.And(is_taken, block == target)
            was_copied = z3.If(z3.And(is_copy, block == source), z3.IntVal(1), copied(block))
            same = device.was_copied.read(block) == z3.If(is_new, z3.IntVal(0), was_copied)
            yield "exactly the source of a copy is noted as copied", "cow-copied", same
            never = z3.If(is_new, number(NEVER_ACCESSED), accessed(block))
            yield "a block taken was never accessed", "eviction-order", device.last_accessed.read(block) == never

        return noted


def cached_device(setting: Setting) -> Any:
    """The cached blocks of the GPU, with an evictor by its specification."""
    state, abstraction = setting.before, setting.abstraction
    device = abstraction.device(state, setting.code.cached, "the GPU", [], [], bytearray(), 1)
    has = lambda block: setting.read("status", block) == EVICTABLE  # noqa: E731
    device.evictor = SpecifiedEvictor(setting.read("count", GPU, EVICTABLE), has)
    for name in ("was_copied", "last_accessed"):
        _, read = unknown_content(name)
        setattr(device, name, Cells(abstraction.size("NUM_BLOCKS"), read))
    return device


def _agrees(setting: Setting, device: Any, state: SymbolicState) -> Iterator[Agreement]:
    """The conditions for the device and its evictor to represent the state."""
    yield from setting.abstraction.device_agrees(device, state)
    block = z3.Int("some_block")
    in_pool = z3.And(block >= 0, block < setting.abstraction.size("NUM_GPU_BLOCKS"))
    is_evictable = setting.abstraction.read(state, "status", block) == EVICTABLE
    same = z3.Implies(in_pool, device.evictor.has(block) == is_evictable)
    yield "the evictor has exactly the evictable blocks", "evict-unreferenced", same
    counted = device.evictor.num_blocks.term == setting.abstraction.read(state, "count", GPU, EVICTABLE)
    yield "the evictor counts them", "lists-agree", counted


def _known(setting: Setting) -> tuple[Hypothesis, ...]:
    return tuple(one for one in setting.assumed if one.name != NO_PREFIX_CACHE)


def _pinning(setting: Setting) -> Simulation:
    def start() -> Call:
        device = cached_device(setting)

        def claims(_: Outcome) -> Iterator[Agreement]:
            yield from _agrees(setting, device, setting.after("gain", setting.seq, setting.index, setting.block))

        return Call(device, "pin", claims, (SymbolicInt(setting.block),), LISTS, OF_THE_EVICTOR)

    status = setting.read("status", setting.block)
    is_found = Hypothesis("the block is in use or evictable", z3.Or(status == USED, status == EVICTABLE))
    known = (*_known(setting), setting.is_block, is_found)
    return Simulation("CachedBlocks.pin refines gain of a block that is found", CachedBlocks.pin, known, start)
