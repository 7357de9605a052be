"""The history: a file with an SQLite database, to which every run adds itself when it has ended.

Whether the file can be used is checked before the run, so that no run of hours is found to have no place in it. A run
is written in one transaction, after its result. So a run that is killed is in the history as a whole or not at all, and
of two runs that end at once, one waits for the other. What goes wrong with the file meanwhile is one message; it
changes neither the result of the run nor its exit code.

The file has a number of its own (`application_id`), so that no other database is written to, and the version of its
tables (`user_version`). `MIGRATIONS` has the statements that lead from each version to the next one; a release only
appends to it, and a new file begins at version 0. The run that finds an older file migrates it in its transaction; a
file of a newer kvproof is refused. A reader of the history writes nothing, so it asks for a run to be recorded first
if the file is older.
"""

import json
import os
import platform
import secrets
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from kvproof.check.hosts.git import asked_of_git, may_be_changed
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.store import StoreError, explained, fault_of_kvproof
from kvproof.check.runs.terminal import say
from kvproof.reports.document import encodable
from kvproof.reports.history import DIRTY
from kvproof.reports.recorded_run import RecordedRun, finding_of, recorded
from kvproof.reports.result import Result
from kvproof.spec.database import has_tables_of, require_regular_journals

APPLICATION_ID = 0x6B767066  # "kvpf"
VALUE_BYTES_MAX, FILE_BYTES_MAX = 4 << 20, 100 << 20
ROWS_MAX = 200_000, 20_000  # of another table, and of runs
SECONDS_MAX = 30.0  # to wait for another run that writes
HOST_VARIABLE = "KVPROOF_HOST"
REVISION_VARIABLES = ("GITHUB_SHA", "CI_COMMIT_SHA")  # of GitHub's and GitLab's runners

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE runs (id TEXT PRIMARY KEY, subject TEXT, command TEXT, seed INTEGER, effort TEXT, "
        "budget_seconds REAL, revision TEXT, version TEXT, host TEXT, facts TEXT, started TEXT, seconds REAL, "
        "processor_seconds REAL, exit_code INTEGER, is_complete INTEGER)",
        "CREATE TABLE verdicts (run TEXT, judge TEXT, property TEXT, verdict TEXT, PRIMARY KEY (run, judge, property))",
        "CREATE TABLE findings (run TEXT, judge TEXT, property TEXT, signature TEXT, excused TEXT, text TEXT, "
        "trace TEXT, PRIMARY KEY (run, judge, property, signature))",
        "CREATE TABLE work (run TEXT, judge TEXT, unit TEXT, count INTEGER, PRIMARY KEY (run, judge, unit))",
        "CREATE TABLE reached (run TEXT, name TEXT, judge TEXT, count INTEGER, is_expected INTEGER, "
        "PRIMARY KEY (run, judge, name))",
        "CREATE TABLE speeds (run TEXT, name TEXT, mapping TEXT, ratio REAL, noise REAL, "
        "PRIMARY KEY (run, name, mapping))",
    ),
    ("ALTER TABLE speeds ADD COLUMN measured TEXT NOT NULL DEFAULT ''",),
    ("ALTER TABLE findings ADD COLUMN former TEXT NOT NULL DEFAULT ''",),
)
FINDING_COLUMNS = ("judge", "property", "signature", "excused", "text", "trace", "former")
PARTS = ("verdicts", "findings", "work", "reached", "speeds")  # lists of a RecordedRun, each with a table of its name


class HistoryError(UsageError):
    """The file of the history cannot be used; the message says why."""


def record(file: Path, result: Result, code: int) -> str:
    """Add a run to the history, and return the id that it gets there. code: its exit code. Raises HistoryError."""
    revision = revision_of_folder(result.run.subject)
    _make_folder(file)
    with _opened(file, "rwc") as database:
        database.execute("BEGIN IMMEDIATE")
        _require_ours(file, database)
        version = _version(database)
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                database.execute(statement)
        if version < len(MIGRATIONS):
            database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            database.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        id = _new_id(database)
        _insert(database, recorded(result, code, id, host_name(), revision))
        database.execute("COMMIT")
    return id


