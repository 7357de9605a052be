"""How fast scopes of the specification are exhausted in C: canonical states and transitions a processor second.

The scopes are large, because each search compares thirty of its states with Python, which is counted. The
library is loaded before the clock starts; the search has one worker.
"""

from __future__ import annotations

import time
from dataclasses import replace

from kvproof.check.protocol.scopes import SCOPES, Scope
from kvproof.check.search.exhaustive.c_reader.exploration import explore_in_c
from kvproof.check.search.exhaustive.c_reader.specification import SpecificationInC
from kvproof.spec.c_reader.library import NoLibrary

STATES_MIN, TRANSITIONS_MIN = 100_000, 500_000  # a second
ROUNDS = 3
SECONDS_MAX = 600.0
EXPLORED: dict[str, Scope] = {
    "rules-tables, 4 blocks, 3 sequences, 4 tokens": replace(
        SCOPES["rules-tables"], num_gpu_blocks=4, num_seqs=3, num_tokens=4
    ),
    "8 blocks, 4 sequences, 10 tokens": Scope(8, num_seqs=4, num_tokens=10),
    "cache-and-swap": SCOPES["cache-and-swap"],
}


def explored(scope: Scope) -> dict[str, float]:
    """The states and transitions of a scope, and how many of each there are in a second; the best of several searches.

    Raises NoLibrary.
    """
    spec, best = SpecificationInC(scope), float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        done = explore_in_c(scope, seconds=SECONDS_MAX, spec=spec)
        best = min(best, time.process_time() - began)
    if not done.is_exhausted:
        raise RuntimeError(f"this scope was not searched whole: {done.text}")
    counts = done.num_states, done.num_operations
    return {
        "states": counts[0],
        "transitions": counts[1],
        "states/s": counts[0] / best,
        "transitions/s": counts[1] / best,
    }


def main() -> dict[str, dict[str, float]]:
    """Measure and print; returns the figures, which are empty without a C compiler."""
    print(f"the specification in C; goal: {STATES_MIN:,} states/s and {TRANSITIONS_MIN:,} transitions/s")
    figures: dict[str, dict[str, float]] = {}
    for name, scope in EXPLORED.items():
        try:
            one = figures[name] = explored(scope)
        except NoLibrary as error:
            print(f"  not measured: {error}")
            break
        print(
            f"  {one['states/s']:>12,.0f} states/s {one['transitions/s']:>12,.0f} transitions/s  {name}: "
            f"{one['states']:,.0f} states, {one['transitions']:,.0f} transitions",
            flush=True,
        )
    return figures
