"""Runs with scenarios reach states that a random run seldom reaches."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from random import Random

import pytest

from kvproof.check.oracle.replay import finding_of
from kvproof.check.protocol.manager import Config
from kvproof.check.search import scenarios
from kvproof.check.search.manager_operations import ManagerOperations
from kvproof.check.search.prompts import Prompts
from kvproof.check.search.scenarios import beginning
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.check.subjects.registry import find

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
        Config(block_size=2, num_gpu_blocks=9, num_host_blocks=9, caching=True),
        (
            "kvproof.impl.block_manager",
            "SelfAttnBlockSpaceManager.swap_in",
            "self._landed.update(mapping.values())",
            "self._landed = set(mapping.values())",
        ),
        "mapping-hazard-free",
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
def test_a_scenario_shows_its_fault(
    config: Config, fault: tuple[str, str, str, str], expected: str, plant: Plant
) -> None:
    random, can = Random(1), BuiltIn.capabilities
    drawn = [beginning(random, config, can, Prompts(random, config, 40)) for _ in range(NUM_DRAWN)]
    runs = [operations for operations in drawn if operations]

    assert all(finding_of(BuiltIn(), config, operations) is None for operations in runs[:4])
    with plant(*fault):
        findings = [finding_of(BuiltIn(), config, operations) for operations in runs]
    assert expected in {finding.property for finding in findings if finding}


def test_a_group_returns_beside_a_prefix_that_others_read(plant: Plant) -> None:
    random, subject = Random(1), find("kvproof-generation1")
    config = Config(block_size=2, num_gpu_blocks=8, num_host_blocks=8, prefixes=True, watermark=0.3)
    drawn = [beginning(random, config, BuiltIn.capabilities, Prompts(random, config, 40)) for _ in range(NUM_DRAWN)]
    runs = [operations for operations in drawn if operations]
    fault = "kvproof.impl.vllm_api.generation1", "BlockSpaceManagerV1._is_idle", "all(", "bool("

    assert all(finding_of(subject(), config, operations) is None for operations in runs)
    with plant(*fault):
        findings = [finding_of(subject(), config, operations) for operations in runs]
    assert "admission-sound" in {finding.property for finding in findings if finding}


def test_a_run_with_groups_of_several_sequences_begins_with_no_scenario() -> None:
    random, config = Random(1), Config(group_size=2, caching=True)
    prompts = Prompts(random, config, 40)

    assert not any(beginning(random, config, BuiltIn.capabilities, prompts) for _ in range(NUM_DRAWN))


def a_run(seed: int, without: frozenset[str] = frozenset()) -> ManagerOperations:
    config = Config(block_size=2, num_gpu_blocks=16, caching=True)
    return ManagerOperations(BuiltIn(), Random(seed), config, without)


def num_groups_that_copy(seed: int) -> int:
    """The most groups that copy blocks in one step of a run, between its first 150 operations."""
    run = a_run(seed)
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


def test_beams_of_several_groups_diverge_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios, "RUN_SHARE", 1.0)
    assert max(map(num_groups_that_copy, range(6))) >= 2


def test_without_scenarios_one_group_at_a_time_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios, "RUN_SHARE", 0.0)
    assert max(map(num_groups_that_copy, range(6))) < 2


def kinds_of_scenarios(run: ManagerOperations) -> set[str]:
    """The kinds of operation that scenarios have in 200 operations of a run."""
    assert run.scenarios is not None
    kinds = set[str]()
    for _ in range(200):
        if (operation := run.scenarios.draw()) is not None:
            kinds.add(operation[0])
        operation = operation or run.draw()
        assert operation is not None
        run.judge.apply(operation)
    return kinds


def test_a_scenario_leaves_out_what_its_run_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHARE", "RUN_SHARE", "STEP_SHARE"):
        monkeypatch.setattr(scenarios, name, 1.0)
    disabled = frozenset({"preempt", "fork"})
    every = set[str]().union(*(kinds_of_scenarios(a_run(seed)) for seed in range(4)))
    some = set[str]().union(*(kinds_of_scenarios(a_run(seed, disabled)) for seed in range(4)))
    assert every == {"new", "admit", "run", "preempt", "fork", "sample", "append"}
    assert some == every - disabled
