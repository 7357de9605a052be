"""How the cost of a call grows with the length of a sequence, from 16 to 16,384 blocks.

A call that an engine makes for each sequence in each step must not depend on the length of the sequence; a call that
takes or releases a whole table is linear in its blocks. The table shows microseconds per call (median over the lives of
a few sequences) and the exponent e of the best fit cost = c * blocks^e, by least squares of the logarithms: 0 for a
call that does not grow, 1 for a linear one. Below 1 a constant part matters; above 1 the tables no longer fit into the
caches of the processor.

vLLM runs the same calls as far as it can: a call that fails is named, and a call that took too long is not made with
longer sequences.
"""

from __future__ import annotations

import gc
import math
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.driven import BLOCK_SIZE, MODES, OURS, Clock, Driven, LightGroup, LightSequence, managers, shown

SIZES = (16, 64, 256, 1_024, 4_096, 16_384)
FLAT_EXPONENT_MAX = 0.1
LINEAR_EXPONENT_MAX = 1.2
FLAT = ("append_slots", "can_append_slots", "can_allocate", "get_block_table")
LINEAR = ("allocate", "fork", "free", "swap out and in")
NUM_APPENDS = 16 * BLOCK_SIZE  # whole blocks, so that opening and filling a block count
FIRST_APPENDS = BLOCK_SIZE + BLOCK_SIZE // 2  # not timed: at the first one, Python's lists grow for many that follow
NUM_REPEATS = 256  # of a call that is too short to be timed alone
TOO_LONG = 250_000.0  # microseconds for one call

Curve = dict[int, float]


@dataclass
class Curves:
    """The costs of one manager by call and size, and why a call has none from some size on."""

    costs: dict[str, Curve]
    stopped: dict[str, str]

    def add(self, size: int, lives: list[dict[str, float]]) -> None:
        """Add the medians of one size."""
        for call in lives[0]:
            cost = statistics.median(life[call] for life in lives)
            self.costs.setdefault(call, {})[size] = cost
            if cost > TOO_LONG:
                self.stop(call, f"not tried beyond {size:,} blocks: {cost / 1e6:,.1f} s")

    def stop(self, call: str, why: str) -> None:
        """Stop measuring the call."""
        self.stopped.setdefault(call, why)


def exponent(curve: Curve) -> float:
    """Return the slope of the logarithms: e of the best fit cost = c * size^e."""
    xs, ys = [math.log(size) for size in curve], [math.log(cost) for cost in curve.values()]
    x_mean, y_mean = statistics.fmean(xs), statistics.fmean(ys)
    covariance = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    return covariance / sum((x - x_mean) ** 2 for x in xs)


def is_as_wanted(call: str, curve: Curve) -> bool:
    """Whether a call grows no faster than it may."""
    return exponent(curve) <= (FLAT_EXPONENT_MAX if call in FLAT else LINEAR_EXPONENT_MAX)


def life(
    driven: Driven, manager: Any, clock: Clock, prompts: Sequence[list[int]], caching: bool, curves: Curves
) -> Iterator[tuple[str, float]]:
    """Every call on sequences with these prompts: its name, and microseconds per call."""
    status = driven.status
    groups = [
        LightGroup(str(number), [LightSequence(number, prompt[:], status.WAITING)])
        for number, prompt in enumerate(prompts)
    ]
    seqs, one = [group.seqs[0] for group in groups], groups[0]
    yield "can_allocate", clock.each(manager.can_allocate, [one] * NUM_REPEATS)
    if caching:
        for seq in seqs:
            manager.get_num_cached_tokens(seq)
    yield "allocate", clock.each(manager.allocate, groups)
    for group, seq in zip(groups, seqs, strict=True):
        seq.status = status.RUNNING
        manager.mark_blocks_as_computed(group, len(seq.tokens))
        seq.num_computed = len(seq.tokens)
    clock.appends(manager, seqs, FIRST_APPENDS)
    yield "append_slots", clock.appends(manager, seqs, NUM_APPENDS)
    one.seqs[0].tokens.append(0)
    yield "can_append_slots", clock.each_pair(manager.can_append_slots, [(one, 0)] * NUM_REPEATS)
    one.seqs[0].tokens.pop()
    yield "get_block_table", clock.each(manager.get_block_table, [seqs[0]] * NUM_REPEATS)
    if "swap out and in" not in curves.stopped:
        yield "swap out and in", clock.round_trip(manager, status, groups)
    children = [LightSequence(len(groups) + seq.seq_id, seq.tokens[:], status.RUNNING) for seq in seqs]
    if "fork" not in curves.stopped:
        try:
            yield "fork", clock.each_pair(manager.fork, list(zip(seqs, children, strict=True)))
        except RecursionError:
            curves.stop("fork", f"RecursionError at {len(prompts[0]) // BLOCK_SIZE:,} blocks")
        else:
            for child in children:
                if caching:
                    manager.get_num_cached_tokens(child)
                manager.free(child)
    yield "free", clock.each(manager.free, seqs)
    manager.reset_prefix_cache()


