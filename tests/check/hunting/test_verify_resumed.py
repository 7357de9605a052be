"""A run of `kvproof verify` goes on where it was stopped: no search is done twice, and it ends as one that was not."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.check.forgetful import FORGETFUL
from tests.check.hunting.killed import killed_after
from typer.testing import CliRunner, Result

from kvproof.check.cli.app import app
from kvproof.check.hunting import explore_stage, hypothesis_stage, unit
from kvproof.check.hunting.resume import VerifyPlan, resumed
from kvproof.check.isolation.remote_search import explore
from kvproof.check.oracle.level import compile_rules

SUBJECT = ("--subject", "faulty.py:Forgetful", "--no-isolation")
NEW = (*SUBJECT, "--seed", "3", "--judges", "explorer,walker,hypothesis", "--effort", "1500")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a faulty subject; the walk has units of 500 operations."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "faulty.py").write_text(FORGETFUL)
    monkeypatch.setattr(unit, "SMALL", 500)
    compile_rules()
    return tmp_path


def verify(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["verify", *arguments])


def checks(folder: Path) -> dict[str, dict[str, Any]]:
    """The checks of a result without times and places."""
    document = json.loads((folder / "result.json").read_text())
    return {
        check["id"]: check | {"seconds": 0, "text": check.get("text", "").replace(str(folder), "")}
        for check in document["checks"]
    }


def noted_searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The searches that are done from now on, each by the name of its judge."""
    done: list[str] = []

    def noted(judge: str, search: Any) -> Any:
        def do(*arguments: Any, **named: Any) -> Any:
            done.append(judge)
            return search(*arguments, **named)

        return do

    monkeypatch.setattr("kvproof.check.hunting.head.walked", noted("walker", unit.walked))
    monkeypatch.setattr("kvproof.check.hunting.explore_stage.explore", noted("explorer", explore))
    monkeypatch.setattr(hypothesis_stage, "driven", noted("hypothesis", hypothesis_stage.driven))
    return done


@pytest.mark.parametrize(("num_kept", "workers"), [(3, ()), (1, ("--workers", "2"))])
def test_a_run_that_is_killed_and_resumed_ends_as_one_that_was_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch, num_kept: int, workers: tuple[str, ...]
) -> None:
    assert verify(*NEW, "--out", "whole").exit_code == 1
    killed_after(num_kept, ["verify", *NEW], monkeypatch)
    assert verify("--resume", ".kvproof", *SUBJECT, *workers).exit_code == 1
    assert checks(folder / ".kvproof") == checks(folder / "whole")


def test_no_search_of_a_run_that_ended_is_done_again_when_it_is_resumed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert verify(*NEW).exit_code == 1
    before, done = checks(folder / ".kvproof"), noted_searches(monkeypatch)
    assert verify("--resume", ".kvproof", *SUBJECT).exit_code == 1
    assert (checks(folder / ".kvproof"), done) == (before, [])
    assert verify(*NEW).exit_code == 1
    assert {*done} == {"walker", "explorer", "hypothesis"}, "a new run in the folder takes nothing from the old one"


def test_the_specification_is_not_searched_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--subject", "kvproof-store", "--seed", "1", "--judges", "specification", "--require", "store")
    assert verify(*options, "--effort", "500").exit_code in (0, 4)
    before = checks(folder / ".kvproof")

    def explore_stores(*arguments: Any, **named: Any) -> Any:
        raise AssertionError("it was searched before")

    monkeypatch.setattr(explore_stage, "explore_stores", explore_stores)
    assert verify("--resume", ".kvproof").exit_code in (0, 4)
    assert checks(folder / ".kvproof") == before


def test_a_run_is_continued_with_its_own_options_and_not_with_those_of_the_configuration(folder: Path) -> None:
    assert verify(*NEW).exit_code == 1
    (folder / "kvproof.toml").write_text('subject = "kvproof"\njudges = ["hypothesis"]\neffort = "quick"\nseed = 9\n')
    assert verify("--resume", ".kvproof", *SUBJECT).exit_code == 1
    run = json.loads((folder / ".kvproof" / "result.json").read_text())["run"]
    assert (run["subject"], run["seed"], run["effort"]) == ("faulty.py:Forgetful", 3, "1500")
    assert {"--judges", "explorer,walker,hypothesis"} <= {*run["options"]}
    store, plan = resumed(folder / ".kvproof", VerifyPlan)
    store.close()
    assert (plan.judges, plan.effort) == (["explorer,walker,hypothesis"], "1500")


def test_a_damaged_store_is_the_users_to_mend(folder: Path) -> None:
    options = ("--subject", "kvproof-pool", "--effort", "500", "--seed", "1", "--judges", "pool", "--out", "out")
    assert verify(*options).exit_code in (0, 4)
    (folder / "out" / "verify.sqlite").write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 40)
    for given in (options, ("--resume", "out")):
        done = verify(*given)
        assert (done.exit_code, "verify.sqlite" in done.output) == (2, True), done.output
