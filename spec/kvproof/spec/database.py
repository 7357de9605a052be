"""SQLite files that may come from anybody: only tables that kvproof made are read or written.

A view or a computed column can take any time and memory when it is read, and a trigger when a row is written. So the
statements that a file keeps of its tables must be exactly those that made ours.
"""

import sqlite3
from collections.abc import Iterable
from contextlib import closing

SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_stat%'"


def has_tables_of(database: sqlite3.Connection, statements: Iterable[str]) -> bool:
    """Whether the database has what these statements make, and nothing else. Raises sqlite3.Error."""
    with closing(sqlite3.connect(":memory:")) as ours:
        for statement in statements:
            ours.execute(statement)
        return set(database.execute(SCHEMA)) == set(ours.execute(SCHEMA))
