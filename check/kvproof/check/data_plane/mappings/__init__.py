"""What is moved: named kinds of scenarios, each made again by its seed.

Adversarial kinds are drawn for what breaks movers (`adversarial`). The others are what a block manager really emits:
under kvproof's scheduler (`scheduled`), and in the states that the explorer reaches (`explored`).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from random import Random

from kvproof.check.data_plane.mappings import adversarial, explored, scheduled
from kvproof.check.data_plane.memory.layouts import UnknownSetting
from kvproof.check.data_plane.steps.moves import Scenario, Step

__all__ = ["ADVERSARIAL", "KINDS", "scenario"]

ADVERSARIAL: dict[str, Callable[[Random, adversarial.Pools], list[Step]]] = adversarial.KINDS
KINDS: tuple[str, ...] = (*ADVERSARIAL, *scheduled.LOADS, *explored.NAMES)


def scenario(kind: str, seed: int, num_gpu_blocks: int, num_cpu_blocks: int, block_size: int) -> Scenario:
    """The scenario of a kind, for pools of these sizes. Raises UnknownSetting.

    Loads of the scheduler need at least 8 GPU blocks; the explorer's states have sizes of their own and need no more
    than 5 GPU and 5 CPU blocks.
    """
    if kind in ADVERSARIAL:
        pools = adversarial.Pools(num_gpu_blocks, num_cpu_blocks, block_size)
        steps = ADVERSARIAL[kind](Random(f"{kind} {seed}"), pools)
    elif kind in scheduled.LOADS:
        steps = scheduled.steps_of(kind, seed, num_gpu_blocks, num_cpu_blocks, block_size)
    elif kind in explored.NAMES:
        steps = explored.steps_of(num_gpu_blocks, num_cpu_blocks)
    else:
        close = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(KINDS)}"
        raise UnknownSetting(f"no kind of mapping is named {kind!r}; {hint}")
    return Scenario(kind, seed, num_gpu_blocks, num_cpu_blocks, block_size, tuple(steps))
