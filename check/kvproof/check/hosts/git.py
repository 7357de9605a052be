"""Questions to git about a folder that may be anybody's: nothing that its repository configures is run.

A repository can name programs: a monitor of its files, hooks, filters of the content (when git compares a file that may
have changed), and the transport that brings what a partial clone lacks. Each is switched off here, for every question.
Of submodules only the commits are compared.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from kvproof.check.hosts.program import finished

SECONDS_MAX = 10.0  # for one question
OFF = ("core.fsmonitor=false", f"core.hooksPath={os.devnull}")
ENVIRONMENT = {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
FILTERS = ("--includes", "--name-only", "-z", "--get-regexp", r"^filter\..*\.(clean|smudge|process|required)$")
STATUS = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty", "--no-renames")


def asked_of_git(root: Path, *words: str) -> str | None:
    """What git prints, as text of one byte a character; None if it fails. Raises OSError, TimeoutError."""
    return _answer(root, OFF, words)


def may_be_changed(root: Path) -> bool:
    """Whether files that git has may differ from the last commit. Raises as `asked_of_git`.

    A filter that the user configures for all repositories is run: without it, files that passed through it differ.
    """
    found = [asked_of_git(root, "config", scope, *FILTERS) for scope in ("--local", "--worktree")]
    names = {name for answer in found if answer for name in answer.split("\0") if name}
    if any("=" in name for name in names):  # an option cannot name it
        return True
    off = [f"{name}={'false' if name.endswith('.required') else ''}" for name in sorted(names)]
    return _answer(root, (*OFF, *off), STATUS) != ""


def _answer(root: Path, settings: Iterable[str], words: Iterable[str]) -> str | None:
    given = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | ENVIRONMENT
    options = (word for setting in settings for word in ("-c", setting))
    command = ("git", "--no-pager", *options, "-C", str(root), *words)
    try:
        done = finished(command, SECONDS_MAX, given, encoding="latin-1")
    except ValueError:  # a NUL in a name
        return None
    return None if done.code else done.output
