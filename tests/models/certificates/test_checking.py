"""Certificates are rejected if anything in them is wrong. Tests that need ethos are skipped where it is not found."""

import gzip
import os
import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import z3

from kvproof.models.certificates import __main__ as command
from kvproof.models.certificates import folder
from kvproof.models.certificates.checking import CheckedProof, Ethos, check_index, found_ethos, without_declarations
from kvproof.models.certificates.folder import (
    INDEX,
    CertificateError,
    Index,
    Origin,
    Row,
    compressed,
    encode_index,
    proof_file,
    read_index,
    read_text,
    row,
    sha256,
)
from kvproof.models.certificates.proving import Questions, ask
from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.solvers.solving import Settings
from kvproof.spec.verdict import Exit, Verdict

pytest.importorskip("cvc5")

X, Y = z3.Ints("x y")
F = z3.Function("f", z3.IntSort(), z3.IntSort())
SOLVER = "cvc5 1.4.2"


class AcceptsAll(Ethos):
    """A checker that has no objection, to test what is checked before it is asked."""

    def answer(self, question: str, proof: str) -> str:
        return "correct"


ACCEPTS_ALL = AcceptsAll("none", Path())


@pytest.fixture(scope="session")
def ethos() -> Ethos:
    try:
        return found_ethos(None, None, SOLVER)
    except CertificateError as error:
        pytest.skip(str(error).partition(".")[0])


def obligation(claim: str, goal: z3.BoolRef, *hypotheses: Hypothesis) -> Obligation:
    return Obligation("suite", "subject", claim, "read-back", hypotheses, goal)


GROWS = Hypothesis("grows", z3.ForAll([X], F(X) > X))
TWICE = obligation("twice", F(F(Y)) > Y, GROWS)
BETWEEN = obligation("between", Y == 4, Hypothesis("low", Y > 3), Hypothesis("high", Y < 5))
SUM = obligation("sum", F(Y) + F(Y + 1) > Y + Y, GROWS)
ALL = (TWICE, BETWEEN, SUM)


@pytest.fixture(scope="session")
def proofs() -> dict[str, str]:
    """The proof of each obligation, by id."""
    return {one.id: ask(*Questions().of(one), Settings()).proof for one in ALL}


Write = Callable[..., Row]


@pytest.fixture
def write(tmp_path: Path, proofs: dict[str, str]) -> Write:
    """Writes the certificate of an obligation, with another proof if one is given, and returns its row."""

    def written(one: Obligation, proof: str | None = None, instances: tuple[str, ...] = ()) -> Row:
        question = Questions().text(one)
        lines = proofs[one.id] if proof is None else proof
        origin = Origin(sha256(question), sha256(lines), SOLVER, {}, list(instances))
        text = proof_file(origin, lines)
        found = row(one.id, origin, text)
        for name, content in ((found.question, question), (found.proof, text)):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(compressed(content))
        return found

    return written


def checked(
    folder: Path, rows: Iterable[Row], ethos: Ethos, obligations: Iterable[Obligation] = ALL
) -> dict[str, CheckedProof]:
    found = check_index(Index(SOLVER, list(rows)), folder, ethos, obligations)
    return {one.id.rpartition("/")[2]: one for one in found}


def test_the_proofs_of_cvc5_are_accepted(tmp_path: Path, write: Write, ethos: Ethos) -> None:
    ethos.require_strict()
    found = checked(tmp_path, map(write, ALL), ethos)
    assert {one.verdict for one in found.values()} == {Verdict.PROVED}, found


def test_the_proof_of_another_question_is_rejected(
    tmp_path: Path, write: Write, proofs: dict[str, str], ethos: Ethos
) -> None:
    weaker = obligation("twice", F(F(Y)) > Y, Hypothesis("grows", z3.ForAll([X], z3.Implies(X > 3, F(X) > X))))
    rows = [write(weaker, proofs[TWICE.id])]
    found = checked(tmp_path, rows, ethos, [weaker])["twice"]
    assert found.verdict is Verdict.REFUTED
    assert "not part of the referenced assertions" in found.reason


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("chain_m_resolution", "ethos: "),
        ("(assume ", "ethos: "),
    ],
)
def test_a_proof_without_one_of_its_steps_is_rejected(
    tmp_path: Path, write: Write, proofs: dict[str, str], ethos: Ethos, line: str, message: str
) -> None:
    lines = proofs[TWICE.id].splitlines(keepends=True)
    place = next(number for number, one in enumerate(lines) if line in one)
    found = checked(tmp_path, [write(TWICE, "".join(lines[:place] + lines[place + 1 :]))], ethos)["twice"]
    assert found.verdict is Verdict.REFUTED
    assert message in found.reason


