"""The walker and Hypothesis as stages: what their outcomes say of every property."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvproof.check.hunting import hypothesis_stage, unit
from kvproof.check.hunting.explore_stage import subject_stage
from kvproof.check.hunting.findings import Saving
from kvproof.check.hunting.walk_stage import walker_stage
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config, ManagerSubject, Refused
from kvproof.check.protocol.scopes import Scope
from kvproof.check.runs.session import StageBudget, StageOutput
from kvproof.check.runs.store import Store
from kvproof.check.runs.verdicts import NOTHING_ACCEPTED, SHOWN_BY, STOPPED, notes, refuted_by
from kvproof.check.search.result import REASON_MAX, REASONS_MAX, SearchResult
from kvproof.check.search.suppression import Features
from kvproof.check.subjects.registry import find
from kvproof.reports.evidence import SavedRun
from kvproof.reports.identity import Identity
from kvproof.reports.result import PROMISED_BY_NOBODY, Check, Refusals, WitnessCount
from kvproof.spec.verdict import Verdict

STORE = f"{Path(__file__).parents[3]}/examples/forty_line_store.py:Store"
FINDING = Finding("read-back", "position 3")


class Remembering(Saving):
    """Saves nothing."""

    def save(self, judge: str, *_: Any) -> tuple[Check, Features]:
        return refuted_by(judge, Identity("read-back", ""), SavedRun("position 3", "crashes/x.json")), ()


def said_of(walk: SearchResult, monkeypatch: pytest.MonkeyPatch, seconds: float = 10.0) -> list[StageOutput]:
    """What the stage says when its one unit gives this."""
    monkeypatch.setattr(unit, "walk", lambda *_, **__: walk)
    make = find("kvproof")
    saving = Remembering(make, "kvproof", 1, Store(Path()))
    stage = walker_stage(make(), saving, 1.0, saving.walk(unit.SMALL))  # one unit
    return list(stage.run(StageBudget(1, seconds, lambda count: None)))


def verdicts(said: list[StageOutput]) -> dict[str, tuple[Verdict, str]]:
    return {one.property: (one.verdict, one.text) for one in said if isinstance(one, Check)}


def test_a_finding_leaves_every_other_property_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    walk = SearchResult(Counterexample(Config(), [("run", 1)], FINDING), num_operations=80, num_runs=1)
    found = verdicts(said_of(walk, monkeypatch))
    assert found.pop("read-back") == (Verdict.REFUTED, "position 3")
    assert set(found.values()) == {(Verdict.UNKNOWN, STOPPED)}
    assert len(found) == 25  # all that this level supports, but the one found


def test_a_finding_in_the_first_call_is_no_lack_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found = verdicts(said_of(SearchResult(Counterexample(Config(), [], FINDING), num_runs=1), monkeypatch))
    assert found.pop("read-back") == (Verdict.REFUTED, "position 3")
    assert set(found.values()) == {(Verdict.UNKNOWN, STOPPED)}


def test_a_walk_without_a_finding_refutes_nothing_by_as_much_as_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    said = said_of(SearchResult(num_operations=1_000_000, num_runs=12_500), monkeypatch)
    assert set(verdicts(said).values()) == {(Verdict.NOT_REFUTED, "")}
    assert said[0].counts == {"operations": 1_000_000, "runs": 12_500}  # type: ignore[union-attr]


def test_a_walk_of_no_step_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = verdicts(said_of(SearchResult(), monkeypatch))
    assert set(found.values()) == {(Verdict.UNKNOWN, "the time limit (--budget) was over before this judge began")}


def test_a_subject_that_takes_no_configuration_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = SearchResult(is_unsupported=True, refusals=Counter({"no window": 1, "no swap": 2}))
    found = verdicts(said_of(refused, monkeypatch))
    assert set(found.values()) == {(Verdict.UNKNOWN, f"{NOTHING_ACCEPTED}; the most frequent reason: no swap")}


def test_a_walk_that_could_begin_no_further_run_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = SearchResult(num_operations=1200, num_runs=15, refusals=Counter({"no memory is left": 1001}))
    found = verdicts(said_of(refused, monkeypatch))
    text = "then no configuration gave a run; the most frequent reason: no memory is left"
    assert set(found.values()) == {(Verdict.UNKNOWN, f"1,200 of {unit.SMALL:,} operations; {text}")}


def test_what_was_noted_once_is_one_time() -> None:
    assert notes({"hit-complete": 1}, 3_000, "operations")["hit-complete"].startswith("1 time in 3,000 operations")


def test_a_missed_hit_is_noted_beside_the_other_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    walk = SearchResult(num_operations=1_000_000, notes=Counter({"hit-complete": 3}))
    said = said_of(walk, monkeypatch)
    found = verdicts(said)
    assert found.pop("hit-complete") == (Verdict.UNSUPPORTED, PROMISED_BY_NOBODY)
    assert set(found.values()) == {(Verdict.NOT_REFUTED, "")}
    (noted,) = (one for one in said if isinstance(one, Check) and one.note)
    text = f"3 times in 1,000,000 operations{SHOWN_BY['hit-complete']}"
    assert (noted.property, noted.note) == ("hit-complete", text)


def test_a_size_of_which_every_configuration_was_refused_is_a_situation_that_was_not_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walk = SearchResult(num_operations=1_000_000, num_runs=12_500, num_drawn=12_520)
    walk.sizes.update({"blocks of many slots": 20, "blocks of one slot": 12_400, "blocks of two slots": 5})
    walk.coverage["blocks of one slot"] = 12_390
    walk.refuse("large blocks\nand further lines")
    walk.refuse("large blocks")
    said = said_of(walk, monkeypatch)
    sizes = [one for one in said if isinstance(one, WitnessCount) and one.name.startswith("blocks of")]
    assert sorted(sizes, key=lambda one: one.name) == [
        WitnessCount("blocks of many slots", "walker", 0, True),
        WitnessCount("blocks of one slot", "walker", 12_390, False),
        WitnessCount("blocks of two slots", "walker", 0, False),  # so few may all be refused for something else
    ]
    assert [one for one in said if isinstance(one, Refusals)] == [Refusals("walker", 2, 12_520, {"large blocks": 2})]


def test_texts_of_a_subject_that_differ_each_time_make_no_endless_report() -> None:
    walk = SearchResult()
    for number in range(1_000):
        walk.refuse(f"{number} " + "x" * 1_000)
    assert walk.refusals.total() == 1_000
    assert len(walk.refusals) == REASONS_MAX + 1
    assert max(map(len, walk.refusals)) == REASON_MAX


def test_nothing_is_refuted_without_a_run_that_shows_it() -> None:
    with pytest.raises(ValueError, match="nothing is refuted by SavedRun without trace"):
        refuted_by("walker", Identity("read-back", ""), SavedRun("position 3", ""))


@pytest.mark.parametrize(("slack", "verdict"), [(None, Verdict.UNSUPPORTED), (0, Verdict.REFUTED)])
def test_a_store_that_may_refuse_is_not_refuted_for_it(tmp_path: Path, slack: int | None, verdict: Verdict) -> None:
    store: Any = type(find(STORE)())

    class Refusing(store):  # type: ignore[misc]
        capabilities = replace(store.capabilities, refusal_slack=slack)

        def begin_store(self, transfer: int, request: int, keys: list[int]) -> Any:
            if len([key for key in keys if key not in self.slots]) == 2:
                return Refused("two at once are too many for me")
            return super().begin_store(transfer, request, keys)

    saving = Saving(Refusing, "refusing", 1, Store(tmp_path))
    scopes = {"slots": Scope(num_gpu_blocks=2, num_seqs=1, num_tokens=2)}
    walk = walker_stage(Refusing(), saving, 1.0, saving.walk(300))
    for stage in (walk, *([] if slack is None else [subject_stage(Refusing, Refusing(), scopes, saving, 1.0)])):
        said = [one for one in stage.run(StageBudget(1, 60.0, lambda count: None)) if isinstance(one, Check)]
        found = [one for one in said if one.property == "refusal-needed" and (one.note or one.trace)]
        shown = {(one.verdict, bool(one.note), bool(one.trace)) for one in found}
        assert shown == {(verdict, slack is None, slack is not None)}
        assert not any(one.is_failure for one in said if one.property != "refusal-needed")


@pytest.mark.parametrize(
    ("walk", "is_expected"), [(SearchResult(num_operations=1_000_000), True), (SearchResult(), False)]
)
def test_only_a_walk_that_walked_must_meet_its_witnesses(
    monkeypatch: pytest.MonkeyPatch, walk: SearchResult, is_expected: bool
) -> None:
    walk.coverage["hit"] = 5
    counts = [one for one in said_of(walk, monkeypatch) if isinstance(one, WitnessCount)]
    assert WitnessCount("hit", "walker", 5, is_expected) in counts
    assert (WitnessCount("copy-on-write", "walker", 0, True) in counts) is is_expected


def test_hypothesis_goes_on_in_rounds_with_seeds_of_their_own_until_one_refutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeds = []

    def drive(subject: ManagerSubject, seed: int, **_: object) -> SearchResult:
        seeds.append(seed)
        found = Counterexample(Config(), [("run", 1)], FINDING)
        return SearchResult(found if seed == 12 else None, num_operations=100, num_runs=4)

    monkeypatch.setattr(hypothesis_stage, "drive", drive)
    make = find("kvproof")
    stage = hypothesis_stage.hypothesis_stage(make, make(), Remembering(make, "kvproof", 1, Store(Path())), 1.0)
    said = list(stage.run(StageBudget(10, 10.0, lambda count: None)))
    assert seeds == [10, 11, 12]
    found = verdicts(said)
    assert found.pop("read-back") == (Verdict.REFUTED, "position 3")
    assert set(found.values()) == {(Verdict.UNKNOWN, STOPPED)}
    assert said[0].counts == {"operations": 300, "runs": 12}  # type: ignore[union-attr]


def test_hypothesis_without_time_says_nothing() -> None:
    make = find("kvproof")
    stage = hypothesis_stage.hypothesis_stage(make, make(), Remembering(make, "kvproof", 1, Store(Path())), 1.0)
    found = verdicts(list(stage.run(StageBudget(10, 0.0, lambda count: None))))
    assert set(found.values()) == {(Verdict.UNKNOWN, "the time limit (--budget) was over before this judge began")}
