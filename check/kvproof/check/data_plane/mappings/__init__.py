"""The mappings to move: named kinds of scenarios, reproducible from a seed.

Adversarial kinds are drawn to break movers (`adversarial`). The other kinds are emitted by kvproof's block manager:
under its scheduler (`scheduled`), and in random runs (`emitted`).
"""

import difflib
from collections.abc import Callable
from random import Random

from kvproof.check.data_plane.mappings import adversarial, emitted, scheduled
from kvproof.check.data_plane.memory.layouts import UnknownSetting
from kvproof.check.data_plane.steps.moves import Scenario, Step

__all__ = ["ADVERSARIAL", "KINDS", "scenario"]

ADVERSARIAL: dict[str, Callable[[Random, adversarial.Pools], list[Step]]] = adversarial.KINDS
KINDS: tuple[str, ...] = (*ADVERSARIAL, *scheduled.LOADS, *emitted.NAMES)


def scenario(kind: str, seed: int, num_gpu_blocks: int, num_cpu_blocks: int, block_size: int) -> Scenario:
    """The scenario of a kind, for pools of these sizes. Raises UnknownSetting if there is no such kind.

    Kinds of the scheduler need at least 8 GPU blocks. The random runs have pools of 16 blocks; what does not
    fit is left out.
    """
    if kind in ADVERSARIAL:
        pools = adversarial.Pools(num_gpu_blocks, num_cpu_blocks, block_size)
        steps = ADVERSARIAL[kind](Random(f"{kind} {seed}"), pools)
    elif kind in scheduled.LOADS:
        steps = scheduled.steps_of(kind, seed, num_gpu_blocks, num_cpu_blocks, block_size)
    elif kind in emitted.NAMES:
        steps = emitted.steps_of(num_gpu_blocks, num_cpu_blocks)
    else:
        close = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"choose one of {', '.join(KINDS)}"
        raise UnknownSetting(f"no kind of mapping is named {kind!r}; {hint}")
    return Scenario(kind, seed, num_gpu_blocks, num_cpu_blocks, block_size, tuple(steps))
