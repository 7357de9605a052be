"""With a prefix cache: `CachedBlocks.pin` refines `gain` of a block in use or evictable; `num_free` counts both lists.

The evictor does not run here. It is replaced by its specification: it has a set of blocks, and `remove` takes out one
of them and refuses any other. `kvproof.models.concolic.eviction` proves this of the real evictor, for up to four
blocks. The evictor represents the state if it has exactly the EVICTABLE blocks of the pool, and counts them.
"""

from collections.abc import Callable, Iterator
from typing import Any

import z3

from kvproof.impl.cached_blocks import CachedBlocks
from kvproof.impl.errors import UnknownBlockError
from kvproof.models.concolic.scenario import Outcome
from kvproof.models.concolic.symbolic import SymbolicBool, SymbolicInt, number
from kvproof.models.proofs.obligation import Hypothesis
from kvproof.models.refinement.abstraction import NO_PREFIX_CACHE, Agreement
from kvproof.models.refinement.device_steps import free_blocks
from kvproof.models.refinement.setting import Setting
from kvproof.models.refinement.simulation import Simulation
from kvproof.models.translation.maps import SymbolicState
from kvproof.spec.text.state import EVICTABLE, GPU, USED


def simulations(setting: Setting) -> Iterator[Simulation]:
    """The functions of the cached device that refine a rule and do not read contents."""
    yield _pinning(setting)
    yield free_blocks(setting, CachedBlocks, lambda: _device(setting), _known(setting))


class SpecifiedEvictor:
    """The specification of an evictor: the set of its blocks, and their number."""

    def __init__(self, num_blocks: z3.ArithRef, has: Callable[[z3.ArithRef], z3.BoolRef]) -> None:
        self.num_blocks = SymbolicInt(num_blocks)
        self.has = has

    def remove(self, block_id: Any) -> None:
        """Remove a block. Raises UnknownBlockError if the evictor does not have it."""
        block, before = number(block_id), self.has
        if not SymbolicBool(before(block)):
            raise UnknownBlockError(block_id, "the evictor")
        self.num_blocks = self.num_blocks - 1
        self.has = lambda other: z3.And(before(other), other != block)


def _device(setting: Setting) -> Any:
    state = setting.before
    device = setting.abstraction.device(state, setting.code.cached, "the GPU", [], [], bytearray(), 1)
    has = lambda block: setting.read("status", block) == EVICTABLE  # noqa: E731
    device.evictor = SpecifiedEvictor(setting.read("count", GPU, EVICTABLE), has)
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
    def start() -> Any:
        device = _device(setting)

        def claims(_: Outcome) -> Iterator[Agreement]:
            yield from _agrees(setting, device, setting.after("gain", setting.seq, setting.index, setting.block))

        return lambda: device.pin(SymbolicInt(setting.block)), claims

    status = setting.read("status", setting.block)
    is_found = Hypothesis("the block is in use or evictable", z3.Or(status == USED, status == EVICTABLE))
    known = (*_known(setting), setting.is_block, is_found)
    return Simulation("CachedBlocks.pin refines gain of a block that is found", CachedBlocks.pin, known, start)
