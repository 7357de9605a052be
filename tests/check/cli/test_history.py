"""`kvproof history` and `kvproof compare`, with runs that record themselves."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.golden_files import Command
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.check.hunting import hunt
from kvproof.check.runs import run
from kvproof.check.runs.run import RunOptions
from kvproof.spec.verdict import Exit

SMALL = ("explore", "--blocks", "2", "--seqs", "1", "--tokens", "2")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KVPROOF_HOST", "alpha")


def test_runs_record_themselves_and_are_shown_and_compared(command: Command) -> None:
    Path("kvproof.toml").write_text('history = "runs.db"\n')
    assert command(*SMALL).exit_code == Exit.OK
    second = command(*SMALL, "--subject", "kvproof", "--no-isolation", "--out", "b", "--json", "b.json")
    third = command(*SMALL, "--subject", "kvproof", "--no-isolation", "--out", "c")
    assert (second.exit_code, third.exit_code) == (Exit.OK, Exit.OK)
    assert command("history", "--html", "page.html").exit_code == Exit.OK
    assert "<h1>What did the runs find" in Path("page.html").read_text()

    done = command("history", "--subject", "kvproof", "--json", "--last", "1")
    (subject,) = json.loads(done.stdout)["subjects"]
    assert (subject["name"], len(subject["runs"])) == ("kvproof", 1)
    assert subject["runs"][0]["operations"] > 0
    ids = [one.stdout.split()[-1] for one in (second, third)]  # "Recorded in runs.db as run ..."
    for pair in (ids, [ids[0][:6], "c"]):
        assert CliRunner().invoke(app, ["compare", *pair]).exit_code == Exit.OK
    assert command("compare", "b.json", "c").exit_code == Exit.OK

    document = json.loads(Path("b.json").read_text())
    for check in document["checks"]:
        check["verdict"] = "unknown"
    Path("worse.json").write_text(json.dumps(document))
    assert command("compare", "b.json", "worse.json").exit_code == Exit.WORSE_THAN_BASELINE


@pytest.mark.parametrize(
    "arguments",
    [
        SMALL,
        ("hunt", "--subject", "kvproof", "--effort", "100"),
        ("verify", "--subject", "kvproof", "--effort", "100"),
        ("prove", "--only", "nothing"),
        ("device", "--device", "cpu"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_history_that_cannot_be_used_is_found_before_the_run(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    for module in (run, hunt):
        monkeypatch.setattr(module, "run_stages", lambda *given, **named: pytest.fail("the run has begun"))
    Path("runs.db").write_text("notes of somebody " * 100)
    assert command(*arguments, "--history", "runs.db").exit_code == Exit.USAGE
    Path("kvproof.toml").write_text('history = "runs.db"\n')
    assert command(*arguments).exit_code == Exit.USAGE
    assert sorted(os.listdir()) == ["kvproof.toml", "runs.db"]


def test_a_history_that_breaks_during_the_run_changes_neither_the_result_nor_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    def breaks(options: RunOptions, *given: Any, **named: Any) -> Exit:
        assert options.history is not None
        options.history.write_text("notes of somebody " * 100)
        return run_stages(options, *given, **named)

    run_stages = run.run_stages
    monkeypatch.setattr(run, "run_stages", breaks)
    assert command(*SMALL, "--history", "runs.db").exit_code == Exit.OK
    assert json.loads(Path(".kvproof/result.json").read_text())["run"]["is_complete"]


def test_device_compares_results(command: Command) -> None:
    run = {"version": "0.2", "command": "device", "subject": "the data plane of cpu", "seed": 1, "is_complete": True}
    check = {"id": "a/b", "judge": "a", "property": "b", "verdict": "not refuted"}
    for host in ("alpha", "beta"):
        facts = {"host": host, "processor": "a processor", "torch": "2.13"}
        document = {
            "run": {**run, "host": facts},
            "checks": [check],
            "data_plane": {"device": "cpu"},
            "schema_version": 1,
        }
        Path(f"{host}.json").write_text(json.dumps(document))
    done = command("device", "compare", "alpha.json", "beta.json", "--html", "hosts.html")
    assert done.exit_code == Exit.OK
    assert "Which machine is out of line?" in Path("hosts.html").read_text()
