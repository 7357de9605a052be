"""What another manager has moved in its walk is linted and moved again, and a verdict says whose mappings they were."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from kvproof.check.data_plane.executors import BUILT_IN
from kvproof.check.data_plane.executors.base import Executor
from kvproof.check.data_plane.memory.world import Caches
from kvproof.check.data_plane.steps.moves import Moves
from kvproof.check.hunting.findings import Saving
from kvproof.check.hunting.head import here
from kvproof.check.hunting.moved import moved_in
from kvproof.check.hunting.store import ResultStore
from kvproof.check.hunting.unit import SMALL, Walk
from kvproof.check.isolation.factory import factory_for
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config, ManagerSubject, Scheduled, Unsupported
from kvproof.check.runs.data_plane_stage import (
    NOTHING_TO_MOVE,
    SECONDS_MIN,
    EmittingManager,
    emitted_stages,
)
from kvproof.check.runs.session import Stage, StageBudget
from kvproof.check.runs.store import Store
from kvproof.check.runs.verdicts import NO_TIME
from kvproof.check.subjects.builtin.generation1 import Generation1
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.check.subjects.loading import download
from kvproof.reports.data_plane_result import DataPlane
from kvproof.reports.result import Check
from kvproof.spec.verdict import Verdict

Make = Callable[[], ManagerSubject]
ALL = ("swap-mapping", "cow-copied", "mapping-hazard-free")


class Excusing(Saving):
    """Excuses every finding."""

    def is_excused(self, found: object) -> bool:
        return True


def moving(make: Make, saving: Saving, walk: Walk) -> tuple[Stage, DataPlane | None]:
    (stage,), plane = emitted_stages(
        EmittingManager(saving.subject, moved_in(walk, saving, here(make, saving.results))), make()
    )
    return stage, plane


def checks_of(stage: Stage, seconds: float = 1_000.0) -> dict[str, tuple[Verdict, str]]:
    checks = [one for one in stage.run(StageBudget(1, seconds, lambda count: None)) if isinstance(one, Check)]
    return {check.property: (check.verdict, check.text) for check in checks}


def checks_alone(make: Make, folder: Path, kind: type[Saving] = Saving) -> dict[str, tuple[Verdict, str]]:
    """The checks of the judge of the data plane without a walker before it."""
    saving = kind(make, "first", 1, Store(folder))
    return checks_of(moving(make, saving, saving.walk(SMALL))[0])


def test_a_walk_keeps_different_steps_of_every_kind_and_the_same_ones_each_time(tmp_path: Path) -> None:
    saving = Saving(Generation1, "first", 1, Store(tmp_path))
    walks = [saving.walk(SMALL), saving.walk(SMALL)]
    for walk in walks:
        list(here(Generation1).walk_on(walk))
    moved = walks[0].total.moved
    assert moved == walks[1].total.moved
    assert set(moved) >= {"swap_in", "swap_out", "copy", "swap_in, swap_out"}
    assert max(len(steps) for steps in moved.values()) == 12
    assert all(len({str(lists) for lists in steps}) == len(steps) for steps in moved.values())
    assert max(len(lists[1]) for steps in moved.values() for lists in steps) > 6  # more than three pairs


def test_the_bytes_are_those_of_the_walkers_walk_and_nothing_is_walked_again(tmp_path: Path) -> None:
    saving = Saving(Generation1, "first", 1, Store(tmp_path))
    walk = saving.walk(10 * SMALL)
    next(here(Generation1).walk_on(walk))
    stage, plane = moving(Generation1, saving, walk)
    assert checks_of(stage) == dict.fromkeys(ALL, (Verdict.NOT_REFUTED, ""))
    assert walk.total.num_operations == SMALL
    assert plane is not None
    assert {case.mapping for case in plane.cases} == {"of first"}
    assert plane.notes[0] == "The mappings are those of first; the engine that executed them is kvproof's."


def test_without_a_walker_one_unit_of_the_walk_is_done_and_kept(tmp_path: Path) -> None:
    saving = Saving(Generation1, "first", 1, Store(tmp_path))
    saving.results = ResultStore(tmp_path / "units.sqlite")
    walk = saving.walk(10 * SMALL)
    assert checks_of(moving(Generation1, saving, walk)[0]) == dict.fromkeys(ALL, (Verdict.NOT_REFUTED, ""))
    assert walk.total.num_operations == SMALL
    again = saving.walk(10 * SMALL)
    (unit, *_) = again.units()
    assert saving.results.result_of(unit.key, type(walk.total)) is not None
    saving.results.close()


def test_an_engine_that_loses_the_last_copy_of_a_step_is_refuted_by_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def prepare(caches: Caches) -> Callable[[Moves], object]:
        move = BUILT_IN["block-copy"].prepare(caches)
        return lambda moves: move(replace(moves, copy=moves.copy[:-1]))

    monkeypatch.setitem(BUILT_IN, "engine", Executor("engine", prepare))
    checks = checks_alone(Generation1, tmp_path)
    assert checks["cow-copied"][0] is Verdict.REFUTED
    assert "mapping of first, seed 1: after step " in checks["cow-copied"][1]
    assert "still holds what it held before the step" in checks["cow-copied"][1]
    assert checks["swap-mapping"][0] is not Verdict.REFUTED


class EndsEarly(Generation1):
    """Every run of it ends with its sixth step."""

    def make(self, config: Config) -> Any:
        self.num_steps = 0
        return super().make(config)

    def step_done(self, step: list[Scheduled]) -> None:
        self.num_steps += 1
        if self.num_steps == 6:
            raise KeyError("a fault")
        super().step_done(step)


def test_the_steps_behind_the_first_finding_are_moved_too(tmp_path: Path) -> None:
    saving = Saving(EndsEarly, "first", 1, Store(tmp_path))
    walk = saving.walk(10 * SMALL)
    assert checks_of(moving(EndsEarly, saving, walk)[0]) == dict.fromkeys(ALL, (Verdict.NOT_REFUTED, ""))
    assert walk.total.num_operations == SMALL
    assert len(walk.found) > 9


@pytest.mark.engine
def test_what_vllm_emits_is_moved_by_our_engine(tmp_path: Path) -> None:
    download.add("vllm==0.9.2")
    checks = checks_alone(factory_for("vllm-v0==0.9.2"), tmp_path)
    assert {verdict for verdict, _ in checks.values()} == {Verdict.NOT_REFUTED}


def test_when_there_was_no_time_to_walk_nothing_is_claimed(tmp_path: Path) -> None:
    saving = Saving(Generation1, "first", 1, Store(tmp_path))
    stage, plane = moving(Generation1, saving, saving.walk(0))
    assert checks_of(stage, SECONDS_MIN) == dict.fromkeys(ALL, (Verdict.UNKNOWN, NO_TIME))
    assert plane is not None
    assert plane.cases == []


class Patient(BuiltIn):
    """A manager that neither swaps nor forks."""

    capabilities = Capabilities()


def test_a_manager_that_can_move_nothing_is_unsupported(tmp_path: Path) -> None:
    saving = Saving(Patient, "patient", 1, Store(tmp_path))
    stage, plane = moving(Patient, saving, saving.walk(SMALL))
    assert plane is None
    assert [(check.verdict, check.text) for check in stage.planned_checks] == [
        (Verdict.UNSUPPORTED, NOTHING_TO_MOVE)
    ] * 3
    assert list(stage.run(StageBudget(1, 30.0, lambda count: None))) == []


class Picky(BuiltIn):
    """It refuses every configuration."""

    def make(self, config: Config) -> NoReturn:
        raise Unsupported("block sizes other than 3 are not supported")


class Lying(BuiltIn):
    """It breaks a promise before it moves anything."""

    def make(self, config: Config) -> NoReturn:
        raise Finding("total-calls", "it cannot be made")


@pytest.mark.parametrize(
    ("make", "kind", "verdict", "text"),
    [
        (Picky, Saving, Verdict.UNKNOWN, "no configuration that was drawn: it raises Unsupported for each"),
        (Lying, Saving, Verdict.UNKNOWN, "findings (total-calls) ended the runs of first before they moved a block"),
        (Lying, Excusing, Verdict.UNSUPPORTED, "known findings (total-calls) ended the runs of first before"),
    ],
    ids=["refuses every configuration", "a new finding", "a known finding"],
)
def test_a_manager_whose_walk_moved_nothing_is_not_passed_and_the_reason_is_named(
    make: Make, kind: type[Saving], verdict: Verdict, text: str, tmp_path: Path
) -> None:
    for found, said in checks_alone(make, tmp_path, kind).values():
        assert found is verdict
        assert text in said
