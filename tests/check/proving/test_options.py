"""The optional parts of `kvproof prove`: a second solver, SMT-LIB files, cores, a baseline of efforts."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import z3
from tests.golden_files import Run

from kvproof.check.proving.options import compare_answers
from kvproof.models.obligation import Obligation
from kvproof.models.proofs.induction import Induction
from kvproof.models.solvers.solving import Answer, ProofOutcome
from kvproof.models.translation.translator import Translator
from kvproof.spec.verdict import Exit, Verdict

X = z3.Int("x")
PART = "mapping/swap-in and copy"


def test_a_second_solver_proves_it_again_and_each_answer_is_a_check_of_its_own(prove: Run) -> None:
    pytest.importorskip("cvc5")
    done = prove("--json", "-", "--only", PART, "--second-solver")
    assert done.exit_code == 0
    checks = json.loads(done.stdout)["checks"]
    by_judge = {judge: [one for one in checks if one["judge"] == judge] for judge in ("prover", "second-solver")}
    assert len(by_judge["prover"]) == len(by_judge["second-solver"]) == 2
    assert {one["verdict"] for one in checks} == {"proved"}
    assert len({one["id"] for one in checks}) == len(checks)


def test_a_missing_second_solver_is_an_error_before_the_run(monkeypatch: pytest.MonkeyPatch, prove: Run) -> None:
    monkeypatch.setitem(sys.modules, "cvc5", None)
    assert prove("--second-solver").exit_code == Exit.USAGE


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        (Verdict.PROVED, Verdict.PROVED, Verdict.PROVED),
        (Verdict.PROVED, Verdict.REFUTED, Verdict.REFUTED),
        (Verdict.REFUTED, Verdict.PROVED, Verdict.REFUTED),
        (Verdict.PROVED, Verdict.UNKNOWN, Verdict.UNKNOWN),
        (Verdict.UNKNOWN, Verdict.REFUTED, Verdict.UNKNOWN),
        (Verdict.UNKNOWN, Verdict.PROVED, Verdict.PROVED),
    ],
)
def test_two_solvers_that_contradict_each_other_refute_the_run(
    first: Verdict, second: Verdict, verdict: Verdict
) -> None:
    one = ProofOutcome(Obligation("suite", "subject", "claim", "read-back", (), X > 0), Answer(first))
    check = compare_answers(one, replace(one, answer=Answer(second)))
    assert check.verdict is verdict
    assert ("contradict" in check.text) == ({first, second} == {Verdict.PROVED, Verdict.REFUTED})
    assert (check.text == "") == (verdict is Verdict.PROVED)


def test_every_question_is_a_file_that_another_solver_can_read(tmp_path: Path, prove: Run) -> None:
    assert prove("--only", PART, "--smt2", tmp_path).exit_code == 0
    files = list(tmp_path.rglob("*.smt2"))
    assert len(files) == 2
    for file in files:
        solver = z3.Solver()
        solver.from_string(file.read_text())
        assert solver.check() == z3.unsat
        assert file.read_text().startswith(f"; {PART}/")


def test_cores_say_what_each_proof_rests_on_and_which_invariants_a_rule_needed(
    monkeypatch: pytest.MonkeyPatch, prove: Run
) -> None:
    unit = next(unit for unit in Induction(Translator()).units() if unit.name == "begin_swap")
    monkeypatch.setattr("kvproof.check.proving.asked.units_of", lambda *_: [unit])
    done = prove("--only", "specification/begin_swap", "--cores", "--json", "-")
    checks = json.loads(done.stdout)["checks"]
    texts = {one["id"].rpartition("/")[2]: one["text"] for one in checks}
    assert texts["entries_are_in_their_pool"].startswith("rests on: ")
    assert "entries_are_in_their_pool" in texts["entries_are_in_their_pool"]


def test_a_proof_that_became_harder_than_the_baseline_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prove: Run
) -> None:
    baseline = tmp_path / "efforts.json"
    known = {"solver": f"z3 {z3.get_version_string()}", "seed": 0, "hard": {}, "subjects": {PART: 2}}
    baseline.write_text(json.dumps(known))
    assert prove("--only", PART, "--baseline", baseline).exit_code == 0
    monkeypatch.setattr("kvproof.models.solvers.solver_effort.FLOOR", 1)
    assert prove("--only", PART, "--baseline", baseline).exit_code == Exit.WORSE_THAN_BASELINE


@pytest.mark.parametrize(
    "content", ['{"solver": "z3 1.0", "seed": 0, "hard": {}, "subjects": {}}', "[]"], ids=["solver", "list"]
)
def test_a_baseline_that_cannot_be_compared_is_a_mistake_of_the_caller(
    tmp_path: Path, content: str, prove: Run
) -> None:
    baseline = tmp_path / "efforts.json"
    baseline.write_text(content)
    assert prove("--baseline", baseline).exit_code == Exit.USAGE
