"""Pools and schedulers do exactly what they list as enabled; managers: `manager/test_enabled.py`."""

from random import Random
from typing import Any

import pytest

from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.search.strategies import POOLS, SCHEDULERS, Strategy
from kvproof.check.subjects.registry import find

NUM_RUNS, RUN_LENGTH, UNUSED = 6, 40, 999
REST: dict[str, tuple[Any, ...]] = {"share": (UNUSED,)}  # arguments after the first, of an operation about something


@pytest.mark.parametrize(("strategy", "subject"), [(POOLS, "kvproof-pool"), (SCHEDULERS, "kvproof-scheduler")])
def test_an_operation_is_done_exactly_if_it_is_listed_as_enabled(strategy: Strategy, subject: str) -> None:
    num_refused = num_done = 0
    for seed in range(NUM_RUNS):
        random, one = Random(seed), find(subject)()
        run: Any = strategy.generator(
            one, random, strategy.draw_config(random, capabilities_of(one), None), frozenset()
        )
        for _ in range(RUN_LENGTH):
            listed = run.judge.enabled()
            for kind, handler in run.judge.handlers.items():
                if kind not in listed:
                    assert not run.judge.is_enabled(kind)
                if (about := handler.rule.about) is not None:
                    numbers = {*about(run.judge.parts[handler.place]), UNUSED}
                    assert {n for n in numbers if run.judge.is_enabled(kind, n)} == {*listed.get(kind, ())}
                    assert not run.judge.apply((kind, UNUSED, *REST.get(kind, ())))
                    num_refused += 1
            operation = run.draw()
            is_listed = operation[0] in listed
            assert run.judge.apply(operation) == is_listed, operation
            num_done += is_listed
    assert min(num_refused, num_done) > RUN_LENGTH
