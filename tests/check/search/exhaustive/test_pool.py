"""A small pool exhaustively: pinned numbers of states, a finer look that finds no more, shortest counterexamples."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.check.hunting import explore_stage
from kvproof.check.hunting.findings import Saving
from kvproof.check.isolation import remote_search
from kvproof.check.isolation.remote_subject import RemoteFactory
from kvproof.check.oracle.level import compile_rules
from kvproof.check.oracle.pool import PoolJudge
from kvproof.check.protocol.manager import Observation, Unsupported
from kvproof.check.protocol.scopes import Scope
from kvproof.check.runs.session import StageBudget
from kvproof.check.runs.store import Store
from kvproof.check.runs.verdicts import planned_checks_of_scopes
from kvproof.check.search.exhaustive.pool import state_key
from kvproof.check.search.exhaustive.subject import explore
from kvproof.check.search.result import SearchResult
from kvproof.check.search.strategies import POOLS, STRATEGIES
from kvproof.check.subjects.builtin.pool import OwnPool
from kvproof.check.subjects.registry import find
from kvproof.reports.result import Check
from kvproof.spec.verdict import Verdict

BLOCKS = Scope(num_gpu_blocks=2, num_seqs=2, num_tokens=1)
PAGES = Scope(num_gpu_blocks=2, num_seqs=2, num_tokens=1, caching=True)


class FreesTwice(OwnPool):
    """A block given up by two holders in one call is in the free list twice."""

    def free(self, blocks: list[int]) -> None:
        super().free(blocks)
        if len(set(blocks)) < len(blocks):
            self.blocks.free_ids.append(blocks[0])


class Hides(OwnPool):
    """It shows no order of its free blocks."""

    def observe(self) -> Observation:
        return super().observe()._replace(free_ids=None)


def explored(make: Callable[[], OwnPool], scope: Scope) -> SearchResult:
    return explore(POOLS, make(), scope, seconds=100)


def test_the_states_of_a_pool_without_a_cache_are_those_that_can_be_counted() -> None:
    # By their ids, and the order of the free ones. Nothing held: 2 orders; one holder of one block, or two who share
    # it: 2 + 2; one holder of both blocks, in either order, or two: 2 + 2; two with a block each: 1.
    found = explored(OwnPool, BLOCKS)
    assert (found.finding, found.is_exhausted, found.num_states) == (None, True, 11)


def test_the_states_of_a_pool_with_a_cache_are_pinned() -> None:
    found = explored(OwnPool, PAGES)
    assert (found.finding, found.is_exhausted, found.num_states) == (None, True, 71)
    assert found.coverage["evict"]
    assert not found.notes["hit-complete"]


@pytest.mark.parametrize("make", [OwnPool, Hides])
@pytest.mark.parametrize("scope", [BLOCKS, pytest.param(PAGES, marks=pytest.mark.long)])
def test_a_look_at_every_block_by_its_id_finds_no_state_more(make: Callable[[], OwnPool], scope: Scope) -> None:
    forms: set[Hashable] = set()

    def fine(judge: PoolJudge) -> Hashable:
        forms.add(state_key(judge))
        held = sorted((holder, judge.blocks_of(holder)) for holder in judge.holders)
        return str(
            (held, judge.stored, judge.given_up, judge.explainer.observed, judge.state.content, judge.state.cached)
        )

    finer = explore(replace(POOLS, _exhaustive=replace(POOLS.exhaustive, state_key=fine)), make(), scope, seconds=200)
    coarse = explored(make, scope)
    assert finer.is_exhausted
    assert len(forms) == coarse.num_states < finer.num_states


def test_a_search_that_has_no_time_is_not_exhausted() -> None:
    assert not explore(POOLS, OwnPool(), PAGES, seconds=0).is_exhausted


@pytest.mark.parametrize(
    ("scope", "message"),
    [
        (Scope(2, num_seqs=1, window=1), "no window, host, lookahead or flight"),
        (Scope(2, 1, num_seqs=1, swap=True), "no window, host, lookahead or flight"),
    ],
)
def test_a_scope_that_a_pool_cannot_have_is_unsupported(scope: Scope, message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        explored(OwnPool, scope)


def test_the_shortest_run_is_found_first() -> None:
    found = explored(FreesTwice, Scope(num_gpu_blocks=2, num_seqs=3, num_tokens=1))
    assert found.counterexample is not None
    assert [operation[0] for operation in found.counterexample.operations] == ["take", "share", "give"]
    assert found.counterexample.finding.property in ("conservation", "lists-agree")


def test_a_pool_is_explored_in_a_process_of_its_own_as_in_ours() -> None:
    factory = RemoteFactory("kvproof-pool")
    there, here = remote_search.explore(POOLS, factory(), PAGES, seconds=100), explored(OwnPool, PAGES)
    factory.close()
    assert there.is_exhausted
    assert (there.num_states, there.num_operations, there.coverage) == (
        here.num_states,
        here.num_operations,
        here.coverage,
    )


def test_a_hunt_explores_a_pool_before_it_walks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one = replace(POOLS.exhaustive, hunted={"pages": replace(PAGES, num_seqs=1)})  # what the effort exhausts
    monkeypatch.setitem(STRATEGIES, POOLS.level.name, replace(POOLS, _exhaustive=one))
    compile_rules()  # once, and on no budget's time
    done = CliRunner().invoke(app, ["hunt", "--subject", "kvproof-pool", "--effort", "12_000", "--seed", "1"])
    assert done.exit_code == 0, done.output
    lines, table = done.output.splitlines(), Path(".kvproof/report.txt").read_text().splitlines()
    assert any(line.startswith(" lists-agree ") and "exhausted" in line for line in table)
    begun = [line.partition(": begins")[0] for line in lines if ": begins" in line]
    assert begun == ["explorer (1 of 2)", "pool (2 of 2)"]


def test_a_hunt_has_no_verdict_for_a_scope_that_it_did_not_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = SearchResult(num_states=1)
    monkeypatch.setattr(explore_stage, "explore", lambda *_, **__: begun)
    make = find("kvproof-pool")
    saving = Saving(make, "kvproof-pool", 1, Store(tmp_path))

    def verdicts(is_hunt: bool) -> set[Verdict]:
        stage = explore_stage.subject_stage(make, make(), {"pages": PAGES}, saving, 1.0, is_hunt)
        return {one.verdict for one in stage.run(StageBudget(1, 10.0, lambda count: None)) if isinstance(one, Check)}

    assert (verdicts(is_hunt=True), verdicts(is_hunt=False)) == (set(), {Verdict.UNKNOWN})


def test_a_check_of_a_scope_is_planned_only_for_features_that_it_has() -> None:
    planned = {
        check.id for check in planned_checks_of_scopes("explorer", {"blocks": BLOCKS, "pages": PAGES}, OwnPool())
    }
    assert {"explorer/hit-computed/pages", "explorer/lists-agree/blocks", "explorer/read-back"} <= planned
    assert "explorer/hit-computed/blocks" not in planned
