"""The results of a hunt, a campaign or a run of verify in an SQLite database, which only its head writes.

A unit has a key that is made of everything its result depends on. Its result is written in one transaction, so a hunt
that is killed has each unit as a whole or not at all, and a unit that is done twice is kept once. To resume is to find
a key. Results of units that the hunt no longer has stay in the file and are ignored.
"""

import sqlite3
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from kvproof.check.counterexample.trace_schema import CounterexampleError
from kvproof.check.hosts.channel import ChannelError
from kvproof.check.isolation.messages import pack, unpack
from kvproof.check.isolation.search_process import require_possible
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.store import CRASHES, StoreError, explained, in_use, require_no_link
from kvproof.check.search.result import SearchResult
from kvproof.reports.run_page import RUN_PAGE
from kvproof.spec.database import has_tables_of, require_regular_journals
from kvproof.spec.verdict import Exit

CAMPAIGN, HUNT, VERIFY = "campaign.sqlite", "hunt.sqlite", "verify.sqlite"
DOCUMENT = "campaign.json"
APPLICATION_ID = 0x6B767063  # "kvpc"
VALUE_BYTES_MAX = 6 << 20  # of a result
CONTAINERS = bytes(range(0x80, 0xA0))  # with what a list or a map of up to 15 values begins in MessagePack
CONTAINERS_MAX = 500_000  # of a result; an empty one takes a byte there, and 64 in memory
ERROR_CHARACTERS_MAX = 300  # of an error about a result, which can quote all of it
TABLE = "CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, worker TEXT, seconds REAL, result BLOB)"
Result = TypeVar("Result")


class ResultStore:
    """A database in this file. Raises StoreError if it cannot be used, UsageError if another program uses it.

    is_needed: whether a result that cannot be written is an error. A hunt goes on without it, and does it again when it
    is resumed.
    """

    def __init__(self, file: Path, is_needed: bool = True) -> None:
        self.file, self.is_needed = file, is_needed
        with explained(file.parent):
            file.parent.mkdir(parents=True, exist_ok=True)
            require_no_link(file)
        try:
            require_regular_journals(file)
            self._database = sqlite3.connect(self.file, timeout=0.0, isolation_level=None)
            with ExitStack() as on_error:
                on_error.callback(self._database.close)
                self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)
                self._prepare()
                on_error.pop_all()
        except (sqlite3.Error, UnicodeDecodeError) as error:  # a damaged name in a message of SQLite
            if "locked" in str(error):
                raise UsageError(in_use(file.parent)) from error
            raise StoreError(f"{self.file} cannot be used: {error}", Exit.USAGE) from error

    def _prepare(self) -> None:
        self._database.execute("PRAGMA trusted_schema = OFF")
        self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
        (owner,) = self._database.execute("PRAGMA application_id").fetchone()
        (num_tables,) = self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if owner != APPLICATION_ID and num_tables:
            raise UsageError(f"{self.file} is a database of another program; name another folder with --out")
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")  # if the power fails, the last results are done again
        if owner != APPLICATION_ID:  # to write the same number again would change the file
            self._database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self._database.execute(TABLE)
        if not has_tables_of(self._database, [TABLE]):
            raise UsageError(f"{self.file} has other tables than kvproof's; name another folder with --out")

    @classmethod
    def of_campaign(cls, folder: Path) -> "ResultStore":
        """The database of a campaign in this folder.

        Raises UsageError also if the folder has files that a campaign writes and none of its databases: somebody else
        has made them.
        """
        foreign = next((path for name in (DOCUMENT, RUN_PAGE) if (path := folder / name).exists()), None)
        if foreign is not None and not (folder / CAMPAIGN).exists():
            raise UsageError(f"{foreign} was not written by a campaign of kvproof; name another folder with --out")
        require_no_link(folder / CRASHES)
        return cls(folder / CAMPAIGN)

    def find(self, key: str) -> Any:
        """The result of a unit, as `pack` made it; None if it is not done. Raises StoreError."""
        rows = self._execute("SELECT result FROM results WHERE key = ?", key)
        if not rows:
            return None
        try:
            data: bytes = rows[0][0]
            if (count := len(data) - len(data.translate(None, CONTAINERS))) > CONTAINERS_MAX:
                raise ValueError(
                    f"a result has about {count:,} lists and maps, and at most {CONTAINERS_MAX:,} are read"
                )
            return msgspec.msgpack.decode(data)
        except (msgspec.DecodeError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise self.damaged(error) from error

    def result_of(self, key: str, kind: type[Result]) -> Result | None:
        """The result of a unit as a value of this kind; None if it is not done. Raises StoreError."""
        if (packed := self.find(key)) is None:
            return None
        try:
            result = unpack(packed)
            require_possible(result, kind)
            return cast(Result, result)
        except (TypeError, ChannelError, CounterexampleError) as error:
            raise self.damaged(error) from error

    def find_or_search(
        self, key: str, search: Callable[[], SearchResult], seconds: float, keeps_findings: bool = True
    ) -> SearchResult:
        """The result of a search, which is done unless it was done before. What the time ends is not kept."""
        began = time.monotonic()
        if (found := self.result_of(key, SearchResult)) is None:
            found = search()
            is_kept = keeps_findings or found.counterexample is None
            if is_kept and time.monotonic() - began < seconds:
                self.add(key, "", found.seconds, pack(found))
        return found

    def damaged(self, error: Exception) -> StoreError:
        """The error that a result in the database is none."""
        why = str(error)[:ERROR_CHARACTERS_MAX]
        return StoreError(f"{self.file} is damaged ({why}); name another folder with --out, or restore it", Exit.USAGE)

    def check(self) -> None:
        """Raise StoreError unless every result can be read."""
        for (key,) in self._execute("SELECT key FROM results"):
            self.find(key)

    def add(self, key: str, worker: str, seconds: float, result: Any) -> None:
        """Keep the result of a unit, unless there is one. It survives a kill when this returns."""
        data = msgspec.msgpack.encode(result)
        try:
            self._execute("INSERT OR IGNORE INTO results VALUES (?, ?, ?, ?)", key, worker, seconds, data)
        except StoreError:
            if self.is_needed:
                raise

    def put(self, key: str, value: Any) -> None:
        """Keep a value in place of an earlier one."""
        data = msgspec.msgpack.encode(value)
        self._execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?)", key, "", 0.0, data)

    def clear(self) -> None:
        """Remove every result."""
        self._execute("DELETE FROM results")

    def _execute(self, statement: str, *values: Any) -> list[Any]:
        """Run a statement, and fetch all of its rows: a damaged page is found by the fetch that reads it."""
        try:
            return self._database.execute(statement, values).fetchall()
        except sqlite3.DataError as error:
            text = f"{self.file} cannot be used: {error}, a result has at most {VALUE_BYTES_MAX:,} bytes"
            raise StoreError(f"{text}; name another folder with --out", Exit.USAGE) from error
        except (sqlite3.Error, UnicodeDecodeError) as error:  # a damaged name in a message of SQLite
            raise StoreError(f"{self.file} cannot be used: {error}; start the command again to resume it") from error

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._database.close()
