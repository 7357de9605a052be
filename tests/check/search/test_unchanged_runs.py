"""The runs of the built-in subjects: the same seed draws the same operations, and a scope has the same states.

The digests are recorded in `unchanged_runs.json`. A change that alters them on purpose writes them anew
(`python tests/check/search/test_unchanged_runs.py`) in a commit that says so and why.
"""

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.pool import PoolSubject
from kvproof.check.protocol.scopes import SCOPES, Scope
from kvproof.check.search.exhaustive.manager import explore_subject
from kvproof.check.search.exhaustive.pool import explore_pool
from kvproof.check.search.exhaustive.specification import explore_specification
from kvproof.check.search.manager_operations import walk
from kvproof.check.search.pool_operations import walk_pool
from kvproof.check.search.random_walk import DEFAULT_OPTIONS
from kvproof.check.search.scheduler_operations import walk_loop
from kvproof.check.subjects.registry import find
from kvproof.spec.trace import Operation

RECORDED = Path(__file__).with_name("unchanged_runs.json")
SEEDS = range(1, 11)
NUM_OPERATIONS = 320  # of a walk: a few runs, each in a configuration of its own
NO_LIMIT = 1e6  # seconds
SEARCHES: dict[str, Callable[..., Any]] = {
    "kvproof": walk,
    "kvproof-generation1": walk,
    "kvproof-objects": walk,
    "kvproof-pool": walk_pool,
    "kvproof-scheduler": walk_loop,
}


def walked(name: str, seed: int) -> str:
    """A digest of every configuration and operation of a walk."""
    told: list[tuple[Config, list[Operation]]] = []

    def begin(config: Config) -> list[Operation]:
        told.append((config, []))
        return told[-1][1]

    options = replace(DEFAULT_OPTIONS, begin=begin, run_seconds=NO_LIMIT)
    done = SEARCHES[name](find(name)(), seed, max_operations=NUM_OPERATIONS, seconds=NO_LIMIT, options=options)
    assert done.finding is None
    runs = [[sorted(config.as_dict().items()), operations] for config, operations in told]
    text = json.dumps([runs, sorted(done.kinds.items()), sorted(done.witnesses.items())], default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def explored() -> dict[str, list[int]]:
    """States, transitions and depth of small scopes, of the specification and of subjects."""
    manager, pool = Scope(3, num_seqs=2, num_tokens=3), Scope(2, num_seqs=2, num_tokens=2, caching=True)
    done: dict[str, Any] = {
        "specification tables": explore_specification(SCOPES["rules-tables"], seconds=NO_LIMIT),
        "specification cache": explore_specification(SCOPES["cache"], seconds=NO_LIMIT),
        "kvproof": explore_subject(find("kvproof")(), manager, seconds=NO_LIMIT),
        "kvproof-generation1": explore_subject(find("kvproof-generation1")(), manager, seconds=NO_LIMIT),
        "kvproof-objects": explore_subject(find("kvproof-objects")(), manager, seconds=NO_LIMIT),
        "kvproof-pool": explore_pool(cast(PoolSubject, find("kvproof-pool")()), pool, seconds=NO_LIMIT),
    }
    return {name: [search.states, search.transitions, search.depth] for name, search in done.items()}


def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORDED.read_text())
    return found


@pytest.mark.parametrize("name", SEARCHES)
def test_a_seed_draws_the_operations_that_it_drew_before(name: str) -> None:
    assert {str(seed): walked(name, seed) for seed in SEEDS} == recorded()["walks"][name]


def test_a_scope_has_the_states_that_it_had_before() -> None:
    assert explored() == recorded()["scopes"]


if __name__ == "__main__":
    walks = {name: {str(seed): walked(name, seed) for seed in SEEDS} for name in SEARCHES}
    RECORDED.write_text(json.dumps({"walks": walks, "scopes": explored()}, indent=1) + "\n")
    sys.exit(0)
