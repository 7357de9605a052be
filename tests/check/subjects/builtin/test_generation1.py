"""The first generation's manager in lockstep with the specification."""

from __future__ import annotations

import pytest

from kvproof.check.protocol.manager import Config, Unsupported
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import MANAGERS
from kvproof.check.subjects.builtin.generation1 import Generation1


@pytest.mark.parametrize("seed", [1, 2])
def test_a_walk_finds_nothing_and_no_hit_is_missed(seed: int) -> None:
    done = walk(MANAGERS, Generation1(), seed, max_operations=8_000, seconds=200)
    assert done.finding is None
    assert done.notes["hit-complete"] == 0
    for witness in (
        "window left an entry",
        "copy-on-write",
        "swap_in",
        "hit on an evictable block",
        "cross-attention table",
        "reset",
    ):
        assert done.coverage[witness] > 0, witness


@pytest.mark.parametrize(
    "config", [Config(lookahead=1), Config(window=4, chunked=True), Config(window=4, caching=True)]
)
def test_what_the_first_generation_cannot_have_is_unsupported(config: Config) -> None:
    with pytest.raises(Unsupported):
        Generation1().open(config)


def test_a_walk_with_named_prefixes_finds_nothing() -> None:
    done = walk(MANAGERS, Generation1(), 1, max_operations=3_000, seconds=200, fixed={"prefixes": True})
    assert done.finding is None
    for witness in ("named prefix allocated", "named prefix shared", "named prefix hit", "swap_in"):
        assert done.coverage[witness] > 0, witness


@pytest.mark.parametrize("config", [Config(prefixes=True, window=4), Config(prefixes=True, caching=True)])
def test_named_prefixes_stand_neither_beside_a_window_nor_beside_a_prefix_cache(config: Config) -> None:
    with pytest.raises(Unsupported, match="named prefixes together"):
        Generation1().open(config)
