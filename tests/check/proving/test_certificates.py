"""`kvproof prove --certificates`: files, index, what a second run keeps, and what an incomplete run says."""

import errno
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import z3
from tests.golden_files import Run
from typer.testing import CliRunner, Result

from kvproof.check.cli.app import app
from kvproof.check.proving.certificates import CertificateRun
from kvproof.check.runs.store import StoreError
from kvproof.check.runs.terminal import output
from kvproof.models.certificates import proving
from kvproof.models.certificates.folder import (
    INDEX,
    PROOF,
    QUESTION,
    compressed,
    encode_index,
    file_stem,
    read_index,
    read_text,
)
from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.solvers import second_solver
from kvproof.models.solvers.solving import Answer, Asker, Decide, Printer, ProofOutcome, Settings, ask
from kvproof.spec.verdict import Exit, Verdict

pytest.importorskip("cvc5")

PART = "mapping/swap-in and copy"
X, Y = z3.Ints("x y")
F = z3.Function("f", z3.IntSort(), z3.IntSort())


def obligation(claim: str, goal: z3.BoolRef, *hypotheses: Hypothesis) -> Obligation:
    return Obligation("suite", "subject", claim, "read-back", hypotheses, goal)


TWICE = obligation("twice", F(F(Y)) > Y, Hypothesis("grows", z3.ForAll([X], F(X) > X)))
BETWEEN = obligation("between", Y == 4, Hypothesis("low", Y > 3), Hypothesis("high", Y < 5))
WRONG = obligation("wrong", Y > 4, Hypothesis("low", Y > 3))
ASKED: list[str] = []  # the obligations that cvc5 was asked


def in_this_process(
    obligations: Iterable[Obligation],
    settings: Settings,
    *,
    asker: Asker = ask,
    printer: Printer = Obligation.question,
    meanwhile: Iterable[object] = (),
) -> Iterator[ProofOutcome]:
    for one in obligations:
        ASKED.append(one.claim)
        yield ProofOutcome(one, asker(*printer(one), settings))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    ASKED.clear()
    monkeypatch.setattr(
        "kvproof.check.proving.certificates.pinned_names", lambda _: {one.id for one in (TWICE, BETWEEN, WRONG)}
    )


def certify(
    folder: Path, *obligations: Obligation, is_whole: bool = True, decide: Decide = in_this_process
) -> dict[str, Verdict]:
    """cvc5's verdict for each obligation, by claim, in a run of its own."""
    run = CertificateRun(folder, Settings(), decide, is_whole)
    first = [ProofOutcome(one, Answer(Verdict.PROVED)) for one in obligations]
    return {one.obligation.claim: one.answer.verdict for _, one in run.outcomes(first, output())}


def indexed(folder: Path) -> dict[str, bool]:
    """Whether the obligation has a complete proof, by claim."""
    return {one.id.rpartition("/")[2]: one.is_complete for one in read_index(folder).obligations}


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def kvproof_prove(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["prove", "--jobs", "1", "--no-cache", *arguments])


def test_the_command_writes_certificates_and_a_second_run_keeps_them(tmp_path: Path) -> None:
    done = kvproof_prove("--only", PART, "--certificates", str(tmp_path), "--json", str(tmp_path / "result.json"))
    assert done.exit_code == 0, done.output
    checks: list[dict[str, Any]] = json.loads((tmp_path / "result.json").read_bytes())["checks"]
    assert [one["verdict"] for one in checks if one["judge"] == "certificates"] == ["proved"] * 2
    index = read_index(tmp_path)
    assert index.solver == f"cvc5 {second_solver.version()}"
    assert [one.id.startswith(PART) and one.is_complete for one in index.obligations] == [True, True]
    before = content(tmp_path)
    again = kvproof_prove("--only", PART, "--certificates", str(tmp_path))
    assert "certificates: 2 of 2 with a proof" in again.stdout
    assert "2 from an earlier run, not checked here" in again.stdout
    assert content(tmp_path) == before


def test_a_proof_is_made_again_if_its_question_or_the_solver_has_changed_or_a_file_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certify(tmp_path, TWICE, BETWEEN)
    before = content(tmp_path)
    stem = tmp_path / file_stem(TWICE.id)
    for file, damaged in (
        (f"{stem}{PROOF}", b""),
        (f"{stem}{PROOF}", compressed("(assume @p1 true)\n")),
        (f"{stem}{PROOF}", compressed(read_text(Path(f"{stem}{PROOF}")) + "; another proof\n")),
        (f"{stem}{QUESTION}", compressed("(assert true)\n")),
    ):
        ASKED.clear()
        Path(file).write_bytes(damaged)
        certify(tmp_path, TWICE, BETWEEN)
        assert ASKED == ["twice"]
        assert content(tmp_path) == before
    changed = obligation("twice", F(F(F(Y))) > Y, *TWICE.hypotheses)
    assert certify(tmp_path, changed, BETWEEN) == {"twice": Verdict.PROVED, "between": Verdict.NOT_REFUTED}
    assert ASKED == ["twice", "twice"]
    ASKED.clear()
    monkeypatch.setattr(second_solver, "version", lambda: "9.9")
    certify(tmp_path, changed, BETWEEN)
    assert ASKED == ["twice", "between"]


