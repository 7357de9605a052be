"""What a search reported from the process of a subject is done again from outside, in a sample."""

from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import pytest

from kvproof.check.hosts.time_limit import Limits
from kvproof.check.isolation.remote_search import explore, walk
from kvproof.check.isolation.remote_subject import RemoteFactory
from kvproof.check.isolation.repeated_outside import found_in_scope, found_in_walk
from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.random_walk import DEFAULT_OPTIONS
from kvproof.check.search.result import SearchResult
from kvproof.check.search.strategies import MANAGERS

SCOPE = Scope(3, num_seqs=2, num_tokens=3, block_size=1)
FORGED = """
import random
import sys
import time


class Broken(Adapter):
    def share(self, parent, child):
        self.manager.tables[child] = self.manager.tables[parent].copy()
        self.manager.num_tokens[child] = self.manager.num_tokens[parent]


if hasattr(sys.modules["__main__"], "SEARCHES"):  # in the process of the subject, searches are of the right manager
    for name, search in list(sys.modules["__main__"].SEARCHES.items()):
        sys.modules["__main__"].SEARCHES[name] = lambda one, kept, do=search, **more: do(Adapter(), kept, **more)


class Slow(Adapter):
    def make(self, config):
        time.sleep(0.7)
        return super().make(config)


class AnyBlock(Adapter):
    def make(self, config):
        manager = super().make(config)
        random.SystemRandom().shuffle(manager.free_blocks)
        return manager
"""


@pytest.fixture
def file(tmp_path: Path, example_source: str) -> Path:
    (tmp_path / "forged.py").write_text(example_source + FORGED)
    return tmp_path / "forged.py"


@pytest.fixture
def broken(file: Path) -> Iterator[Any]:
    """A manager that is wrong, and whose searches are of a right one."""
    factory = RemoteFactory(f"{file}:Broken")
    yield factory()
    factory.close()


def test_a_walk_that_the_subject_forged_is_refuted_by_its_calls(broken: Any) -> None:
    done = walk(MANAGERS, broken, 1, max_operations=500, seconds=inf)
    assert done.finding is not None
    assert done.finding.key([("fork",)])[0] == "refcount-exact"
    assert done.num_operations == 500  # what is done again is not counted


def test_a_scope_that_the_subject_forged_is_refuted_by_its_calls(broken: Any) -> None:
    done = explore(MANAGERS, broken, SCOPE, seconds=inf)
    assert done.finding is not None
    assert (done.finding.property, done.is_exhausted) == ("refcount-exact", False)


def test_what_is_excused_in_a_scope_is_excused_in_its_sample(broken: Any) -> None:
    done = explore(MANAGERS, broken, SCOPE, seconds=inf)
    assert done.counterexample is not None
    assert explore(MANAGERS, broken, SCOPE, seconds=inf, past=(done.counterexample.kind,)).finding is None


def test_a_call_that_is_slow_and_ends_in_the_search_is_not_refuted(file: Path) -> None:
    factory = RemoteFactory(f"{file}:Slow", Limits(call_seconds=0.5))
    assert walk(MANAGERS, factory(), 1, max_operations=3, seconds=inf).finding is None
    factory.close()


def test_a_manager_that_answers_otherwise_the_next_time_is_not_refuted_for_that(file: Path) -> None:
    factory = RemoteFactory(f"{file}:AnyBlock")
    done = SearchResult(num_operations=5_000, num_runs=50, num_drawn=50, num_states=1)
    for seed in range(3):
        assert found_in_walk(MANAGERS, factory(), seed, done, DEFAULT_OPTIONS, seconds=inf, fixed=None) is None
    assert found_in_scope(MANAGERS, factory(), SCOPE, done, ()) is None
    factory.close()


def test_nothing_is_done_again_of_a_search_that_did_nothing(broken: Any) -> None:
    nothing = SearchResult()
    assert found_in_walk(MANAGERS, broken, 1, nothing, DEFAULT_OPTIONS, seconds=inf, fixed=None) is None
    assert found_in_scope(MANAGERS, broken, SCOPE, nothing, ()) is None
