"""What `kvproof verify` says if a judge did not look at the subject, asked something else, or could not run."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kvproof.check.cli import verify
from kvproof.check.cli.app import app
from kvproof.spec.verdict import Exit

EXAMPLES = Path(__file__).parents[3] / "examples"
BROKEN_STORE = f"{EXAMPLES}/forty_line_store_broken.py:Store"
MANAGER = f"{EXAMPLES}/forty_lines.py:Adapter"
SHORT = ("--seed", "1", "--effort", "500", "--no-isolation")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def kvproof(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def properties(verdict: str) -> set[str]:
    document = json.loads(Path(".kvproof/result.json").read_text())
    return {check["property"] for check in document["checks"] if check["verdict"] == verdict}


def test_a_run_of_which_no_judge_looks_at_the_subject_checks_nothing_of_it() -> None:
    done = kvproof("verify", "--subject", BROKEN_STORE, "--judges", "specification", *SHORT)
    assert done.exit_code == Exit.NOTHING_CHECKED
    told = "specification checked the specification of kvproof, and made no call of the subject"
    assert f"Nothing was checked of {BROKEN_STORE}: {told}." in done.output


def test_the_specification_of_stores_is_searched_and_proved_for_a_store() -> None:
    done = kvproof("verify", "--subject", "kvproof-store", "--judges", "specification,prover", *SHORT)
    assert done.exit_code == Exit.OK
    assert "\nthe specification is not refuted: 19 properties hold as far as checked; prover 1," in done.output
    assert properties("exhausted") < properties("proved")
    assert {"hit-written", "promise-kept", "pin-own"} <= properties("exhausted")
    assert not properties("proved") & {"cow-copied", "read-back", "window-kept"}, "these are about block managers"


def test_a_required_judge_whose_extra_is_missing_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "the data plane needs torch, which is not installed"
    monkeypatch.setattr(verify, "reason_missing", lambda extra, what: reason)
    effort = ("--seed", "1", "--effort", "2000", "--no-isolation")  # enough for every witness
    command = ("verify", "--subject", MANAGER, "--judges", "walker", *effort)
    assert kvproof(*command).exit_code == Exit.OK
    done = kvproof(*command, "--require", "data-plane")
    assert done.exit_code == Exit.NOTHING_CHECKED
    assert f"Nothing was checked of {MANAGER} by data plane, which is required ({reason})." in done.output


def test_a_required_judge_runs_though_it_is_not_among_those_that_are_asked_for() -> None:
    Path("kvproof.toml").write_text('judges = ["specification"]\nrequire = ["store"]\n')
    done = kvproof("verify", "--subject", BROKEN_STORE, *SHORT, "--effort", "2000")
    assert done.exit_code == Exit.REFUTED
    assert "(store)." in done.output
    Path("kvproof.toml").write_text('require = ["prover", "walkers"]\n')
    done = kvproof("verify", "--subject", BROKEN_STORE, *SHORT)
    assert done.exit_code == Exit.USAGE
    assert "kvproof.toml:1: --require: no judge is named 'walkers' (did you mean walker?)" in done.output


def test_a_hunt_for_what_the_subject_cannot_have_checks_nothing() -> None:
    command = ("hunt", "--subject", MANAGER, *SHORT)
    done = kvproof(*command, "--property", "swap-mapping")
    assert done.exit_code == Exit.NOTHING_CHECKED
    assert done.output == (
        "kvproof: nothing of what is asked for can be checked: swap-mapping: the subject cannot swap\n"
    )
    assert not Path(".kvproof").exists()
    done = kvproof(*command, "--property", "swap-mapping", "--property", "nondeterministic")
    assert done.exit_code != Exit.NOTHING_CHECKED
    assert "note: --property swap-mapping: the subject cannot swap" in done.output
