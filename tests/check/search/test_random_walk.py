"""What a walk does to the process that it runs in."""

import gc
from typing import Any

import pytest

from kvproof.check.protocol.manager import Config
from kvproof.check.search.random_walk import NUM_NEW_OBJECTS, walk
from kvproof.check.search.strategies import MANAGERS
from kvproof.check.subjects.builtin.manager import BuiltIn


@pytest.mark.parametrize(("before", "within"), [(700, NUM_NEW_OBJECTS), (0, 0), (50_000, 50_000)])
def test_a_walk_collects_garbage_seldom_and_leaves_the_thresholds_as_they_were(before: int, within: int) -> None:
    seen = set[int]()

    class Watched(BuiltIn):
        def make(self, config: Config) -> Any:
            seen.add(gc.get_threshold()[0])
            return super().make(config)

    usual = gc.get_threshold()
    gc.set_threshold(before, *usual[1:])
    try:
        walk(MANAGERS, Watched(), 1, max_operations=1, seconds=60)
        after = gc.get_threshold()
    finally:
        gc.set_threshold(*usual)

    assert seen == {within}
    assert after == (before, *usual[1:])
