"""`kvproof history` and `kvproof compare`, with runs that record themselves."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.check.hunting import hunt
from kvproof.check.runs import run
from kvproof.check.runs.run import RunOptions
from kvproof.spec.verdict import Exit

SMALL = ("explore", "--blocks", "2", "--seqs", "1", "--tokens", "2")


def kvproof(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.output


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KVPROOF_HOST", "alpha")


def test_runs_record_themselves_and_are_shown_and_compared() -> None:
    Path("kvproof.toml").write_text('history = "runs.db"\n')
    first = kvproof(*SMALL)
    second = kvproof(*SMALL, "--subject", "kvproof", "--no-isolation", "--out", "b", "--json", "b.json")
    third = kvproof(*SMALL, "--subject", "kvproof", "--no-isolation", "--out", "c")
    assert [code for code, _ in (first, second, third)] == [Exit.OK] * 3
    assert first[1].splitlines()[-1].startswith("Recorded in runs.db as run ")
    code, output = kvproof("history", "--html", "page.html")
    assert code == Exit.OK
    lines = output.splitlines()
    assert lines[0] == "the specification: 1 run, on alpha"
    assert "kvproof: 2 runs, on alpha" in lines
    assert lines[-1] == "Page: page.html"
    assert "<h1>What did the runs find" in Path("page.html").read_text()

    code, output = kvproof("history", "--subject", "kvproof", "--json", "--last", "1")
    (subject,) = json.loads(output)["subjects"]
    assert (subject["name"], len(subject["runs"])) == ("kvproof", 1)
    assert subject["runs"][0]["operations"] > 0
    ids = [line.split()[-1] for _, out in (second, third) for line in out.splitlines() if line.startswith("Recorded")]
    for pair in (ids, ("b.json", "c"), (ids[0][:6], "c")):
        code, output = kvproof("compare", *pair)
        assert (code, output.splitlines()[-1]) == (Exit.OK, "Nothing is worse in B than in A.")

    document = json.loads(Path("b.json").read_text())
    for check in document["checks"]:
        check["verdict"] = "unknown"
    Path("worse.json").write_text(json.dumps(document))
    code, output = kvproof("compare", ids[0], "worse.json")
    assert code == Exit.WORSE_THAN_BASELINE
    assert "exhausted in the baseline, now unknown" in output
    assert output.splitlines()[-1] == "B is worse than A."


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
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (run, hunt):
        monkeypatch.setattr(module, "run_stages", lambda *given, **named: pytest.fail("the run has begun"))
    Path("runs.db").write_text("notes of somebody " * 100)
    code, output = kvproof(*arguments, "--history", "runs.db")
    expected = "kvproof: --history: runs.db cannot be used as a history: file is not a database; name another file"
    assert (code, " ".join(output.split())) == (Exit.USAGE, expected)
    Path("kvproof.toml").write_text('history = "runs.db"\n')
    code, output = kvproof(*arguments)
    assert (code, " ".join(output.split())) == (
        Exit.USAGE,
        expected.replace("kvproof: ", "kvproof: kvproof.toml:1: "),
    )
    assert sorted(os.listdir()) == ["kvproof.toml", "runs.db"]


def test_a_history_that_breaks_during_the_run_changes_neither_the_result_nor_the_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def breaks(options: RunOptions, *given: Any, **named: Any) -> Exit:
        assert options.history is not None
        options.history.write_text("notes of somebody " * 100)
        return run_stages(options, *given, **named)

    run_stages = run.run_stages
    monkeypatch.setattr(run, "run_stages", breaks)
    code, output = kvproof(*SMALL, "--history", "runs.db")
    assert code == Exit.OK
    last = output.splitlines()[-1]
    assert last.startswith(
        "kvproof: this run is not in the history: runs.db cannot be used as a history: file is not a"
    )
    assert json.loads(Path(".kvproof/result.json").read_text())["run"]["is_complete"]


def test_device_compares_results() -> None:
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
    code, output = kvproof("device", "compare", "alpha.json", "beta.json", "--html", "hosts.html")
    assert code == Exit.OK
    assert output.splitlines() == [
        "alpha: a processor, torch 2.13: ok",
        "beta: a processor, torch 2.13: ok",
        "alpha: no speed was measured.",
        "beta: no speed was measured.",
        "Nothing is out of line.",
        "Page: hosts.html",
    ]
    assert "Which machine is out of line?" in Path("hosts.html").read_text()
