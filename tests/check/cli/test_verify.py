"""What `kvproof verify` says if a judge did not look at the subject, asked something else, or could not run."""

import json
from pathlib import Path

import pytest
from tests.golden_files import Command

from kvproof.check.cli import verify
from kvproof.spec.verdict import Exit

EXAMPLES = Path(__file__).parents[3] / "examples"
BROKEN_STORE = f"{EXAMPLES}/forty_line_store_broken.py:Store"
MANAGER = f"{EXAMPLES}/forty_lines.py:Adapter"
SHORT = ("--seed", "1", "--effort", "500", "--no-isolation")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def properties(verdict: str) -> set[str]:
    document = json.loads(Path(".kvproof/result.json").read_text())
    return {check["property"] for check in document["checks"] if check["verdict"] == verdict}


def test_a_run_of_which_no_judge_looks_at_the_subject_checks_nothing_of_it(command: Command) -> None:
    assert (
        command("verify", "--subject", BROKEN_STORE, "--judges", "specification", *SHORT).exit_code
        == Exit.NOTHING_CHECKED
    )


def test_the_specification_of_stores_is_searched_and_proved_for_a_store(command: Command) -> None:
    assert (
        command("verify", "--subject", "kvproof-store", "--judges", "specification,prover", *SHORT).exit_code == Exit.OK
    )
    assert properties("exhausted") < properties("proved")
    assert {"hit-written", "promise-kept", "pin-own"} <= properties("exhausted")
    assert not properties("proved") & {"cow-copied", "read-back", "window-kept"}, "these are about block managers"


def test_a_required_judge_whose_extra_is_missing_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    reason = "the data plane needs torch, which is not installed"
    monkeypatch.setattr(verify, "reason_missing", lambda extra, what: reason)
    effort = ("--seed", "1", "--effort", "2000", "--no-isolation")  # enough for every witness
    required = ("verify", "--subject", MANAGER, "--judges", "walker", *effort)
    assert command(*required).exit_code == Exit.OK
    assert command(*required, "--require", "data-plane").exit_code == Exit.NOTHING_CHECKED


def test_a_required_judge_runs_though_it_is_not_among_those_that_are_asked_for(command: Command) -> None:
    Path("kvproof.toml").write_text('judges = ["specification"]\nrequire = ["store"]\n')
    done = command("verify", "--subject", BROKEN_STORE, *SHORT, "--effort", "2000")
    assert done.exit_code == Exit.REFUTED
    Path("kvproof.toml").write_text('require = ["prover", "walkers"]\n')
    assert command("verify", "--subject", BROKEN_STORE, *SHORT).exit_code == Exit.USAGE


def test_a_hunt_for_what_the_subject_cannot_have_checks_nothing(command: Command) -> None:
    hunt = ("hunt", "--subject", MANAGER, *SHORT)
    done = command(*hunt, "--property", "swap-mapping")
    assert done.exit_code == Exit.NOTHING_CHECKED
    assert not Path(".kvproof").exists()
    done = command(*hunt, "--property", "swap-mapping", "--property", "nondeterministic")
    assert done.exit_code != Exit.NOTHING_CHECKED