@pytest.mark.parametrize("added", ["(declare-rule new () :conclusion false)", '(include "x")', "(reset)"])
def test_a_proof_with_commands_of_its_own_is_rejected(
    tmp_path: Path, write: Write, proofs: dict[str, str], added: str
) -> None:
    rows = [write(TWICE, f"{proofs[TWICE.id]}{added}\n(step @x false :rule new)\n")]
    found = checked(tmp_path, rows, ACCEPTS_ALL)["twice"]
    assert found.verdict is Verdict.REFUTED
    assert "must not have the command" in found.reason


def test_a_step_without_a_justification_is_no_proof(tmp_path: Path, write: Write) -> None:
    rows = [write(TWICE, "(step @x false :rule trust :premises () :args (false))\n")]
    found = checked(tmp_path, rows, ACCEPTS_ALL)["twice"]
    assert found.verdict is Verdict.UNKNOWN
    assert "trust" in found.reason


@pytest.mark.parametrize("ending", [".cpc.gz", ".smt2.gz"])
def test_a_damaged_file_is_rejected(tmp_path: Path, write: Write, ending: str) -> None:
    rows = [write(TWICE)]
    (file,) = tmp_path.rglob(f"twice*{ending}")
    whole = file.read_bytes()
    for content in (whole[:-20], compressed(read_text(file) + "; changed\n"), b""):
        file.write_bytes(content)
        assert checked(tmp_path, rows, ACCEPTS_ALL)["twice"].verdict is Verdict.REFUTED, content[-10:]
    file.unlink()
    assert checked(tmp_path, rows, ACCEPTS_ALL)["twice"].verdict is Verdict.REFUTED
    file.write_bytes(whole)
    assert checked(tmp_path, rows, ACCEPTS_ALL)["twice"].verdict is Verdict.PROVED


