"""Which lines of the functions that a finding names are new: a file in a git checkout is compared with its base.

The base is where the checkout left the default branch, or HEAD if it has not left it; then changes that are not
committed are found. Git is only asked for a revision and for the content of a file there, and the comparison is made
here. Nothing is said without git, in a repository that is broken or somebody else's, and of a very large file.
"""

from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import takewhile
from pathlib import Path
from typing import Any

from kvproof.check.hosts.git import NAME_CHARACTERS, asked_of_git, commit_of
from kvproof.check.oracle.method_called import Blame
from kvproof.reports.source import repository_root
from kvproof.spec.trace import EnteredCode

BYTES_MAX, LINES_MAX = 2 << 20, 20_000  # of a file that is compared
MIDDLE_MAX = 3_000  # lines between the first and the last difference
DEFAULT_BRANCHES = ("origin/HEAD", "origin/main", "origin/master", "main", "master")


def fields_of(blame: Blame) -> dict[str, Any]:
    """The fields of a trace that say where the run breaks, with the lines that are not as in the base."""
    entered, base = marked(blame.entered)
    return {**vars(blame), "entered": entered, "base": base}


def marked(functions: Sequence[EnteredCode]) -> tuple[list[EnteredCode], str]:
    """The functions with their lines that differ from the base, and its name; empty if no file could be compared."""
    of_file, bases = dict[str, set[int]](), dict[str, None]()
    for file in {one.file: None for one in functions}:
        name, of_file[file] = changed_lines(file)
        bases |= {name: None} if name else {}
    found = [
        replace(one, changed=sorted(line for line in of_file[one.file] if one.line <= line <= one.last_line))
        for one in functions
    ]
    return found, ", ".join(bases)


def changed_lines(file: str) -> tuple[str, set[int]]:
    """The base of a file, and the numbers of its lines that are not there; nothing if it cannot be compared."""
    try:
        path = Path(file).resolve(strict=True)
        root = repository_root(path.parent)
        if root is None or path.stat().st_size > BYTES_MAX or not path.is_file():
            return "", set()
        now = path.read_bytes().splitlines()
        name, revision = _base(root)
        if not revision:
            return "", set()
        before = _content(root, revision, path.relative_to(root).as_posix())
    except (OSError, ValueError, RuntimeError):  # no such file or git, out of time, a NUL in a name, a loop of links
        return "", set()
    return ("", set()) if before is None else (name, different_lines(before, now))


def _base(root: Path) -> tuple[str, str]:
    """The base of a checkout in words, and its commit; both empty if there is none."""
    head = commit_of(root, "HEAD")
    if not head:
        return "", ""
    for branch in DEFAULT_BRANCHES:
        if commit_of(root, branch):
            base = (asked_of_git(root, "merge-base", "HEAD", branch) or "").strip()
            if base and base != head:
                return f"{base[:NAME_CHARACTERS]} of {branch}", base
            break
    return f"HEAD ({head[:NAME_CHARACTERS]})", head


def _content(root: Path, revision: str, name: str) -> list[bytes] | None:
    """The lines of a file at a revision, none if it is new there; None if git has no such file, or it is too large."""
    size = asked_of_git(root, "cat-file", "-s", f"{revision}:{name}")
    if not size:
        return [] if asked_of_git(root, "ls-files", "--", name) else None
    if int(size) > BYTES_MAX:
        return None
    content = asked_of_git(root, "cat-file", "blob", f"{revision}:{name}")
    return None if content is None else content.encode("latin-1").splitlines()


def different_lines(before: list[bytes], now: list[bytes], with_gaps: bool = False) -> set[int]:
    """The numbers of the lines of a file that it did not have before; none if too many differ.

    with_gaps: whether the line after one that is gone is among them.
    """
    if max(len(before), len(now)) > LINES_MAX:
        return set()
    first = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, now, strict=False)))
    last = sum(
        1
        for _ in takewhile(
            lambda pair: pair[0] == pair[1], zip(reversed(before[first:]), reversed(now[first:]), strict=False)
        )
    )
    old, new = before[first : len(before) - last], now[first : len(now) - last]
    if max(len(old), len(new)) > MIDDLE_MAX:
        return set(range(first + 1, first + len(new) + 1)) if not old else set()
    blocks = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    found = {first + line for tag, _, _, begin, end in blocks if tag != "equal" for line in range(begin + 1, end + 1)}
    gaps = {first + begin + 1 for tag, _, _, begin, _ in blocks if tag == "delete" and first + begin < len(now)}
    return found | gaps if with_gaps else found
