"""The runs of the built-in subjects: the same seed draws the same operations, and a scope has the same states.

The digests are recorded in `unchanged_runs.json`. A change that alters them on purpose records them again
(`python tests/check/search/test_unchanged_runs.py`) in a commit that says so and why.
"""

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.scopes import SCOPES, Scope
from kvproof.check.search.exhaustive.specification import explore_specification
from kvproof.check.search.exhaustive.subject import explore
from kvproof.check.search.random_walk import DEFAULT_OPTIONS, walk
from kvproof.check.search.strategies import strategy_of
from kvproof.check.subjects.registry import find
from kvproof.spec.trace import Operation

RECORDED = Path(__file__).with_name("unchanged_runs.json")
SEEDS = range(1, 11)
NUM_OPERATIONS = 320  # of a walk: a few runs, each in a configuration of its own
NO_LIMIT = 1e6  # seconds
SUBJECTS = ("kvproof", "kvproof-generation1", "kvproof-objects", "kvproof-pool", "kvproof-scheduler")
SMALLER = Scope(3, num_seqs=2, num_tokens=2)
SMALL_SCOPES: dict[str, tuple[str | None, Scope]] = {  # what is explored, the specification if it is None
    "specification tables": (None, SCOPES["rules-tables"]),
    "kvproof": ("kvproof", Scope(3, num_seqs=2, num_tokens=3)),
    "kvproof of two tokens": ("kvproof", SMALLER),
    "kvproof-generation1": ("kvproof-generation1", SMALLER),
    "kvproof-objects": ("kvproof-objects", SMALLER),
    "kvproof-pool": ("kvproof-pool", Scope(2, num_seqs=2, num_tokens=2, caching=True)),
}
LARGER = {"kvproof"}  # takes three seconds


def walked(name: str, seed: int) -> str:
    """A digest of every configuration and operation of a walk."""
    runs_begun: list[tuple[Config, list[Operation]]] = []

    def begin(config: Config) -> list[Operation]:
        runs_begun.append((config, []))
        return runs_begun[-1][1]

    options = replace(DEFAULT_OPTIONS, begin=begin, call_seconds=NO_LIMIT)
    subject = find(name)()
    done = walk(strategy_of(subject), subject, seed, max_operations=NUM_OPERATIONS, seconds=NO_LIMIT, options=options)
    assert done.finding is None
    runs = [[sorted(config.as_dict().items()), operations] for config, operations in runs_begun]
    text = json.dumps([runs, sorted(done.kinds.items()), sorted(done.coverage.items())], default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def explored(name: str) -> list[int]:
    """States, transitions and depth of a small scope; `test_specification` has those of further scopes."""
    subject, scope = SMALL_SCOPES[name]
    if subject is None:
        search = explore_specification(scope, seconds=NO_LIMIT)
    else:
        one = find(subject)()
        search = explore(strategy_of(one), one, scope, seconds=NO_LIMIT)
    return [search.num_states, search.num_operations, search.depth]


def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORDED.read_text())
    return found


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_seed_draws_the_operations_that_it_drew_before(name: str) -> None:
    assert {str(seed): walked(name, seed) for seed in SEEDS} == recorded()["walks"][name]


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.long] * (one in LARGER)) for one in SMALL_SCOPES]
)
def test_a_scope_has_the_states_that_it_had_before(name: str) -> None:
    assert explored(name) == recorded()["scopes"][name]


def test_every_subject_that_is_explored_is_recorded() -> None:
    assert recorded()["scopes"].keys() == SMALL_SCOPES.keys()
    by_default = {subject for name, (subject, _) in SMALL_SCOPES.items() if name not in LARGER}
    assert by_default == {subject for subject, _ in SMALL_SCOPES.values()}


if __name__ == "__main__":
    walks = {name: {str(seed): walked(name, seed) for seed in SEEDS} for name in SUBJECTS}
    RECORDED.write_text(
        json.dumps({"walks": walks, "scopes": {name: explored(name) for name in SMALL_SCOPES}}, indent=1) + "\n"
    )
    sys.exit(0)
