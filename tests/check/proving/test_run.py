"""A result of `kvproof prove` is kept, and is repeated only while no file has changed."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.check.hosts.workers import files_of
from kvproof.check.proving.questions import answer_cache
from kvproof.check.proving.run import ProofCheck, digest_of_files, folders, keep, kept
from kvproof.models.obligation import Obligation
from kvproof.models.solvers.answer_cache import AnswerCache, code_digest
from kvproof.models.solvers.solving import TRIVIAL, Answer, ProofOutcome, Settings
from kvproof.reports.result import Check
from kvproof.spec.verdict import Verdict

ONLY = ("mapping",)
HARD = Obligation("mapping", "an append", "it holds", "conservation", (), True, "file.py:1")
EASY = replace(HARD, claim="it holds as it stands")
CHECK = Check("prover/conservation/x", "prover", "conservation", Verdict.PROVED, counts={"hypotheses": 2})
LINT = Check("lint/x", "lint", "x", Verdict.PROVED)
RESULT: list[ProofCheck] = [
    (ProofOutcome(HARD, Answer(Verdict.PROVED, 0.5, 700)), CHECK),
    (ProofOutcome(EASY, TRIVIAL, is_trivial=True), CHECK),
    (None, LINT),
]


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[AnswerCache]:
    found = AnswerCache(tmp_path / "cache" / "answers.sqlite", "z3 1", Settings())
    keep(found, ONLY, RESULT)
    yield found
    found.close()


def test_a_kept_result_is_the_same_and_its_answers_count_as_cached(cache: AnswerCache) -> None:
    found = kept(cache, ONLY)
    assert found is not None
    (hard, hard_check), (easy, easy_check), lint = found
    assert hard is not None
    assert easy is not None
    assert (hard.obligation.id, hard.obligation.place, hard.answer) == (HARD.id, "file.py:1", RESULT[0][0].answer)  # type: ignore[union-attr]
    assert hard_check == replace(CHECK, counts={"hypotheses": 2, "cached": 1})
    assert (hard.is_cached, easy.is_cached, hard.is_trivial, easy.is_trivial) == (True, False, False, True)
    assert (easy_check, lint) == (CHECK, (None, LINT))


def test_other_patterns_have_a_result_of_their_own(cache: AnswerCache) -> None:
    assert kept(cache, ()) is None
    assert kept(cache, ("mapping", "store")) is None


def test_a_result_is_forgotten_when_a_file_changes(cache: AnswerCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvproof.check.proving.run.digest_of_files", lambda: "of other files")
    assert kept(cache, ONLY) is None
    keep(cache, ONLY, RESULT)
    assert kept(cache, ONLY) is not None


def test_a_result_with_something_that_is_not_proved_is_not_kept(cache: AnswerCache) -> None:
    keep(cache, (), [*RESULT, (None, replace(LINT, verdict=Verdict.UNKNOWN))])
    assert kept(cache, ()) is None


def test_every_file_that_a_proof_may_depend_on_is_in_the_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {file.as_posix().rpartition("/kvproof/")[2] for _, file in files_of(folders())}
    some = {"spec/text/rules.py", "spec/contracts/__init__.py", "impl/device_blocks.py", "models/pinned.txt"}
    assert {*some, "models/translation/terms.py", "check/proving/run.py"} <= names
    (file := tmp_path / "rules.py").write_text("1")
    monkeypatch.setattr("kvproof.check.proving.run.folders", lambda: [tmp_path])
    before = digest_of_files()
    file.write_text("2")
    assert digest_of_files() != before


def test_a_second_run_makes_no_obligation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    num_made = 0

    def made(proving: object) -> Iterator[ProofCheck]:
        nonlocal num_made
        num_made += 1
        yield from RESULT

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("kvproof.check.proving.run._Proving._made", made)
    for options, num_expected in ((), 1), ((), 1), (("--no-cache",), 2), (("--cores",), 3), (("--seed", "1"), 4):
        done = CliRunner().invoke(app, ["prove", "--only", "mapping", *options])
        assert (done.exit_code, num_made) == (0, num_expected)
    assert "its result is repeated" in CliRunner().invoke(app, ["prove", "--only", "mapping"]).output.replace("\n", " ")


@pytest.mark.parametrize(("changed", "is_kept"), [("questions.py", False), ("pool.py", False), ("none", True)])
def test_answers_that_other_code_handed_on_are_not_used(
    changed: str, is_kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = answer_cache(Settings())
    assert first is not None
    first.add(("the hypotheses", "the goal"), Answer(Verdict.PROVED, 0.1, 5))
    first.close()
    read_text = Path.read_text

    def read(path: Path, *arguments: str, **named: str) -> str:
        return read_text(path, *arguments, **named) + ("\n" if path.name == changed else "")

    monkeypatch.setattr(Path, "read_text", read)
    code_digest.cache_clear()
    again = answer_cache(Settings())
    code_digest.cache_clear()
    assert again is not None
    assert (again.get(("the hypotheses", "the goal")) is not None) is is_kept
    again.close()
