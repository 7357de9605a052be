"""The results of a campaign in an SQLite database, which only the head of the campaign writes.

A unit has a key that is made of everything its result depends on. Its result is written in one transaction, so a
campaign that is killed has each unit as a whole or not at all, and a unit that is done twice is kept once. Results of
units that the plan no longer has stay in the file and are ignored.
"""

import hashlib
import sqlite3
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import msgspec

from kvproof.check.hosts.sources import code_digest
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.store import StoreError, explained
from kvproof.reports.run_page import RUN_PAGE
from kvproof.spec.database import has_tables_of
from kvproof.spec.verdict import Exit

DATABASE, DOCUMENT = "campaign.sqlite", "campaign.json"
APPLICATION_ID = 0x6B767063  # "kvpc"
TABLE = "CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, worker TEXT, seconds REAL, result BLOB)"


class CampaignStore:
    """The database in this folder.

    Raises StoreError if it cannot be used, UsageError if another campaign uses it or it is another program's, or if the
    folder has files that a campaign writes and none of its databases: somebody else has made them.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / DATABASE
        with explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
        foreign = next((path for name in (DOCUMENT, RUN_PAGE) if (path := folder / name).exists()), None)
        if foreign is not None and not self.file.exists():
            raise UsageError(f"{foreign} was not written by a campaign of kvproof; name another folder with --out")
        try:
            self._database = sqlite3.connect(self.file, timeout=0.0, isolation_level=None)
            with ExitStack() as on_error:
                on_error.callback(self._database.close)
                self._prepare()
                on_error.pop_all()
        except (sqlite3.Error, UnicodeDecodeError) as error:  # a damaged name in a message of SQLite
            if "locked" in str(error):
                raise UsageError(f"another campaign writes to {folder}; name another folder with --out") from error
            raise StoreError(f"{self.file} cannot be used: {error}") from error

    def _prepare(self) -> None:
        self._database.execute("PRAGMA trusted_schema = OFF")
        self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
        (owner,) = self._database.execute("PRAGMA application_id").fetchone()
        (num_tables,) = self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if owner != APPLICATION_ID and num_tables:
            raise UsageError(f"{self.file} is a database of another program; name another folder with --out")
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")  # if the power fails, the last results are done again
        self._database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self._database.execute(TABLE)
        if not has_tables_of(self._database, [TABLE]):
            raise UsageError(f"{self.file} has other tables than a campaign; name another folder with --out")

    def find(self, key: str) -> Any:
        """The result of a unit, as `pack` made it; None if it is not done. Raises StoreError."""
        row = self._execute("SELECT result FROM results WHERE key = ?", key).fetchone()
        if row is None:
            return None
        try:
            return msgspec.msgpack.decode(row[0])
        except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
            raise self.damaged(error) from error

    def damaged(self, error: Exception) -> StoreError:
        """The error that a result in the database is none."""
        return StoreError(
            f"{self.file} is damaged ({error}); name another folder with --out, or restore it", Exit.USAGE
        )

    def add(self, key: str, worker: str, seconds: float, result: Any) -> None:
        """Keep the result of a unit, unless there is one. It survives a kill when this returns."""
        data = msgspec.msgpack.encode(result)
        self._execute("INSERT OR IGNORE INTO results VALUES (?, ?, ?, ?)", key, worker, seconds, data)

    def _execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        try:
            return self._database.execute(statement, values)
        except (sqlite3.Error, UnicodeDecodeError) as error:  # a damaged name in a message of SQLite
            raise StoreError(f"{self.file} cannot be used: {error}; start the campaign again to resume it") from error

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._database.close()


def key_of(*parts: Any) -> str:
    """The key of a unit. parts: everything its result depends on, apart from kvproof itself."""
    return hashlib.sha256(msgspec.json.encode([code_digest(), *parts])).hexdigest()


def content_of(subject: str) -> str:
    """A digest of the file of a subject that names a Python file, so that a changed one is searched again; else ""."""
    file, _, _ = subject.rpartition(":")
    if not file.endswith(".py"):
        return ""
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return ""