def test_an_interrupted_run_leaves_an_index_and_the_next_run_goes_on(
    tmp_path: Path,
) -> None:
    def interrupted(*arguments: Any, **options: Any) -> Iterator[ProofOutcome]:
        yield next(in_this_process(*arguments, **options))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        certify(tmp_path, TWICE, BETWEEN, decide=interrupted)
    assert indexed(tmp_path) == {"twice": True}
    ASKED.clear()
    certify(tmp_path, TWICE, BETWEEN)
    assert ASKED == ["between"]
    assert indexed(tmp_path) == {"between": True, "twice": True}


def test_a_run_of_a_part_keeps_the_other_rows_and_a_run_of_everything_does_not(tmp_path: Path) -> None:
    certify(tmp_path, TWICE)
    certify(tmp_path, BETWEEN, is_whole=False)
    assert indexed(tmp_path) == {"between": True, "twice": True}
    certify(tmp_path, BETWEEN)
    assert indexed(tmp_path) == {"between": True}


def test_a_kept_proof_is_not_called_proved(tmp_path: Path) -> None:
    assert certify(tmp_path, TWICE) == {"twice": Verdict.PROVED}
    assert certify(tmp_path, TWICE, BETWEEN) == {"twice": Verdict.NOT_REFUTED, "between": Verdict.PROVED}


@pytest.mark.parametrize("is_whole", [True, False])
def test_rows_that_no_obligation_has_or_whose_files_are_wrong_are_dropped_and_named(
    tmp_path: Path, is_whole: bool
) -> None:
    certify(tmp_path, TWICE, BETWEEN, WRONG)
    index = read_index(tmp_path)
    invented = replace(index.obligations[0], id="suite/subject/nothing is ever freed twice", proof="")
    (tmp_path / INDEX).write_bytes(encode_index(replace(index, obligations=[*index.obligations, invented])))
    (tmp_path / f"{file_stem(TWICE.id)}{PROOF}").unlink()
    run = CertificateRun(tmp_path, Settings(), in_this_process, is_whole)
    list(run.outcomes([ProofOutcome(BETWEEN, Answer(Verdict.PROVED))], output()))
    assert indexed(tmp_path) == {"between": True} | ({} if is_whole else {"wrong": False})
    assert run.dropped == sorted([invented.id, TWICE.id, *([WRONG.id] if is_whole else [])])
    assert any("they are dropped: suite/subject/nothing is ever freed twice" in line for line, _ in run.lines())


def test_an_obligation_without_a_proof_is_unknown_and_the_index_gives_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certify(tmp_path, TWICE)
    monkeypatch.setattr(second_solver, "version", lambda: "9.9")
    monkeypatch.setattr("kvproof.check.proving.certificates.ask", second_solver.ask)  # it answers without a proof
    assert certify(tmp_path, TWICE, WRONG) == {"twice": Verdict.UNKNOWN, "wrong": Verdict.REFUTED}
    assert indexed(tmp_path) == {"twice": False, "wrong": False}
    assert {one.reason for one in read_index(tmp_path).obligations} == {"cvc5 9.9 gave up"}
    assert list(tmp_path.rglob(f"*{PROOF}")) == []


def test_a_claim_that_needs_an_instance_of_a_hypothesis_is_certified_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = obligation("kept", z3.ForAll([X], F(X) >= 0), Hypothesis("kept", z3.ForAll([X], F(X) > 0)))
    asker = proving.ask

    def needs_it(assumed: str, goal: str, settings: Settings) -> Answer:
        return asker(assumed, goal, settings) if "denied" in assumed else Answer(Verdict.UNKNOWN, reason="hard")

    monkeypatch.setattr("kvproof.check.proving.certificates.ask", needs_it)
    assert certify(tmp_path, one) == {"kept": Verdict.PROVED}
    (row,) = read_index(tmp_path).obligations
    assert row.instances == ["kept, where it is denied"]
    assert "denied_0" in read_text(tmp_path / row.question)
    ASKED.clear()
    assert certify(tmp_path, one) == {"kept": Verdict.NOT_REFUTED}
    assert ASKED == []


def test_a_full_disk_ends_the_run_with_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("kvproof.check.proving.certificates.write_atomically", full)
    with pytest.raises(StoreError, match="no space is left to write") as caught:
        certify(tmp_path, TWICE)
    assert caught.value.exit_code is Exit.INTERNAL
    assert not (tmp_path / INDEX).exists()


def test_the_command_refuses_certificates_without_their_solver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prove: Run
) -> None:
    monkeypatch.setitem(sys.modules, "cvc5", None)
    assert prove("--certificates", tmp_path).exit_code == Exit.USAGE
