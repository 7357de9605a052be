"""A mover of blocks that can be made worse on purpose: the executor `gpu_movers.py:move`.

It is kvproof's engine. For `gpu_regressions`, PLANTED=slow in the environment makes a quarter of its copies twice, so
that it is right and 20 % slower. For `gpu_breaking`, PLANTED=wrong moves one pair of each list of 40 and more to the
target of another one, PLANTED=outside starts a kernel that writes outside of all memory, and PLANTED=endless one that
spins for a minute and more, each after every step.
"""

from __future__ import annotations

import os
from dataclasses import replace

import torch

from kvproof.check.data_plane.memory.world import Caches
from kvproof.check.data_plane.steps.moves import Moves, Pair
from kvproof.impl.kv_cache_engine import BlockMover

PLANTED = os.environ.get("PLANTED", "")
LIST_MIN = 40  # pairs of a list that PLANTED=wrong changes
FAR = 1 << 44  # bytes; no tensor lies there
SPIN_CYCLES = 200_000_000_000  # 100 s at 2 GHz: longer than kvproof waits for anything, and not for ever
_movers: dict[tuple[object, ...], BlockMover] = {}


def move(caches: Caches, moves: Moves) -> None:
    """The lists of one step, in the worker's order."""
    mover = _mover(caches)
    if PLANTED == "wrong":
        moves = replace(
            moves, swap_in=_exchanged(moves.swap_in), swap_out=_exchanged(moves.swap_out), copy=_exchanged(moves.copy)
        )
    for call, pairs in ((mover.swap_in, moves.swap_in), (mover.swap_out, moves.swap_out), (mover.copy, moves.copy)):
        call(pairs)
        if PLANTED == "slow":
            call(pairs[: len(pairs) // 4])
    if PLANTED == "outside":
        _write_outside(caches.gpu_planes[0])
    elif PLANTED == "endless":
        torch.cuda._sleep(SPIN_CYCLES)  # type: ignore[no-untyped-call]


def _write_outside(plane: torch.Tensor) -> None:
    from benchmarks.gpu_stray_kernel import write_outside

    write_outside[(1,)](plane, FAR // plane.itemsize)


def _exchanged(pairs: tuple[Pair, ...]) -> tuple[Pair, ...]:
    if len(pairs) < LIST_MIN:
        return pairs
    (first, its), (second, other) = pairs[:2]
    return ((first, other), (second, its), *pairs[2:])


def _mover(caches: Caches) -> BlockMover:
    """The mover for these caches; a mover prepares a table, which must not count as time of a step."""
    planes = [*caches.gpu_planes, *caches.cpu_planes]
    key = tuple((plane.data_ptr(), tuple(plane.shape), plane.stride()) for plane in planes)
    if key not in _movers:
        _movers.clear()
        _movers[key] = BlockMover(caches.gpu_planes, caches.cpu_planes)
    return _movers[key]
