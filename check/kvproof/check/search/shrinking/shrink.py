"""From a counterexample to the shortest one that can be found in a given time: shrink it, and look for others.

The place at which a walk first meets a fault limits how short shrinking can make its run. While the run is long, other
walks look for the same kind of finding, and the simplest of all is taken.
"""

from collections.abc import Callable
from dataclasses import asdict
from time import monotonic
from typing import Any

from kvproof.check.oracle.replay import Counterexample
from kvproof.check.search.random_walk import WalkOptions, walk
from kvproof.check.search.shrinking.passes import PASSES
from kvproof.check.search.shrinking.shrinker import Shrinker, sort_key
from kvproof.check.search.strategies import Strategy

LONG = 8  # operations; more are hard to keep in mind
NUM_WALKED_MAX = 5_000  # operations of one walk that looks for a shorter run


def shrink(subject: Any, found: Counterexample, seconds: float) -> Counterexample:
    """The simplest run found within `seconds` that refutes the same property in the same way."""
    return Shrinker(subject, found, monotonic() + seconds).run(PASSES)


def shortest(
    strategy: Strategy,
    make: Callable[[], Any],
    found: Counterexample,
    *,
    seconds: float,
    seed: int,
    long: int = LONG,
    walks: int | None = None,
) -> Counterexample:
    """Shrink; while the run has more than `long` operations, walk again to the same kind of finding.

    Half of the walks are in the configuration of the best run, which is small, and half in any. walks: how many there
    are at most, None for no limit; they are counted and not timed, so that a run repeats on a slower machine.
    """
    deadline = monotonic() + seconds
    best = shrink(make(), found, seconds)
    last = None if walks is None else seed + walks
    while len(best.operations) > long and seed != last and (left := deadline - monotonic()) > 0:
        seed += 1
        fixed = asdict(best.config) if seed % 2 else None
        options = WalkOptions(wanted=found.finding.kind)
        done = walk(strategy, make(), seed, max_operations=NUM_WALKED_MAX, seconds=left, fixed=fixed, options=options)
        if done.counterexample is not None:
            other = shrink(make(), done.counterexample, deadline - monotonic())
            best = min(best, other, key=lambda one: sort_key(one.config, one.operations))
    return best
