"""A search in units finds and counts the same, however many workers there are and in whatever order they answer."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.check.forgetful import FORGETFUL

from kvproof.check.hunting import unit as units_of_walks
from kvproof.check.hunting.explore_stage import subject_stage
from kvproof.check.hunting.findings import Saving
from kvproof.check.hunting.scope_unit import ScopeUnits
from kvproof.check.hunting.unit import (
    Judged,
    WalkUnit,
    WalkUnits,
    operations_of_next_unit,
    operations_of_unit,
    seed_of,
    walk_unit,
)
from kvproof.check.hunting.walk_stage import walker_stage
from kvproof.check.runs.session import Stage, StageBudget, StageOutput
from kvproof.check.runs.store import Store
from kvproof.check.search.result import UNLIMITED
from kvproof.check.search.strategies import MANAGERS
from kvproof.check.subjects.registry import find
from kvproof.reports.result import Check
from kvproof.spec.verdict import Verdict

FAULTY = f"""{FORGETFUL}
    def preempt(self, group):
        raise RuntimeError("no preemption here")
"""
NUM_OPERATIONS = 1_500


class Here:
    """Workers in this process: so many units are done before the result of the oldest one is taken."""

    name = "here"

    def __init__(self, num_ahead: int) -> None:
        self.num_ahead, self.num_done = num_ahead, 0

    def results(self, do: Callable[[Any], Any], units: Iterable[Any]) -> Generator[Any, None, None]:
        done: deque[Any] = deque()
        for unit in units:
            self.num_done += 1
            done.append(do(unit))
            if len(done) >= self.num_ahead:
                yield done.popleft()
        yield from done

    def close(self) -> None:
        """Nothing was started."""


@pytest.fixture
def subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "faulty_units.py").write_text(FAULTY)
    monkeypatch.setattr(units_of_walks, "OPERATIONS_MIN", 100)
    monkeypatch.setattr(units_of_walks, "OPERATIONS_MAX", 100)
    return f"{tmp_path / 'faulty_units.py'}:Forgetful"


def report(subject: str, folder: Path, workers: Here, *, keeps_going: bool = True) -> list[StageOutput]:
    """What the stage yields, without times."""
    make = find(subject)
    saving = Saving(make, subject, 1, Store(folder), max_operations=2_000)
    units = WalkUnits(workers, Judged(subject, isolation=False))
    stage = walker_stage(make, make(), saving, 1.0, NUM_OPERATIONS, keeps_going, units=units)
    return outputs_of(stage)


def outputs_of(stage: Stage) -> list[StageOutput]:
    outputs = stage.run(StageBudget(1, 1e6, lambda count: None))
    return [replace(one, seconds=0.0) if isinstance(one, Check) else one for one in outputs]


def refuted(outputs: list[StageOutput]) -> set[str]:
    return {one.id for one in outputs if isinstance(one, Check) and one.verdict is Verdict.REFUTED}


def test_findings_and_counts_do_not_depend_on_how_many_units_are_under_way(subject: str, tmp_path: Path) -> None:
    one, many = Here(1), Here(6)
    expected = report(subject, tmp_path / "one", one)
    assert report(subject, tmp_path / "many", many) == expected
    assert many.num_done > one.num_done  # units were done again with what earlier units had found
    assert refuted(expected) == {"walker/refcount-exact/fork", "walker/total-calls/preempt-RuntimeError"}
    assert {one.counts["operations"] for one in expected if isinstance(one, Check) and one.counts} == {NUM_OPERATIONS}


def test_a_walk_that_stops_at_the_first_finding_stops_at_that_of_the_first_unit(subject: str, tmp_path: Path) -> None:
    expected = report(subject, tmp_path / "one", Here(1), keeps_going=False)
    assert report(subject, tmp_path / "many", Here(6), keeps_going=False) == expected
    assert len(refuted(expected)) == 1


def test_a_unit_has_its_own_runs_and_goes_on_after_a_finding(subject: str) -> None:
    unit = WalkUnit(Judged(subject, isolation=False), 1, 0, 200)
    walks = walk_unit(unit)
    assert [*map(without_time, walk_unit(unit))] == [*map(without_time, walks)]
    assert len(walks) > 1
    assert [*map(without_time, walk_unit(replace(unit, index=1)))] != [*map(without_time, walks)]
    assert walk_unit(replace(unit, seconds=0.0)) == []


def without_time(walk: Any) -> Any:
    _, name, fields = walk
    return name, [field for field in fields if field[0] != "seconds"]


def test_a_walk_has_enough_units_for_many_workers_and_none_that_is_all_overhead() -> None:
    sizes = [operations_of_unit(number) for number in (1_000, 50_000, 500_000, 5_000_000, UNLIMITED)]
    assert sizes == [5_000, 5_000, 20_000, 20_000, 20_000]
    sizes = []
    while sum(sizes) < 200_000:
        sizes.append(operations_of_next_unit(200_000, sum(sizes)))
    assert sizes == [8_000] * 22 + [6_000, 5_000, 5_000, 5_000, 3_000]  # smaller ones at the end
    assert len({seed_of(seed, index) for seed in range(9) for index in range(9)}) == 81


@pytest.mark.parametrize("name", ["kvproof", "faulty"])
def test_scopes_searched_by_workers_share_their_transitions_as_scopes_searched_here(
    subject: str, tmp_path: Path, name: str
) -> None:
    make = find(subject if name == "faulty" else name)
    saving = Saving(make, name, 1, Store(tmp_path), max_operations=100)
    units = ScopeUnits(Here(3), Judged(subject if name == "faulty" else name, isolation=False))
    hunt: dict[str, Any] = {"is_hunt": True, "keeps_going": True, "max_transitions": 300}
    scopes = MANAGERS.exhaustive.hunted
    here = outputs_of(subject_stage(make, make(), scopes, saving, 1.0, **hunt))
    assert outputs_of(subject_stage(make, make(), scopes, saving, 1.0, **hunt, units=units)) == here
    counts = {
        one.id.rpartition("/")[2]: one.counts["transitions"] for one in here if isinstance(one, Check) and one.counts
    }
    assert sum(counts.values()) == (302 if name == "kvproof" else 300)


def test_scopes_searched_by_workers_go_past_what_is_not_hunted_for_as_scopes_searched_here(
    subject: str, tmp_path: Path
) -> None:
    make = find(subject)
    saving = Saving(make, subject, 1, Store(tmp_path), max_operations=100, wanted=frozenset({"read-back"}))
    units = ScopeUnits(Here(3), Judged(subject, isolation=False))
    hunt: dict[str, Any] = {"is_hunt": True, "keeps_going": True, "max_transitions": 300}
    gate: dict[str, Any] = {"max_transitions": 100}
    for bounds in (hunt, gate):
        scopes = dict(list(MANAGERS.exhaustive.hunted.items())[:4])
        here = outputs_of(subject_stage(make, make(), scopes, saving, 1.0, **bounds))
        assert outputs_of(subject_stage(make, make(), scopes, saving, 1.0, **bounds, units=units)) == here
        assert len(refuted(here)) > 1
