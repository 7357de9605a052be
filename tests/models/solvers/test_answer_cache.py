"""Answers that are kept between runs: only proofs, only for the same question, and never damaged ones."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import z3

from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.solvers import answer_cache, solving
from kvproof.models.solvers.answer_cache import AnswerCache, Question, decide_with
from kvproof.models.solvers.solving import ProofOutcome, Settings, decide
from kvproof.spec.verdict import Verdict

X = z3.Int("x")
POSITIVE = (Hypothesis("positive", X > 0),)
RIGHT = Obligation("mixed", "right", "it is not 0", "conservation", POSITIVE, X != 0)
WRONG = Obligation("mixed", "wrong", "it is 1", "conservation", POSITIVE, X == 1)
TRIVIAL = Obligation("mixed", "trivial", "it is positive", "conservation", POSITIVE, X > 0)
SETTINGS = Settings.by_effort(1.0)


def decided(file: Path, settings: Settings = SETTINGS, solver: str = "z3 1") -> tuple[list[ProofOutcome], list[str]]:
    """The outcomes of the three obligations, and those that were asked."""
    asked: list[str] = []

    def ask(obligations: Iterable[Obligation], printer: Callable[[Obligation], Question]) -> Iterator[ProofOutcome]:
        for one in obligations:
            if not one.is_trivial():
                assert printer(one) == one.question()
                asked.append(one.subject)
            yield decide(one, settings)

    cache = AnswerCache(file, solver, settings)
    outcomes = list(decide_with(cache, [RIGHT, WRONG, TRIVIAL], ask))
    cache.close()
    return outcomes, asked


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "cache" / "answers.sqlite"
    assert decided(found)[1] == ["right", "wrong"]
    return found


def test_a_proof_is_asked_once_and_what_is_no_proof_is_asked_again(file: Path) -> None:
    outcomes, asked = decided(file)
    assert asked == ["wrong"]
    assert {one.obligation.subject: (one.answer.verdict, one.is_cached) for one in outcomes} == {
        "right": (Verdict.PROVED, True),
        "wrong": (Verdict.REFUTED, False),
        "trivial": (Verdict.PROVED, False),
    }
    effort = {one.obligation.subject: one.answer.effort for one in outcomes}
    assert effort["right"] == decide(RIGHT, SETTINGS).answer.effort


def test_a_file_with_the_units_of_an_earlier_version_is_used_without_them(file: Path) -> None:
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE units (key TEXT PRIMARY KEY, name TEXT, unit TEXT, digest TEXT)")
    database.close()
    assert decided(file)[1] == ["wrong"]


def test_another_solver_or_setting_has_its_own_answers(file: Path) -> None:
    assert decided(file, solver="z3 2")[1] == ["right", "wrong"]
    assert decided(file, replace(SETTINGS, seed=1))[1] == ["right", "wrong"]
    assert decided(file, replace(SETTINGS, wants_core=True))[1] == ["right", "wrong"]


def test_other_code_that_asks_solvers_has_its_own_answers(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Path(solving.__file__).parent == Path(answer_cache.__file__).parent  # the folder that the digest reads
    read_text = Path.read_text

    def changed(path: Path, encoding: str) -> str:
        return read_text(path, encoding) + ("\n" if path.name == "solving.py" else "")

    monkeypatch.setattr(Path, "read_text", changed)
    answer_cache.code_digest.cache_clear()
    assert decided(file)[1] == ["right", "wrong"]
    answer_cache.code_digest.cache_clear()


def test_a_damaged_entry_or_that_of_another_question_is_no_answer(file: Path) -> None:
    with sqlite3.connect(file) as database:
        database.execute("UPDATE answers SET answer = '[0.0, 1, null]'")
    database.close()
    assert decided(file)[1] == ["right", "wrong"]
    cache = AnswerCache(file, "z3 1", SETTINGS)
    key = cache._key(WRONG.question())
    cache.close()
    with sqlite3.connect(file) as database:
        database.execute("UPDATE answers SET key = ?", (key,))  # the proof of the right one, under the wrong one
    database.close()
    assert decided(file)[1] == ["right", "wrong"]


def test_a_file_to_which_others_can_write_is_not_used(file: Path) -> None:
    file.chmod(0o666)
    with pytest.raises(PermissionError, match="others can write to it"):
        AnswerCache(file, "z3 1", SETTINGS)
    file.chmod(0o600)
    file.write_bytes(b"no database" * 100)
    with pytest.raises(sqlite3.Error):
        AnswerCache(file, "z3 1", SETTINGS)


@pytest.mark.parametrize("value", ["NULL", "x'ff'"])
def test_what_is_no_text_is_no_answer(file: Path, value: str) -> None:
    with sqlite3.connect(file) as database:
        database.execute(f"UPDATE answers SET answer = {value}")
    database.close()
    cache = AnswerCache(file, "z3 1", SETTINGS)
    assert cache.get(RIGHT.question()) is None
    cache.close()


def test_a_file_with_other_tables_is_not_used_and_not_left_open(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with sqlite3.connect(file) as database:
        database.executescript("DROP TABLE answers; CREATE VIEW answers AS SELECT 1 AS key, 2 AS answer, 3 AS digest")
    database.close()
    connect, opened = sqlite3.connect, list[sqlite3.Connection]()

    def noted(*arguments: Any, **options: Any) -> sqlite3.Connection:
        opened.append(connect(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", noted)
    with pytest.raises(sqlite3.Error, match="has other tables than kept answers"):
        AnswerCache(file, "z3 1", SETTINGS)
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        opened[0].execute("SELECT 1")
