"""SQLite files that may come from anybody: only tables that kvproof made are read or written.

A view or a computed column can take any time and memory when it is read, and a trigger when a row is written. So the
statements that a file keeps of its tables must be exactly those that made ours. SQLite also reads the journals beside a
file, and waits for ever for one that is a pipe.
"""

import os
import sqlite3
import stat
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_stat%'"

JOURNALS = ("-journal", "-wal", "-shm")  # what SQLite appends to the name of a database


def require_regular_journals(file: Path) -> None:
    """Raise sqlite3.OperationalError if what lies beside a database in place of a journal is no regular file."""
    for suffix in JOURNALS:
        journal = os.path.realpath(file) + suffix
        with suppress(FileNotFoundError, NotADirectoryError):
            if not stat.S_ISREG(os.lstat(journal).st_mode):
                raise sqlite3.OperationalError(f"its journal {journal} is no regular file; remove it")


def has_tables_of(database: sqlite3.Connection, statements: Iterable[str]) -> bool:
    """Whether the database has what these statements make, and nothing else. Raises sqlite3.Error."""
    with closing(sqlite3.connect(":memory:")) as ours:
        for statement in statements:
            ours.execute(statement)
        return set(database.execute(SCHEMA)) == set(ours.execute(SCHEMA))