def require_recordable(file: Path | None) -> None:
    """Raise HistoryError if no run can be recorded in this file, before the run. Nothing in it is changed.

    A file that another run writes to is left alone: it is free again when this one ends.
    """
    if file is None:
        return
    try:
        _make_folder(file)
        if not file.exists():
            with explained(file), tempfile.TemporaryFile(dir=Path(os.path.realpath(file)).parent):
                return
        with _opened(file, "rw", seconds=0.0) as database:
            try:
                database.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if "locked" in str(error):
                    return
                raise
            _require_ours(file, database)
            database.execute(f"PRAGMA user_version = {_version(database)}")  # a write, which is not committed
            database.execute("ROLLBACK")
    except (HistoryError, StoreError) as error:
        raise HistoryError(f"--history: {error}", "history") from error


def add_to_history(file: Path | None, result: Result, code: int, console: Console) -> None:
    """Record a run if there is a history, and print its id there, or why it is not recorded. Raises nothing."""
    if file is None:
        return
    try:
        say(console, f"Recorded in {file} as run {record(file, result, code)}")
    except Exception as error:  # the run has its own result and exit code
        why = str(error) if isinstance(error, HistoryError) else fault_of_kvproof("writing it", error)
        say(console, f"kvproof: this run is not in the history: {why}", "yellow")


def recorded_runs(file: Path) -> list[RecordedRun]:
    """The runs of the history, oldest first. Raises HistoryError."""
    if not file.exists():
        raise HistoryError(f"there is no history {file}; a run with --history {file} begins one")
    with _opened(file, "rw") as database:
        _require_ours(file, database)
        if (version := _version(database)) < len(MIGRATIONS):
            raise HistoryError(
                f"{file} has version {version} of the history, and this kvproof reads version {len(MIGRATIONS)}: "
                f"record a run with --history {file}, which converts it"
                if version
                else f"{file} is empty; a run with --history {file} begins a history in it"
            )
        database.execute("BEGIN")  # one state of the file, while runs write to it
        database.row_factory = sqlite3.Row
        for table in ("runs", *PARTS):
            if (number := database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) > ROWS_MAX[table == "runs"]:
                raise HistoryError(f"{file} has {number:,} {table}, which are too many to show; begin another history")
        rows = list(database.execute("SELECT * FROM runs ORDER BY started, rowid"))
        runs: dict[str, dict[str, Any]] = {row["id"]: dict(row) for row in rows}
        for part in PARTS:
            for one in runs.values():
                one[part] = []
            for row in map(dict, database.execute(f"SELECT * FROM {part} ORDER BY rowid")):
                if (id := row.pop("run")) in runs:
                    runs[id][part].append(row)
        try:
            for one in runs.values():
                texts: list[dict[str, Any]] = msgspec.convert(one["findings"], list[dict[str, str | None]])
                if empty := [name for row in texts for name, text in row.items() if text is None and name != "trace"]:
                    raise ValueError(f"the {empty[0]} of a finding is NULL")
                one["findings"] = [finding_of(**row) for row in texts]
            decoded = [{**one, "facts": json.loads(one["facts"])} for one in runs.values()]
            return [msgspec.convert(one, RecordedRun, strict=False) for one in decoded]
        except (msgspec.ValidationError, TypeError, ValueError, RecursionError) as error:
            raise HistoryError(f"{file} is damaged: {error}; name another file, or restore it") from error


def _make_folder(file: Path) -> None:
    if not file.exists():
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise HistoryError(f"the folder {file.parent} cannot be made: {why}") from error


