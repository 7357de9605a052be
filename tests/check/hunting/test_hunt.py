"""The runs that an earlier hunt has saved are replayed first, and change nothing of what the search does."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.check.forgetful import FORGETFUL
from typer.testing import CliRunner

from kvproof.check.cli.app import app

TRACES = Path(__file__).parents[3] / "examples" / "traces"
SAID = "saved runs: {} replayed first, {}"
OPTIONS = ("--subject", "faulty_seeds.py:Forgetful", "--no-isolation", "--effort", "1000", "--seed", "3")


@pytest.fixture
def folder(tmp_path: Path, few_scopes: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "faulty_seeds.py").write_text(FORGETFUL)
    return tmp_path


def hunted(*options: str, exit_code: int = 1) -> dict[str, Any]:
    """The result of a hunt."""
    done = CliRunner().invoke(app, ["hunt", *OPTIONS, *options])
    assert done.exit_code == exit_code, done.output
    document: dict[str, Any] = json.loads(Path(".kvproof", "result.json").read_text())
    return document


def searched(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The checks of the searches, without times."""
    return [check | {"seconds": 0} for check in document["checks"] if check["judge"] != "saved runs"]


def test_a_saved_run_is_replayed_first_and_the_search_is_that_of_an_empty_folder(folder: Path) -> None:
    first = hunted()
    assert not [message for message in first["messages"] if "replayed first" in message]
    saved = {Path(check["trace"]).name for check in first["checks"] if check["trace"]}
    files = {path.name for path in Path(".kvproof", "crashes").iterdir()}
    again = hunted()
    said = SAID.format(f"{len(saved)} was" if len(saved) == 1 else f"{len(saved)} were", "1 fails")
    num = sum(2 * len(json.loads(Path(".kvproof", "crashes", one).read_text())["operations"]) for one in saved)
    assert f"{said}; {num} operations beside the effort" in again["messages"]
    (found,) = (check for check in again["checks"] if check["judge"] == "saved runs")
    assert (found["property"], found["verdict"]) == ("refcount-exact", "refuted")
    assert Path(found["trace"]).name in saved
    assert searched(again) == searched(first)
    assert {path.name for path in Path(".kvproof", "crashes").iterdir()} == files


def test_a_saved_run_that_fails_ends_a_hunt_for_the_first_finding_before_anything_is_searched(folder: Path) -> None:
    hunted()
    document = hunted("--stop-at-first", "--seed", "8")
    assert {check["judge"] for check in document["checks"] if check["verdict"] == "refuted"} == {"saved runs"}
    assert not [check for check in document["checks"] if check["judge"] == "walker" and check["counts"]]


def test_a_saved_run_of_a_fault_that_is_repaired_or_of_another_subject_refutes_nothing(folder: Path) -> None:
    hunted()
    assert "saved runs" not in str(hunted("--subject", "kvproof", exit_code=4)["messages"])
    hunted()
    Path("faulty_seeds.py").write_text(
        "from kvproof.check.subjects.builtin.manager import BuiltIn\n\n\nclass Forgetful(BuiltIn):\n    pass\n"
    )
    document = hunted(exit_code=4)
    assert SAID.format("1 was", "0 fail") in str(document["messages"])
    assert {check["verdict"] for check in document["checks"]} & {"refuted"} == set()


def test_long_and_many_saved_runs_are_left_out_and_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much a folder holds: the shortest runs are replayed, with a part of the effort."""
    hunted()
    crashes = Path(".kvproof", "crashes")
    (saved,) = crashes.glob("*.json")
    trace = json.loads(saved.read_text())
    operations = trace["operations"]
    saved.unlink()
    for num in range(4):
        (crashes / f"{4 - num}.json").write_text(json.dumps(trace | {"operations": operations + operations[-1:] * num}))
    monkeypatch.setattr("kvproof.check.hunting.hunt.SEEDS_MAX", 3)
    cost = sum(2 * (len(operations) + num) for num in range(3))
    said = f"{SAID.format('3 were', '1 fails')}; {cost} operations beside the effort; 1 longer one was left out"
    document = hunted()
    assert said in document["messages"]
    (found,) = (check for check in document["checks"] if check["judge"] == "saved runs")
    assert found["trace"] == "crashes/4.json"  # the shortest
    long = trace | {"operations": [*operations[:-1], *[["run", 1]] * 20_000, operations[-1]]}
    for file in crashes.glob("*.json"):
        file.unlink()
    (crashes / "5.json").write_text(json.dumps(long))
    said = f"{SAID.format('0 were', '0 fail')}; 0 operations beside the effort; 1 longer one was left out"
    assert said in hunted()["messages"]


def test_a_saved_run_without_the_fixed_fields_is_not_replayed(folder: Path) -> None:
    hunted()
    document = hunted("--fix", "block_size=3", "--fix", "num_gpu_blocks=9")
    assert "replayed first" not in str(document["messages"])
    (found,) = (check for check in document["checks"] if check["verdict"] == "refuted")
    config = json.loads((Path(".kvproof") / found["trace"]).read_text())["config"]
    assert (config["block_size"], config["num_gpu_blocks"]) == (3, 9)  # of the shortest run, too


def test_a_saved_run_of_another_level_is_passed_over(folder: Path) -> None:
    hunted("--subject", "kvproof", exit_code=4)
    trace = json.loads((TRACES / "v0-scheduler-a-prompt-beyond-its-window.json").read_text()) | {"subject": "kvproof"}
    Path(".kvproof", "crashes").mkdir(exist_ok=True)
    Path(".kvproof", "crashes", "other.json").write_text(json.dumps(trace))
    document = hunted("--subject", "kvproof", exit_code=4)
    assert "replayed first" not in str(document["messages"])
    assert {check["judge"] for check in document["checks"] if check["counts"]} == {"explorer", "walker"}
