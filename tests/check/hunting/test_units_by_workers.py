"""A search in units finds and counts the same, however many workers there are and in whatever order they answer."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.check.forgetful import FORGETFUL

from kvproof.check.hosts.workers import UnitLost
from kvproof.check.hunting import unit as unit_module
from kvproof.check.hunting.explore_stage import subject_stage
from kvproof.check.hunting.findings import Saving
from kvproof.check.hunting.head import Head
from kvproof.check.hunting.scope_unit import ScopeUnits
from kvproof.check.hunting.unit import Judged, Walk, WalkUnit, num_units_of, seed_of, size_of, walk_unit
from kvproof.check.hunting.walk_stage import walker_stage
from kvproof.check.isolation.messages import unpack
from kvproof.check.runs.session import Stage, StageBudget, StageOutput
from kvproof.check.runs.store import Store
from kvproof.check.search.result import SearchResult
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

    def results(self, do: Callable[[Any], Any], units: Iterable[Any], *_: Any, **__: Any) -> Generator[Any, None, None]:
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
    monkeypatch.setattr(unit_module, "SMALL", 100)
    return f"{tmp_path / 'faulty_units.py'}:Forgetful"


def report(subject: str, folder: Path, head: Head | None, *, keeps_going: bool = True) -> list[StageOutput]:
    """What the stage yields, without times."""
    make = find(subject)
    saving = Saving(make, subject, 1, Store(folder), max_operations=2_000)
    saving.isolation = False
    stage = walker_stage(make(), saving, 1.0, saving.walk(NUM_OPERATIONS), keeps_going, head)
    return outputs_of(stage)


def outputs_of(stage: Stage) -> list[StageOutput]:
    outputs = stage.run(StageBudget(1, 1e6, lambda count: None))
    return [replace(one, seconds=0.0) if isinstance(one, Check) else one for one in outputs]


def refuted(outputs: list[StageOutput]) -> set[str]:
    return {one.id for one in outputs if isinstance(one, Check) and one.verdict is Verdict.REFUTED}


def test_findings_and_counts_do_not_depend_on_who_does_the_units_and_how_many_are_under_way(
    subject: str, tmp_path: Path
) -> None:
    one, many = Here(1), Here(6)
    expected = report(subject, tmp_path / "here", None)
    assert report(subject, tmp_path / "one", Head(one)) == expected
    assert report(subject, tmp_path / "many", Head(many)) == expected
    assert many.num_done > one.num_done  # units were done again with what earlier units had found
    assert refuted(expected) == {"walker/refcount-exact/fork", "walker/total-calls/preempt-RuntimeError"}
    assert {one.counts["operations"] for one in expected if isinstance(one, Check) and one.counts} == {NUM_OPERATIONS}


def test_a_walk_that_stops_at_the_first_finding_stops_at_that_of_the_first_unit(subject: str, tmp_path: Path) -> None:
    expected = report(subject, tmp_path / "one", Head(Here(1)), keeps_going=False)
    assert report(subject, tmp_path / "many", Head(Here(6)), keeps_going=False) == expected
    assert len(refuted(expected)) == 1


class Lossy(Here):
    """Workers that end with the unit of this number."""

    def results(self, do: Callable[[Any], Any], units: Iterable[Any], *_: Any, **__: Any) -> Generator[Any, None, None]:
        for number, unit in enumerate(units):
            yield UnitLost("was ended", is_next=True) if number == self.num_ahead else do(unit)


LOST = "3 workers ended while they did the same unit, the last was ended"


def test_a_walk_whose_unit_ends_every_worker_is_undecided_from_there_on(subject: str, tmp_path: Path) -> None:
    checks = [one for one in report("kvproof", tmp_path, Head(Lossy(2))) if isinstance(one, Check)]
    decided = [one for one in checks if one.verdict is not Verdict.UNSUPPORTED]
    assert decided
    assert {one.verdict for one in decided} == {Verdict.UNKNOWN}
    assert {one.text for one in decided} == {f"200 of 1,500 operations; then {LOST}"}


@pytest.mark.parametrize("is_hunt", [True, False])
def test_a_scope_that_ends_every_worker_is_undecided(tmp_path: Path, is_hunt: bool) -> None:
    make = find("kvproof")
    saving = Saving(make, "kvproof", 1, Store(tmp_path))
    scopes = {name: MANAGERS.exhaustive.hunted[name] for name in ("cache-2x1x3", "window-3x1x3")}
    units = ScopeUnits(Lossy(0), Judged("kvproof", isolation=False))
    stage = subject_stage(make, make(), scopes, saving, 1.0, is_hunt, is_hunt, 100, units)
    texts: dict[str, set[tuple[Verdict, str]]] = {name: set() for name in scopes}
    for one in outputs_of(stage):
        if isinstance(one, Check) and one.verdict is not Verdict.UNSUPPORTED:
            texts[one.id.rpartition("/")[2]].add((one.verdict, one.text))
    lost = {(Verdict.UNKNOWN, LOST)}
    assert texts["cache-2x1x3"] == lost
    assert (texts["window-3x1x3"] == lost) is is_hunt  # the scopes of a hunt are one unit


def test_a_unit_gives_the_same_whenever_it_is_done_and_another_one_gives_other_runs(subject: str) -> None:
    unit = WalkUnit(Judged(subject, isolation=False), 1, 0, 200)
    assert without_time(walk_unit(unit).answer) == without_time(walk_unit(unit).answer)
    assert without_time(walk_unit(replace(unit, index=1)).answer) != without_time(walk_unit(unit).answer)
    assert not walk_unit(replace(unit, seconds=0.0)).is_whole


def test_a_unit_that_ends_at_a_finding_is_followed_by_the_rest_of_its_runs(subject: str) -> None:
    walk = Walk(Judged(subject, isolation=False), 1, 200)
    unit, later = walk.units()
    done: SearchResult = unpack(walk_unit(unit).answer)
    assert done.counterexample is not None
    walk.take(unit, done)
    walk.known.append((*done.counterexample.kind, ()))
    rest, again = walk.units()
    assert (rest.index, rest.num_operations, rest.first_run) == (0, 100 - done.num_operations, done.num_drawn)
    assert again == replace(later, known=rest.known) != later
    assert again.key != later.key


def without_time(walk: Any) -> Any:
    _, name, fields = walk
    return name, [field for field in fields if field[0] != "seconds"]


def test_a_walk_has_enough_units_for_many_workers_and_a_longer_one_begins_with_them() -> None:
    assert [num_units_of(number) for number in (1, 5_000, 5_001, 100_000, 100_001)] == [1, 1, 2, 11, 12]
    # The 29th has the longest life, which ends early at 500,000 operations.
    assert [num_units_of(number) for number in (440_000, 500_000, 540_000, 540_001)] == [28, 29, 29, 30]
    for number in (5_000, 101_000, 500_000, 540_000, 1_200_000):
        sizes = [unit.num_operations for unit in Walk(Judged("kvproof"), 1, number).units()]
        assert (len(sizes), sum(sizes)) == (num_units_of(number), number)
        assert sizes[:-1] == [size_of(index) for index in range(len(sizes) - 1)]
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