@contextmanager
def _opened(file: Path, mode: str, seconds: float | None = None) -> Iterator[sqlite3.Connection]:
    """The database in a file. Turns every error about it into a HistoryError, and rolls back what is not committed.

    seconds: to wait for another run that writes; SECONDS_MAX by default.
    """
    if file.exists() and not file.is_file():
        raise HistoryError(f"{file} is no regular file; --history needs the name of a file")
    if file.exists() and file.stat().st_size > FILE_BYTES_MAX:
        raise HistoryError(f"{file} has more than {FILE_BYTES_MAX >> 20} MB; begin another history")
    try:
        address = f"{file.absolute().as_uri()}?mode={mode}"
        require_regular_journals(file)
        with closing(_connected(address, seconds)) as database:
            database.execute("PRAGMA trusted_schema = OFF")  # the file may come from anybody
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)
            yield database
    except sqlite3.Error as error:
        raise HistoryError(f"{file} cannot be used as a history: {error}{_what_to_do(str(error))}") from error
    except ValueError as error:  # a NUL in the name
        raise HistoryError(f"{str(file)!r} cannot be used as a history: {error}") from error


def _connected(address: str, seconds: float | None) -> sqlite3.Connection:
    return sqlite3.connect(address, timeout=SECONDS_MAX if seconds is None else seconds, isolation_level=None, uri=True)


def _what_to_do(reason: str) -> str:
    advice = {
        "full": "free some space",
        "readonly": "make the file and its folder writable, or name another file",
        "not a database": "name another file",
        "locked": f"another program has held it for {SECONDS_MAX:g} s",
        "unable to open": "check that its folder exists and is writable",
    }
    return next((f"; {text}" for word, text in advice.items() if word in reason), "")


def _require_ours(file: Path, database: sqlite3.Connection) -> None:
    """Raise HistoryError if the database is that of another program, or of a newer kvproof."""
    (owner,) = database.execute("PRAGMA application_id").fetchone()
    (num_tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if owner != APPLICATION_ID and num_tables:
        raise HistoryError(f"{file} is a database of another program; name another file")
    if (version := _version(database)) > len(MIGRATIONS):
        raise HistoryError(
            f"{file} has version {version} of the history, written by a newer kvproof; this one knows versions up to "
            f"{len(MIGRATIONS)}: use the newer release, or name another file"
        )
    if not has_tables_of(database, (statement for statements in MIGRATIONS[:version] for statement in statements)):
        raise HistoryError(f"{file} has other tables than a history of kvproof; name another file")


def _version(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _new_id(database: sqlite3.Connection) -> str:
    while True:
        id = secrets.token_hex(5)
        if database.execute("SELECT 1 FROM runs WHERE id = ?", (id,)).fetchone() is None:
            return id


def _insert(database: sqlite3.Connection, run: RecordedRun) -> None:
    fields: dict[str, Any] = encodable(msgspec.to_builtins(run))  # an engine's message may hold half a character
    parts = {part: fields.pop(part) for part in PARTS}
    parts["findings"] = [{name: one[name] for name in FINDING_COLUMNS} for one in parts["findings"]]
    _insert_row(database, "runs", {**fields, "facts": json.dumps(fields["facts"])})
    for part, rows in parts.items():
        for row in rows:
            _insert_row(database, part, {"run": run.id, **row})


def _insert_row(database: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    marks = ", ".join("?" * len(row))
    database.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))


# What the history knows about where a run took place --------------------------------------------------------------


def host_name() -> str:
    """The name of this machine, or what KVPROOF_HOST says: machines of one kind may share a name."""
    return os.environ.get(HOST_VARIABLE, "").strip() or platform.node() or "unknown"


def revision_of_folder(subject: str = "") -> str:
    """The commit of the working folder, from the variables of a CI system or from git; empty if it is not known.

    It is that of a changed folder (DIRTY) if git does not have the Python file that the subject names.
    """
    for name in REVISION_VARIABLES:
        if value := os.environ.get(name, "").strip():
            return value[:40]
    file, _, _ = subject.rpartition(":")
    here = Path.cwd()
    try:
        revision = (asked_of_git(here, "rev-parse", "--verify", "HEAD^{commit}") or "").strip()
        is_foreign = file.endswith(".py") and not asked_of_git(here, "ls-files", "--error-unmatch", "--", file)
        return f"{revision}{DIRTY}" if revision and (is_foreign or may_be_changed(here)) else revision
    except OSError:  # no git, no folder, or no answer in time
        return ""
