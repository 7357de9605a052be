"""`kvproof baseline accept`, and a hunt that is compared with it."""

import json
from pathlib import Path

import pytest
from tests.golden_files import Command
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.spec.verdict import Exit

BROKEN = Path(__file__).parents[3] / "examples" / "forty_lines_broken.py"


def kvproof(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.output


@pytest.mark.usefixtures("few_scopes")
def test_a_hunt_accepts_what_its_baseline_has_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    hunt = ("hunt", "--subject", f"{BROKEN}:Adapter", "--seed", "1", "--effort", "60", "--no-isolation")
    assert command(*hunt).exit_code == Exit.REFUTED
    assert command("baseline", "accept", ".kvproof").exit_code == Exit.OK
    baseline = json.loads(Path("kvproof-baseline.json").read_text())
    assert (baseline["run"]["seconds"], baseline["run"]["host"]) == (0.0, {})
    assert command(*hunt, "--baseline", "kvproof-baseline.json").exit_code == Exit.OK

    for check in baseline["checks"]:
        if check["verdict"] == "refuted":
            check["signature"] = "another"
    Path("other.json").write_text(json.dumps(baseline))
    assert command(*hunt, "--baseline", "other.json").exit_code == Exit.WORSE_THAN_BASELINE

    for file, subject in (("kvproof-baseline.json", "kvproof"), (".kvproof/result.json", "kvproof-generation1")):
        done = command("hunt", "--subject", subject, "--effort", "1", "--baseline", file, "--out", "new")
        assert done.exit_code == Exit.USAGE
        assert not Path("new").exists()
    baseline["run"]["subject"] = "kvproof"
    Path("other.json").write_text(json.dumps(baseline))
    assert command("baseline", "accept", ".kvproof", "--to", "other.json").exit_code == Exit.USAGE


def test_the_gate_of_a_manager_with_an_accepted_finding_passes_unchanged_and_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The three commands under "A gate that may only get better" in docs/ci.md, on the broken example."""
    monkeypatch.chdir(tmp_path)
    assert kvproof("examples", "examples")[0] == Exit.OK
    subject, effort = "examples/forty_lines_broken.py:Adapter", ("--seed", "1", "--effort", "6000", "--no-isolation")
    command = ("verify", "--subject", subject, *effort)
    assert kvproof(*command, "--out", "build")[0] == Exit.REFUTED
    assert kvproof("baseline", "accept", "build", "--to", "baseline.json")[0] == Exit.OK

    code, output = kvproof(*command, "--baseline", "baseline.json")
    assert "nothing is worse than in baseline.json" in output
    assert "excused: refcount-exact" in output
    assert code == Exit.OK

    broken = Path("examples/forty_lines_broken.py")
    forgetful = "        self.num_tokens[child] = self.num_tokens[parent]\n"
    counted = "        for block in self.tables[child]:\n            self.refcounts[block] += 1\n"
    repaired = broken.read_text().replace(forgetful, forgetful + counted)
    assert repaired != broken.read_text()
    broken.write_text(repaired)
    code, output = kvproof(*command, "--baseline", "baseline.json")
    assert "compared with baseline.json: fixed: refcount-exact: " in output
    assert code == Exit.OK


def test_what_is_no_baseline_is_refused(tmp_path: Path, command: Command) -> None:
    unfinished = {"run": {"version": "0", "command": "hunt", "subject": "s", "seed": 1}, "schema_version": 1}
    (tmp_path / "half.json").write_text(json.dumps(unfinished))
    for file in ("half.json", "nothing.json"):
        done = command("baseline", "accept", tmp_path / file, "--to", tmp_path / "b.json")
        assert done.exit_code == Exit.USAGE
    assert not (tmp_path / "b.json").exists()
