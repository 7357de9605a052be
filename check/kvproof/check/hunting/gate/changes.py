"""Which lines a change has: the Python files of the second state are compared with those of the first.

Both states lie in folders. Git only says which files there are, so no filter that a repository configures is run.
"""

from pathlib import Path

from kvproof.check.counterexample.changed_lines import BYTES_MAX, different_lines
from kvproof.check.hosts.git import asked_of_git

FILES = ("ls-files", "-z", "--", "*.py")


def lines_changed(base: Path, head: Path) -> dict[str, list[int]]:
    """The lines of each file in `head` that differ, by its path from there; empty if git does not name its files.

    A line that is gone counts as a change of the line that comes after it.
    """
    try:
        names = (asked_of_git(head, *FILES) or "").encode("latin-1").decode("utf-8", "surrogateescape")
    except OSError:  # no git, or out of time
        return {}
    found = {name: lines for name in sorted({*names.split("\0")} - {""}) if (lines := _lines(base / name, head / name))}
    return {name: sorted(lines) for name, lines in found.items()}


def _lines(before: Path, now: Path) -> set[int]:
    """The lines of a file that differ; none of one that is gone or cannot be read."""
    try:
        new = now.read_bytes() if now.stat().st_size <= BYTES_MAX else b""
        old = before.read_bytes() if before.exists() else b""
    except OSError:
        return set()
    return set() if old == new else different_lines(old.splitlines(), new.splitlines(), with_gaps=True)
