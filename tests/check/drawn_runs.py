"""Strategies that draw runs of each level, as the walk draws them on kvproof's own subjects, and parts of such runs."""

from functools import cache
from random import Random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from kvproof.check.protocol.manager import Config, Unsupported
from kvproof.check.search.strategies import STRATEGIES
from kvproof.check.subjects.registry import find
from kvproof.spec.trace import Operation

SUBJECTS = {
    "manager": "kvproof",
    "scheduler": "kvproof-scheduler",
    "pool": "kvproof-pool",
    "store": "kvproof-store",
}
NUM_SEEDS, LENGTH = 60, 25
Run = tuple[Config, list[Operation]]


def cheaply(num_examples: int) -> settings:
    """The settings of a property in the default suite: the same examples each time, and nothing kept of them."""
    return settings(
        max_examples=num_examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


@cache
def run_of(level: str, seed: int) -> Run:
    """The run of a seed: its configuration and its operations."""
    strategy, random = STRATEGIES[level], Random(seed)
    subject: Any = find(SUBJECTS[level])()
    while True:
        operations: list[Operation] = []
        config = strategy.draw_config(random, subject.capabilities)
        try:
            strategy.generator(subject, random, config, frozenset()).run(operations, LENGTH)
        except Unsupported:
            continue
        return config, operations


def runs(level: str) -> st.SearchStrategy[Run]:
    """A configuration, and the begin of a run in it; smaller examples are shorter."""

    def cut(seed: int, length: int) -> Run:
        config, operations = run_of(level, seed)
        return config, operations[:length]

    return st.builds(cut, st.integers(0, NUM_SEEDS - 1), st.integers(1, LENGTH))


def runs_of_any_level() -> st.SearchStrategy[Run]:
    """A run of any level."""
    return st.sampled_from(sorted(SUBJECTS)).flatmap(runs)
