"""How much a run does: the effort and the seed decide it, and neither the clock nor the number of processes."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import z3

from kvproof.check.hunting import hypothesis_stage as stage_of_hypothesis
from kvproof.check.hunting.explore_stage import subject_stage
from kvproof.check.hunting.findings import Saving
from kvproof.check.hunting.hypothesis_stage import hypothesis_stage
from kvproof.check.hunting.walk_stage import walker_stage
from kvproof.check.oracle.level import MANAGER
from kvproof.check.proving.stage import Proofs
from kvproof.check.runs.effort import BY_BUDGET, effort_of
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.session import Stage, StageBudget, StageOutput
from kvproof.check.runs.store import Store
from kvproof.check.search.random_walk import WalkOptions, walk
from kvproof.check.search.strategies import MANAGERS
from kvproof.check.subjects.registry import find
from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.reports.result import Check
from kvproof.spec.verdict import Verdict

EXAMPLES = Path(__file__).parents[3] / "examples"
X = z3.Int("x")


def test_a_named_effort_is_a_number_of_operations() -> None:
    assert [effort_of(name, None).operations for name in (None, "quick", "long", "1_234")] == [
        500_000,
        50_000,
        5_000_000,
        1_234,
    ]
    assert effort_of("normal", None, "pipe:./manager").operations == 50_000
    assert effort_of("1234", None, "pipe:./manager").operations == 1_234
    assert effort_of("quick", 5.0).name == "quick"
    assert effort_of(None, 5.0) is BY_BUDGET


@pytest.mark.parametrize("text", ["fast", "0", "-1", "1e6", "", "10000000000000", "\u0661"])
def test_what_is_no_effort_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--effort is quick, normal, long or a number of operations from 1"):
        effort_of(text, None)


class Slow:
    """A subject whose calls take longer, by the clock and on the processor."""

    def __init__(self, subject: Any) -> None:
        self._subject = subject

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._subject, name)
        if name not in MANAGER.calls.all:
            return found

        def slow(*arguments: Any) -> Any:
            time.sleep(0.0002)
            return found(*arguments)

        return slow


def output_of(stage: Stage, seconds: float = math.inf) -> list[StageOutput]:
    """What a stage yields, without times."""
    output = list(stage.run(StageBudget(7, seconds, lambda count: None)))
    for one in output:
        if isinstance(one, Check):
            one.seconds = 0.0
    return output


@pytest.mark.parametrize("name", ["forty_lines", "forty_lines_broken"])
def test_a_slow_subject_has_the_same_result(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_of_hypothesis, "NUM_EXAMPLES", 4)

    def judged(make: Callable[[], Any], folder: Path) -> list[StageOutput]:
        folder.mkdir()
        effort = effort_of("300", None)
        saving = Saving(make, name, 7, Store(folder), seconds=math.inf, max_operations=2_000)
        stages = [
            subject_stage(make, make(), MANAGERS.exhaustive.gate, saving, 1, True, True, max_transitions=50),
            walker_stage(make(), saving, 1, saving.walk(300), keeps_going=True),
            hypothesis_stage(make, make(), saving, 1, effort)
            if name == "forty_lines"
            else Stage("", 1, [], lambda _: ()),
        ]
        return [one for stage in stages for one in output_of(stage)]

    make = find(f"{EXAMPLES / name}.py:Adapter")
    quick, slow = judged(make, tmp_path / "quick"), judged(lambda: Slow(make()), tmp_path / "slow")
    assert quick == slow
    assert any(isinstance(one, Check) and one.verdict is Verdict.REFUTED for one in quick) == ("broken" in name)


def test_the_number_of_solver_processes_changes_no_verdict_and_no_text() -> None:
    positive = (Hypothesis("positive", X > 0),)
    goals = {f"it is not {number}": X != number for number in (0, 1, 2, -1)}
    obligations = [Obligation("mixed", "some", name, "read-back", positive, goal) for name, goal in goals.items()]

    def checks(num_processes: int, order: int) -> list[Any]:
        found = Proofs(StageBudget(1, math.inf, lambda count: None), num_processes).checks(iter(obligations[::order]))
        return [(one.id, one.verdict, one.counts, one.text) for one in found if isinstance(one, Check)]

    assert checks(1, 1) == checks(2, -1)


def test_a_walk_in_parts_is_one_walk() -> None:
    make = find("kvproof")
    whole = walk(MANAGERS, make(), 3, max_operations=400, seconds=math.inf)
    parts = walk(MANAGERS, make(), 3, max_operations=400, seconds=math.inf, options=WalkOptions(pause_after=150))
    assert parts.num_operations < 400
    rest = WalkOptions(parts.num_drawn, runs_before=parts.num_runs)
    parts.continue_with(
        walk(MANAGERS, make(), 3, max_operations=400 - parts.num_operations, seconds=math.inf, options=rest)
    )
    assert (parts.kinds, parts.coverage, parts.num_runs) == (whole.kinds, whole.coverage, whole.num_runs)


def test_a_budget_that_ends_a_walk_before_its_effort_leaves_it_undecided() -> None:
    make = find("kvproof")
    saving = Saving(make, "kvproof", 7, Store(Path()))
    budget = StageBudget(7, 0.5, lambda count: None)
    checks = [one for one in walker_stage(make(), saving, 1, saving.walk(10**9)).run(budget) if isinstance(one, Check)]
    assert {one.verdict for one in checks} == {Verdict.UNKNOWN}
    assert budget.stopped.startswith("stopped by --budget after ")
    assert budget.stopped.endswith(" of 1,000,000,000 operations")
    assert {one.text for one in checks} == {budget.stopped}


def test_an_exhaustive_search_ends_after_its_transitions() -> None:
    make = find("kvproof")
    scopes = {"tables-3x2x3": MANAGERS.exhaustive.gate["tables-3x2x3"]}
    saving = Saving(make, "kvproof", 7, Store(Path()))
    output = output_of(subject_stage(make, make(), scopes, saving, 1, max_transitions=40))
    decided = [one for one in output if isinstance(one, Check)]
    assert {one.verdict for one in decided} == {Verdict.UNKNOWN}
    assert all(one.text.startswith("the effort ended at depth ") for one in decided)
    assert 40 <= decided[0].counts["transitions"] < 60
