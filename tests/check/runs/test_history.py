"""The file of the history: whole runs only, two at once, and one clear message for whatever is wrong with it."""

import os
import sqlite3
import subprocess
import threading
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kvproof.check.runs import history
from kvproof.check.runs.history import (
    APPLICATION_ID,
    MIGRATIONS,
    HistoryError,
    add_to_history,
    host_name,
    record,
    recorded_runs,
    require_recordable,
    revision_of_folder,
)
from kvproof.check.runs.session import processor_seconds
from kvproof.reports.identity import Identity
from kvproof.reports.recorded_run import recorded
from kvproof.reports.result import Check, Result, Run, WitnessCount
from kvproof.spec.verdict import Exit, Verdict


@pytest.fixture(autouse=True)
def _of_one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVPROOF_HOST", "alpha")
    monkeypatch.setenv("GITHUB_SHA", "a" * 40)


@pytest.fixture
def result() -> Result:
    run = Run("0.2.0", "hunt", "kvproof-pool", 2**63 - 1, {"cores": "2"}, "2026-11-22T10:00:00Z", 2.5, effort="quick")
    run.is_complete, run.processor_seconds = True, 1.5
    found = Check("walker/no-leak", "walker", "no-leak", Verdict.REFUTED, text="half a character: \ud800")
    found.signature, found.excused = "free: leaks", "known until 2027-01-31: waiting"
    counts = {"operations": 1000}
    right = Check("walker/read-back", "walker", "read-back", Verdict.NOT_REFUTED, counts=counts)
    return Result(
        run, [found, right], [WitnessCount("pool-full", "walker", 3), WitnessCount("reset", "walker", 0, False)]
    )


def test_a_run_is_read_back_as_it_was_recorded(tmp_path: Path, result: Result) -> None:
    file = tmp_path / "new" / "history.db"
    id = record(file, result, Exit.OK)
    (found,) = recorded_runs(file)
    result.checks[0].text = "half a character: \\ud800"
    assert found == recorded(result, Exit.OK, id, "alpha", "a" * 40)
    assert (found.operations, found.identities) == (1000, frozenset({Identity("no-leak", "free: leaks")}))


def test_runs_that_end_at_once_are_all_recorded(tmp_path: Path, result: Result) -> None:
    file = tmp_path / "history.db"
    threads = [threading.Thread(target=record, args=(file, result, Exit.OK)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one.id for one in recorded_runs(file)}) == 6


def test_a_run_that_is_killed_while_it_is_recorded_is_not_in_the_history(
    tmp_path: Path, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "history.db"
    record(file, result, Exit.OK)

    def killed(database: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
        if table == "reached":
            raise KeyboardInterrupt
        insert(database, table, row)

    insert = history._insert_row
    monkeypatch.setattr(history, "_insert_row", killed)
    with pytest.raises(KeyboardInterrupt):
        record(file, result, Exit.OK)
    assert len(recorded_runs(file)) == 1
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("SELECT count(*) FROM verdicts").fetchone() == (2,)


def foreign(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE photographs (name TEXT)")


def newer(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE runs (id TEXT)")
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        database.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (foreign, "is a database of another program; name another file"),
        (newer, f"written by a newer kvproof; this one knows versions up to {len(MIGRATIONS)}"),
        (lambda file: file.write_text("no database " * 1000), "file is not a database; name another file"),
        (lambda file: file.mkdir(), "is no regular file"),
        (lambda file: file.symlink_to("/dev/full"), "is no regular file"),
    ],
)
def test_a_file_that_is_no_history_of_ours_stays_as_it_is_and_is_one_message(
    tmp_path: Path, result: Result, make: Callable[[Path], object], message: str
) -> None:
    file = tmp_path / "history.db"
    make(file)
    before = file.read_bytes() if file.is_file() else b""
    for use in (lambda: record(file, result, Exit.OK), lambda: recorded_runs(file)):
        with pytest.raises(HistoryError) as error:
            use()
        assert message in str(error.value)
        assert str(error.value).count(str(file)) == 1
    assert (file.read_bytes() if file.is_file() else b"") == before


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (foreign, "history.db is a database of another program; name another file"),
        (newer, "written by a newer kvproof"),
        (lambda file: file.mkdir(), "history.db is no regular file"),
        (lambda file: file.symlink_to(file.parent / "none" / "runs.db"), "history.db cannot be used: No such file"),
        (lambda file: (file.touch(), file.with_name("history.db-journal").mkdir()), "cannot be used as a history"),
    ],
)
def test_a_file_in_which_no_run_can_be_recorded_is_found_before_the_run(
    tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    file = tmp_path / "history.db"
    make(file)
    before = file.read_bytes() if file.is_file() else b""
    with pytest.raises(HistoryError) as error:
        require_recordable(file)
    assert (str(error.value).startswith("--history: "), error.value.option) == (True, "history")
    assert message in str(error.value)
    assert (file.read_bytes() if file.is_file() else b"") == before


def test_a_usable_history_stays_as_it_is_before_the_run(tmp_path: Path, result: Result) -> None:
    require_recordable(None)
    file = tmp_path / "new" / "history.db"
    require_recordable(file)
    assert not file.exists()
    file.touch()
    require_recordable(file)
    assert file.stat().st_size == 0
    record(file, result, Exit.OK)
    before = file.read_bytes()
    require_recordable(file)
    with closing(sqlite3.connect(file)) as other:  # a run that ends just now
        other.execute("BEGIN IMMEDIATE")
        require_recordable(file)
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == ["history.db"]


def test_a_run_that_cannot_be_recorded_reports_it_in_one_line_and_goes_on(
    tmp_path: Path, result: Result, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(width=4000)
    add_to_history(None, result, Exit.OK, console)
    file = tmp_path / "history.db"
    record(file, result, Exit.OK)
    with closing(sqlite3.connect(file)) as other:  # another program holds the file
        other.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr(history, "SECONDS_MAX", 0.05)
        add_to_history(file, result, Exit.OK, console)
    with closing(sqlite3.connect(file)) as database:
        pages = database.execute("PRAGMA page_count").fetchone()[0]
    connect = sqlite3.connect

    def full(*arguments: Any, **options: Any) -> sqlite3.Connection:
        database: sqlite3.Connection = connect(*arguments, **options)
        database.execute(f"PRAGMA max_page_count = {pages}")
        return database

    monkeypatch.setattr(sqlite3, "connect", full)
    for _ in range(40):  # until the last page is full
        add_to_history(file, result, Exit.OK, console)
    monkeypatch.undo()
    add_to_history(file / "below", result, Exit.OK, console)
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith(("Recorded in ", "kvproof: this run is not in the history: ")) for line in lines)
    assert "database is locked; another program has held it for 0.05 s" in lines[0]
    assert lines[-2].endswith("database or disk is full; free some space")
    assert "Not a directory" in lines[-1] or "File exists" in lines[-1]
    assert all(one.verdicts for one in recorded_runs(file))


def test_an_older_file_is_converted_by_the_next_run_and_not_by_a_reader(
    tmp_path: Path, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "history.db"
    first = record(file, result, Exit.OK)
    monkeypatch.setattr(history, "MIGRATIONS", (*MIGRATIONS, ("CREATE TABLE more (run TEXT)",)))
    with pytest.raises(
        HistoryError, match="has version 3 of the history, and this kvproof reads version 4: record a run"
    ):
        recorded_runs(file)
    second = record(file, result, Exit.OK)
    assert [one.id for one in recorded_runs(file)] == [first, second]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("UPDATE verdicts SET verdict = 'splendid'", "Invalid enum value 'splendid'"),
        ("UPDATE findings SET signature = NULL", "the signature of a finding is NULL"),
    ],
)
def test_a_damaged_row_is_one_message(tmp_path: Path, result: Result, damage: str, says: str) -> None:
    file = tmp_path / "history.db"
    record(file, result, Exit.OK)
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(damage)
    with pytest.raises(HistoryError, match=f"is damaged: {says}"):
        recorded_runs(file)


