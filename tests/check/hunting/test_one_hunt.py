"""There is one hunt: a seed and an effort give the same runs and findings, whoever does the units."""

import ast
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.check.forgetful import FORGETFUL
from tests.syntax import parsed, statements
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.check.conformance import run_conformance
from kvproof.check.hosts.pool import LocalWorkers
from kvproof.check.hosts.workers import Workers
from kvproof.check.hunting import unit
from kvproof.check.hunting.campaign import Campaign, Watch
from kvproof.check.hunting.findings import Saving
from kvproof.check.hunting.head import Head, Here
from kvproof.check.hunting.plan import Plan, PlannedSearch
from kvproof.check.hunting.store import ResultStore
from kvproof.check.hunting.walk_stage import walker_stage
from kvproof.check.isolation.factory import factory_for
from kvproof.check.runs.effort import effort_of
from kvproof.check.runs.session import StageBudget
from kvproof.check.runs.store import Store
from kvproof.reports.result import Check
from kvproof.spec.verdict import Exit, Verdict

TREE = Path(__file__).resolve().parents[3]
FAULTY = f"""{FORGETFUL}
    def preempt(self, group):
        raise RuntimeError("no preemption here")
"""
Hunted = tuple[int, int, list[tuple[str, str, Any]]]  # operations, runs, and findings with their runs


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A subject with several faults."""
    file = tmp_path_factory.mktemp("one") / "several_faults.py"
    file.write_text(FAULTY)
    return f"{file}:Forgetful"


@pytest.fixture(scope="module")
def pools() -> Iterator[list[Workers]]:
    pools = [LocalWorkers(1), LocalWorkers(2)]
    yield [*pools]
    for pool in pools:
        pool.close()


def hunted(subject: str, seed: int, effort: str, folder: Path, head: Head | None) -> Hunted:
    """What the walk of a hunt does and finds; without a head, in this process."""
    make, chosen = factory_for(subject), effort_of(effort, None)
    saving = Saving(make, subject, seed, Store(folder), max_operations=chosen.shrinking_operations)
    stage = walker_stage(make(), saving, 1.0, saving.walk(chosen.operations), keeps_going=True, head=head)
    checks = [one for one in stage.run(StageBudget(seed, 1e9, lambda count: None)) if isinstance(one, Check)]
    counts = next(one.counts for one in checks if "runs" in one.counts)
    found = {one.id: one for one in checks if one.verdict is Verdict.REFUTED}
    kinds = sorted((one.property, one.signature, run_of(folder, one.trace)) for one in found.values())
    return counts["operations"], counts["runs"], kinds


def campaigned(subject: str, seed: int, effort: str, folder: Path) -> Hunted:
    """What a campaign of one search does and finds."""
    chosen = effort_of(effort, None)
    store = ResultStore.of_campaign(folder)
    plan = Plan(folder, [PlannedSearch(subject, {}, seed, chosen.name, chosen.operations)], None, None)
    campaign = Campaign(plan, store, Here(), Watch(lambda *_: None, lambda *_: None, lambda _: None))
    campaign.run()
    store.close()
    (row,) = campaign.result.searches
    kinds = sorted((one.property, one.signature, run_of(folder, one.trace)) for _, one in campaign.result.findings)
    return row.operations, row.runs, kinds


def run_of(folder: Path, trace: str | None) -> Any:
    assert trace is not None
    document = json.loads((folder / trace).read_text())
    return [document[name] for name in ("seed", "operations", "num_operations_before")]


@settings(max_examples=3, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), effort=st.sampled_from(["600", "1200"]))
def test_a_seed_and_an_effort_give_one_hunt_alone_by_workers_and_in_a_campaign(
    subject: str, pools: list[Workers], tmp_path_factory: pytest.TempPathFactory, seed: int, effort: str
) -> None:
    folder = tmp_path_factory.mktemp("hunts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unit, "SMALL", 500)  # so that some are several units
        alone = hunted(subject, seed, effort, folder / "alone", None)
        assert len(alone[2]) > 1  # several faults
        for pool in pools:
            assert hunted(subject, seed, effort, folder / pool.name, Head(pool)) == alone
        assert campaigned(subject, seed, effort, folder / "campaign") == alone


def test_walks_are_walked_on_in_one_place() -> None:
    """Hunts: 1. Counted are the files outside of search/ and isolation/ that take `walk` from either of them."""
    walking = {
        path.name
        for path, imported in imports()
        for module, name in imported
        if name == "walk" and module.rpartition(".")[2] in ("random_walk", "remote_search")
    }
    assert walking == {"unit.py"}


def test_results_are_resumed_from_one_store() -> None:
    """Resume formats: 1. Counted are the formats, in which results could be kept, that what resumes imports.

    These files are all of hunting/, and the store of the judged faults.
    """
    formats = {"sqlite3", "json", "pickle", "shelve", "csv", "tomllib"}
    keeping = {
        (path.name, module)
        for path, imported in imports()
        if path.parent.name == "hunting" or path.name == "fault_store.py"
        for module, _ in imported
    }
    assert {(name, module) for name, module in keeping if module in formats} == {("store.py", "sqlite3")}


@cache
def imports() -> list[tuple[Path, list[tuple[str, str]]]]:
    """The files of check/ and audit/ outside of search/ and isolation/, each with the modules and names it imports."""
    files = []
    for root in ("check", "audit"):
        for path in sorted((TREE / root).rglob("*.py")):
            if {"search", "isolation"} & {*path.parts}:
                continue
            found: list[tuple[str, str]] = []
            for node in statements(parsed(path)):
                if isinstance(node, ast.ImportFrom):
                    found += [(node.module or "", name.name) for name in node.names]
                elif isinstance(node, ast.Import):
                    found += [(name.name, "") for name in node.names]
            files.append((path, found))
    return files


REFUSING = """
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.subjects.builtin.manager import BuiltIn

class Refusing(BuiltIn):
    def open(self, config):
        raise Unsupported("no device")
"""
CAMPAIGN = """
out = "campaign"
[[search]]
subjects = ["refusing.py:Refusing"]
seeds = [1]
efforts = ["500"]
"""
REFUSED_EACH = ("--subject", "refusing.py:Refusing", "--no-isolation", "--effort", "500", "--seed", "1")


@pytest.mark.parametrize(
    "words",
    [("hunt", *REFUSED_EACH), ("verify", *REFUSED_EACH), ("campaign", "refusing.toml", "--workers", "1")],
    ids=lambda words: words[0],
)
def test_nothing_is_checked_of_a_subject_that_refuses_every_configuration(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("refusing.py").write_text(REFUSING)
    Path("refusing.toml").write_text(CAMPAIGN)
    done = CliRunner().invoke(app, [*words])
    assert done.exit_code == Exit.NOTHING_CHECKED, done.output
    assert "refusing.py:Refusing: the subject refused" in done.output or "it refused every" in done.output
    with pytest.raises(AssertionError, match=r"nothing was checked: .* accepted no configuration .* reason: no device"):
        run_conformance("refusing.py:Refusing", operations=500, isolation=False)
