"""Runs that begin with an opening reach states that a random run seldom reaches."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from random import Random

import pytest

from kvproof.check.oracle.replay import finding_of
from kvproof.check.protocol.manager import Config
from kvproof.check.search.openings import opening
from kvproof.check.search.prompts import Prompts
from kvproof.check.subjects.builtin.manager import BuiltIn

Plant = Callable[[str, str, str, str], AbstractContextManager[None]]
NUM_DRAWN = 60
LANDING = Config(block_size=2, num_gpu_blocks=9, num_host_blocks=9, window=3)
FILLED = Config(block_size=4, num_gpu_blocks=8, caching=True, images=True)
FAULTS = (
    (
        Config(block_size=2, caching=True),
        (
            "kvproof.impl.evictor",
            "LRUEvictor._drop_stale",
            "self._waiting[:] = self._ranks.values()",
            "self._waiting.clear()",
        ),
        "admission-sound",
    ),
    (
        LANDING,
        ("kvproof.impl.block_manager", "SelfAttnBlockSpaceManager.fork", "self._landed.clear()", "pass"),
        "admission-exact",
    ),
    (
        Config(block_size=2, num_gpu_blocks=9, num_host_blocks=9, caching=True),
        (
            "kvproof.impl.block_manager",
            "SelfAttnBlockSpaceManager.swap_in",
            "self._landed.update(mapping.values())",
            "pass",
        ),
        "mapping-hazard-free",
    ),
    (
        Config(block_size=2, num_gpu_blocks=9, caching=True),
        (
            "kvproof.impl.evictor",
            "LRUEvictor._sort_waiting",
            "bisect_left(waiting, queue[-1]) if queue else 0",
            "0",
        ),
        "eviction-order",
    ),
    (
        Config(block_size=2, caching=True, images=True),
        (
            "kvproof.impl.table",
            "contents_of",
            "extra, beside))",
            "extra, beside and tuple(name for name, _ in beside)))",
        ),
        "hit-computed",
    ),
    (
        FILLED,
        ("kvproof.impl.growth", "Growth.append_filling", "table.extra, beside", "table.extra, None"),
        "hit-computed",
    ),
    (
        FILLED,
        ("kvproof.impl.growth", "Growth.append_filling", "before.num_needs -= 1", "pass"),
        "no-leak-at-rest",
    ),
)


@pytest.mark.parametrize(("config", "fault", "expected"), FAULTS)
def test_an_opening_shows_its_fault(
    config: Config, fault: tuple[str, str, str, str], expected: str, plant: Plant
) -> None:
    random, can = Random(1), BuiltIn.capabilities
    drawn = [opening(random, config, can, Prompts(random, config, 40)) for _ in range(NUM_DRAWN)]
    runs = [operations for operations in drawn if operations]

    assert all(finding_of(BuiltIn(), config, operations) is None for operations in runs[:4])
    with plant(*fault):
        findings = [finding_of(BuiltIn(), config, operations) for operations in runs]
    assert expected in {finding.property for finding in findings if finding}


def test_groups_of_several_sequences_have_no_opening() -> None:
    random, config = Random(1), Config(group_size=2, caching=True)

    assert not any(opening(random, config, BuiltIn.capabilities, Prompts(random, config, 40)) for _ in range(NUM_DRAWN))
