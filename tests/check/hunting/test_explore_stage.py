"""The exhaustive search of a hunt: it goes as far as its effort, and says what it leaves."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kvproof.check.hunting.explore_stage import Searches, subject_stage
from kvproof.check.hunting.findings import Saving
from kvproof.check.protocol.manager import Admitted, Config, Refused, Unsupported
from kvproof.check.protocol.scopes import Scope
from kvproof.check.runs.session import INTERRUPTED, StageBudget, StageOutput
from kvproof.check.runs.store import Store
from kvproof.check.runs.verdicts import planned_checks_of_scopes
from kvproof.check.search.result import SearchResult
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.reports.result import Check, Refusals
from kvproof.spec.verdict import Verdict

SCOPES = {name: Scope(number, num_seqs=1, num_tokens=1) for number, name in enumerate(("one", "two", "three"), 1)}
Answer = SearchResult | Exception | type[BaseException]


def hunt(answers: list[Answer], num_transitions: int = 100) -> tuple[Iterator[StageOutput], StageBudget]:
    """What the search of a hunt yields when its scopes give these results in order, and its budget."""
    left = iter(answers)

    def explore(*_: object) -> SearchResult:
        answer = next(left)
        if not isinstance(answer, SearchResult):
            raise answer
        return answer

    def save(*_: object) -> Check:
        raise AssertionError("there is no finding")

    planned = planned_checks_of_scopes("explorer", SCOPES, BuiltIn())
    budget = StageBudget(1, math.inf, lambda count: None)
    searches = Searches("explorer", SCOPES, planned, explore, save, is_hunt=True, max_transitions=num_transitions)
    return searches.run(budget), budget


def verdicts(outputs: Iterator[StageOutput]) -> Mapping[str, set[Verdict]]:
    """The verdicts of each scope."""
    checks = [one for one in outputs if isinstance(one, Check)]
    return {name: found for name in SCOPES if (found := {one.verdict for one in checks if one.id.endswith(f"/{name}")})}


def done(num_transitions: int, is_exhausted: bool = True) -> SearchResult:
    return SearchResult(num_operations=num_transitions, num_states=1, is_exhausted=is_exhausted)


def test_a_hunt_says_how_many_scopes_its_effort_left() -> None:
    outputs, budget = hunt([done(60), done(40, is_exhausted=False)])
    assert verdicts(outputs) == {"one": {Verdict.EXHAUSTED}, "two": {Verdict.NOT_REFUTED}}
    assert budget.notes == ["its effort ended with 1 of 3 scopes not begun"]


def test_a_scope_that_the_subject_does_not_have_decides_nothing_while_others_are_left() -> None:
    outputs, budget = hunt([Unsupported("no such pool"), done(100, is_exhausted=False)])
    assert verdicts(outputs) == {"two": {Verdict.NOT_REFUTED}}
    assert budget.notes != []

    outputs, budget = hunt([Unsupported("no such pool"), done(1), done(1)])
    assert verdicts(outputs)["one"] == {Verdict.UNSUPPORTED}
    assert budget.notes == []


class Broken(BuiltIn):
    """Reports hits of tokens that no prompt has, and has no pool of three blocks."""

    def open(self, config: Config) -> None:
        if config.num_gpu_blocks == 3:
            raise Unsupported("no pool of three")
        super().open(config)

    def admit(self, group: int, num_tokens: int) -> Admitted | Refused:
        super().admit(group, num_tokens)
        return Admitted(10_000)


def test_a_scope_behind_the_first_finding_is_unsupported_if_the_subject_does_not_have_it(tmp_path: Path) -> None:
    saving = Saving(Broken, "broken", 1, Store(tmp_path))
    stage = subject_stage(Broken, Broken(), SCOPES, saving, share=1)
    outputs = list(stage.run(StageBudget(1, math.inf, lambda count: None)))
    assert any(isinstance(one, Check) and one.is_failure for one in outputs)
    found = verdicts(iter(outputs))
    assert found["two"] == {Verdict.UNKNOWN}, "no search follows the finding of the first scope"
    assert found["three"] == {Verdict.UNSUPPORTED}
    texts = {one.text for one in outputs if isinstance(one, Check) and one.id.endswith("/three")}
    assert texts == {"the subject has no such configuration: no pool of three"}
    assert [one for one in outputs if isinstance(one, Refusals)] == [
        Refusals("explorer", 1, 3, {"no pool of three": 1})
    ]


def test_a_scope_that_is_interrupted_is_unknown() -> None:
    outputs, budget = hunt([done(1), KeyboardInterrupt])
    seen = list[StageOutput]()
    with pytest.raises(KeyboardInterrupt):
        seen.extend(outputs)
    assert verdicts(iter(seen)) == {"one": {Verdict.EXHAUSTED}, "two": {Verdict.UNKNOWN}}
    assert Counter(one.text for one in seen if isinstance(one, Check) and one.verdict is Verdict.UNKNOWN).keys() == {
        INTERRUPTED
    }
    assert budget.notes == ["its search ended with 1 of 3 scopes not begun"]
