"""Runs with partings: groups of different requests copy shared blocks in one step."""

from random import Random

import pytest

from kvproof.check.protocol.manager import Config
from kvproof.check.search import partings
from kvproof.check.search.manager_operations import ManagerOperations
from kvproof.check.subjects.registry import find


def num_groups_that_copy(seed: int) -> int:
    """The most groups that copy blocks in one step of a run, between its first 150 operations."""
    run = ManagerOperations(find("kvproof")(), Random(seed), Config(block_size=2, num_gpu_blocks=16, caching=True))
    most, copying = 0, set[int]()
    for _ in range(150):
        operation = run.draw()
        assert operation is not None
        assert run.judge.is_enabled(*operation)
        num_copies = len(run.judge.worker.copies)
        run.judge.apply(operation)
        if operation[0] == "append" and len(run.judge.worker.copies) > num_copies:
            copying.add(operation[1])
            most = max(most, len(copying))
        if operation[0] == "run":
            copying.clear()
    return most


def test_groups_part_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partings, "RUN_SHARE", 1.0)
    assert max(map(num_groups_that_copy, range(4))) >= 2


def test_without_partings_one_group_at_a_time_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partings, "RUN_SHARE", 0.0)
    assert max(map(num_groups_that_copy, range(4))) < 2
