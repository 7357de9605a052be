"""An evictor that takes another than the least recently used is found, where the subject declares that policy."""

from collections.abc import Callable

import pytest

from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import MANAGERS
from kvproof.check.subjects.registry import find
from kvproof.impl.evictor import LRUEvictor, Rank

SMALL = {"caching": True, "num_host_blocks": 0, "block_size": 1, "num_gpu_blocks": 3, "lookahead": 0}
FAULTS: dict[str, Callable[[Rank], Rank]] = {
    "the newest goes first": lambda rank: (-rank[0], rank[1], rank[2]),
    "the shortest prefix goes first": lambda rank: (rank[0], -rank[1], rank[2]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_evictor_that_takes_another_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    add_ranked = LRUEvictor._add_ranked
    monkeypatch.setattr(
        LRUEvictor,
        "_add_ranked",
        lambda self, ranks, contents: add_ranked(self, [FAULTS[fault](r) for r in ranks], contents),
    )
    finding = walk(MANAGERS, find("kvproof")(), 0, max_operations=50_000, seconds=20, fixed=SMALL).finding
    assert finding is not None
    assert finding.property == "eviction-order"


def test_the_evictor_of_kvproof_is_believed_only_after_it_had_a_choice() -> None:
    done = walk(MANAGERS, find("kvproof")(), 0, max_operations=10_000, seconds=20, fixed=SMALL)
    assert done.finding is None
    assert done.coverage["eviction with a choice"] > 0