def measure(driven: Driven, caching: bool, sizes: Sequence[int], num_lives: int) -> Curves:
    """All curves of one manager."""
    curves, draw = Curves({}, {}), random.Random(1)
    for size in sizes:
        num_seqs = max(2, 512 // size)  # short sequences are many, so that each timed loop has some length
        num_blocks = num_seqs * (size + 2 * NUM_APPENDS // BLOCK_SIZE) * 2
        manager = driven.make(
            block_size=BLOCK_SIZE, num_gpu_blocks=num_blocks, num_cpu_blocks=num_blocks, enable_caching=caching
        )
        prompts = [draw.choices(range(32_000), k=size * BLOCK_SIZE) for _ in range(num_seqs)]
        clock = Clock()
        gc.collect()
        gc.disable()
        try:
            dict(life(driven, manager, clock, prompts[:1], caching, curves))  # the interpreter adapts to the manager
            lives = [dict(life(driven, manager, clock, prompts, caching, curves)) for _ in range(num_lives)]
        finally:
            gc.enable()
        curves.add(size, lives)
    return curves


def report(mode: str, name: str, curves: Curves, sizes: Sequence[int]) -> None:
    """Print one table."""
    print(f"\n{mode}, {name}: microseconds per call by blocks of the sequence")
    print(f"  {'':<18}" + "".join(f"{size:>12,}" for size in sizes) + f"{'exponent':>10}  wanted")
    for call in (*FLAT, *LINEAR):
        curve = curves.costs.get(call, {})
        cells = "".join(f"{shown(curve[size]):>12}" if size in curve else f"{'-':>12}" for size in sizes)
        grown = f"{exponent(curve):>10.2f}" if len(curve) > 1 else f"{'':>10}"
        wanted = "constant" if call in FLAT else "linear"
        state = "" if name != OURS or len(curve) < 2 else ": met" if is_as_wanted(call, curve) else ": missed"
        print(f"  {call:<18}{cells}{grown}  {wanted}{state}  {curves.stopped.get(call, '')}".rstrip())


def main(sizes: Sequence[int] = SIZES, num_lives: int = 7) -> dict[str, Any]:
    """Measure and print; returns the figures."""
    driven, missing = managers()
    print(f"growth: sequences of {sizes[0]:,} to {sizes[-1]:,} blocks of {BLOCK_SIZE} tokens, medians of {num_lives}")
    if missing:
        print(missing)
    figures: dict[str, Any] = {"sizes": list(sizes), "missing": missing}
    for mode, caching in MODES.items():
        for one in driven:
            curves = measure(one, caching, sizes, num_lives)
            report(mode, one.name, curves, sizes)
            figures.setdefault(mode, {})[one.name] = {
                call: {
                    "microseconds_per_call": curve,
                    "exponent": exponent(curve) if len(curve) > 1 else None,
                    "is_as_wanted": is_as_wanted(call, curve) if len(curve) > 1 else None,
                    "stopped": curves.stopped.get(call),
                }
                for call, curve in curves.costs.items()
            }
    return figures


if __name__ == "__main__":
    main()