def test_a_file_that_unpacks_to_too_much_is_not_read_whole(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [write(TWICE)]
    (file,) = tmp_path.rglob("twice*.cpc.gz")
    monkeypatch.setattr(folder, "TEXT_BYTES_MAX", 10_000)
    file.write_bytes(gzip.compress(bytes(20_000_000)))  # 20 kB
    tracemalloc.start()
    found = checked(tmp_path, rows, ACCEPTS_ALL)["twice"]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.verdict is Verdict.REFUTED
    assert found.reason == f"{file} cannot be read: it has more than 10,000 bytes"
    assert peak < 1_000_000


@pytest.mark.parametrize("is_pipe", [True, False], ids=["a pipe", "too large"])
def test_an_index_that_cannot_be_read_whole_is_refused(
    tmp_path: Path, is_pipe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "TEXT_BYTES_MAX", 10_000)
    index = tmp_path / INDEX
    if is_pipe:
        os.mkfifo(index)
    else:
        index.write_bytes(b" " * 10_001)
    with pytest.raises(CertificateError, match="is not a regular file" if is_pipe else "has more than 10,000 bytes"):
        read_index(tmp_path)


def test_every_obligation_of_today_needs_a_certificate_and_every_certificate_an_obligation(
    tmp_path: Path, write: Write
) -> None:
    found = checked(tmp_path, [write(TWICE), replace(write(SUM), proof="")], ACCEPTS_ALL, [BETWEEN, SUM])
    verdicts = {name: (one.verdict, one.reason) for name, one in found.items()}
    assert verdicts == {
        "twice": (Verdict.REFUTED, "kvproof has no such obligation today"),
        "between": (Verdict.UNKNOWN, "it is not in the index"),
        "sum": (Verdict.UNKNOWN, "no proof: "),
    }


def test_a_row_that_differs_from_the_first_line_of_its_proof_is_rejected(tmp_path: Path, write: Write) -> None:
    right = write(TWICE)
    changes: tuple[dict[str, Any], ...] = (
        {"proof": write(SUM).proof, "proof_sha256": write(SUM).proof_sha256},
        {"question": write(SUM).question},
        {"options": {"seed": "1"}},
        {"instances": ["grows, where it is denied"]},
    )
    for change in changes:
        found = checked(tmp_path, [replace(right, **change)], ACCEPTS_ALL)["twice"]
        assert found.verdict is Verdict.REFUTED, change
    invented = checked(tmp_path, [write(TWICE, instances=("grows, where it is not",))], ACCEPTS_ALL)["twice"]
    assert invented.verdict is Verdict.REFUTED
    write(TWICE)
    of_another = check_index(Index("cvc5 9.9", [right]), tmp_path, ACCEPTS_ALL, [TWICE])
    assert [one.verdict for one in of_another] == [Verdict.REFUTED]
    assert checked(tmp_path, [right], ACCEPTS_ALL)["twice"].verdict is Verdict.PROVED


def test_an_obligation_that_is_in_the_index_twice_is_rejected(tmp_path: Path, write: Write) -> None:
    found = list(check_index(Index(SOLVER, [write(TWICE)] * 2), tmp_path, ACCEPTS_ALL, [TWICE]))
    assert [one.verdict for one in found] == [Verdict.REFUTED, Verdict.PROVED]


def test_an_outdated_question_is_rejected(tmp_path: Path, write: Write) -> None:
    changed = obligation("twice", F(F(F(Y))) > Y, GROWS)
    found = checked(tmp_path, [write(TWICE)], ACCEPTS_ALL, [changed])["twice"]
    assert found.verdict is Verdict.REFUTED
    assert "not the one that kvproof asks today" in found.reason


def test_parentheses_in_names_and_comments_are_no_commands() -> None:
    proof = '; (reset)\n(declare-const |a) (reset| Int)\n(define @t () (@var ")(" Int))\n'
    assert without_declarations(proof) == '(define @t () (@var ")(" Int))\n'
    with pytest.raises(CertificateError, match="do not match"):
        without_declarations("(step @p1 false")


@pytest.mark.parametrize(("answer", "message"), [("correct", "accepts a wrong proof"), ("no", "rejects a right proof")])
def test_a_checker_that_always_gives_one_answer_is_not_trusted(tmp_path: Path, answer: str, message: str) -> None:
    program = tmp_path / "ethos"
    program.write_text(f"#!/bin/sh\ncat > /dev/null\necho {answer}\n")
    program.chmod(0o755)
    signature = tmp_path / "proofs" / "eo" / "cpc" / "Cpc.eo"
    signature.parent.mkdir(parents=True)
    signature.touch()
    with pytest.raises(CertificateError, match=message):
        found_ethos(str(program), None, SOLVER).require_strict()


def test_without_an_index_the_message_says_how_to_make_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content in (None, b"[]", b'{"solver": "", "obligations": [], "schema_version": 9}'):
        if content is not None:
            (tmp_path / INDEX).write_bytes(content)
        assert command.main([str(tmp_path)]) is Exit.USAGE
        assert f"kvproof prove --certificates {tmp_path}" in capsys.readouterr().err


def test_without_ethos_the_message_says_how_to_build_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / INDEX).write_bytes(encode_index(Index(SOLVER, [])))
    monkeypatch.delenv("ETHOS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command.main([str(tmp_path)]) is Exit.USAGE
    message = capsys.readouterr().err
    assert "ethos is not found" in message
    assert "--branch cvc5-1.4.2" in message
    program = tmp_path / "ethos"
    program.touch(mode=0o755)
    monkeypatch.delenv("CPC_SIGNATURE", raising=False)
    assert command.main([str(tmp_path)]) is Exit.USAGE
    assert "CPC_SIGNATURE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "code"), [((), Exit.NOTHING_CHECKED), ((TWICE,), Exit.OK), ((TWICE, BETWEEN), Exit.INCONCLUSIVE)]
)
def test_the_exit_code_says_whether_everything_is_checked(
    tmp_path: Path,
    write: Write,
    rows: tuple[Obligation, ...],
    code: Exit,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / INDEX).write_bytes(encode_index(Index(SOLVER, [write(one) for one in rows if one is TWICE])))
    monkeypatch.setattr(AcceptsAll, "require_strict", lambda _: None)
    monkeypatch.setattr(command, "found_ethos", lambda *_: ACCEPTS_ALL)
    monkeypatch.setattr(command, "asked_obligations", lambda: iter(rows))
    assert command.main([str(tmp_path)]) is code
    printed = capsys.readouterr().out
    assert f"{min(len(rows), 1)} of {len(rows)} certificates are right" in printed
    assert ("not checked: suite/subject/between: it is not in the index" in printed) == (BETWEEN in rows)