def test_what_is_not_there_is_no_history(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="there is no history"):
        recorded_runs(tmp_path / "history.db")
    assert not (tmp_path / "history.db").exists()


def test_the_commit_and_the_host_come_from_the_job_or_from_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (host_name(), revision_of_folder()) == ("alpha", "a" * 40)
    for name in ("KVPROOF_HOST", "GITHUB_SHA", "CI_COMMIT_SHA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert revision_of_folder() == ""
    monkeypatch.setenv("PATH", "")
    assert revision_of_folder() == ""
    assert host_name() not in ("", "alpha")


def test_a_subject_whose_file_git_does_not_have_is_of_a_changed_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_SHA")
    monkeypatch.chdir(tmp_path)

    def git(*command: str) -> None:
        of_nobody = ("git", "-c", "user.name=me", "-c", "user.email=me@example.org")
        subprocess.run((*of_nobody, *command), check=True, capture_output=True)

    git("init")
    for name in ("committed.py", "ignored.py", "foreign.py"):
        Path(name).write_text("")
    Path(".gitignore").write_text("ignored.py\n")
    git("add", "committed.py", ".gitignore")
    git("commit", "--message", "one")
    commit = revision_of_folder()
    assert len(commit) == 40
    for subject in ("committed.py:Adapter", f"{tmp_path}/committed.py:Adapter", "kvproof", "vllm-v0==0.9.2"):
        assert revision_of_folder(subject) == commit
    for subject in ("ignored.py:Adapter", "foreign.py:Adapter", "/none/adapter.py:Adapter", "a\0.py:Adapter"):
        assert revision_of_folder(subject) == f"{commit}-dirty"
    Path("committed.py").write_text("changed = True\n")
    assert revision_of_folder("foreign.py:Adapter") == f"{commit}-dirty"


def test_processor_time_grows_with_work_and_not_with_waiting() -> None:
    before = processor_seconds()
    sum(range(2_000_000))
    worked = processor_seconds()
    threading.Event().wait(0.05)
    assert worked > before
    assert processor_seconds() - worked < 0.05


def test_a_recorded_run_may_have_every_optional_part_missing(tmp_path: Path, result: Result) -> None:
    file = tmp_path / "history.db"
    bare = Result(replace(result.run, processor_seconds=None, effort="", budget_seconds=2.5))
    record(file, bare, 130)
    (found,) = recorded_runs(file)
    assert (found.processor_seconds, found.budget_seconds, found.verdicts, found.outcome) == (
        None,
        2.5,
        [],
        "interrupted",
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("UPDATE runs SET subject = zeroblob(30000000)", "string or blob too big"),
        (
            "INSERT INTO findings (run) WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 200001) "
            "SELECT x FROM n",
            "has 200,00. findings, which are too many to show",
        ),
    ],
    ids=["value", "rows"],
)
def test_a_history_is_not_read_into_memory_whatever_its_size(
    tmp_path: Path, result: Result, change: str, says: str
) -> None:
    file = tmp_path / "history.db"
    record(file, result, Exit.OK)
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(change)
    tracemalloc.start()
    try:
        with pytest.raises(HistoryError, match=says):
            recorded_runs(file)
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


def test_a_history_that_is_too_large_is_not_opened(tmp_path: Path, result: Result) -> None:
    file = tmp_path / "history.db"
    record(file, result, Exit.OK)
    os.truncate(file, 1 << 30)
    with pytest.raises(HistoryError, match="has more than 100 MB"):
        recorded_runs(file)
