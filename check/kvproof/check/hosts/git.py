"""Questions to git about a folder that may be anybody's, and a copy of a commit: nothing that it configures is run.

A repository can name programs: a monitor of its files, hooks, filters of the content (when git compares a file that may
have changed), and the transport that brings what a partial clone lacks. Each is switched off here, for every question.
Of submodules only the commits are compared.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from kvproof.check.hosts.program import finished

SECONDS_MAX = 10.0  # for one question
NAME_CHARACTERS = 10  # of a commit in a message
COPY_SECONDS_MAX = 300.0  # for the files of a commit
OFF = ("core.fsmonitor=false", f"core.hooksPath={os.devnull}")
ENVIRONMENT = {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
FILTERS = ("--includes", "--name-only", "-z", "--get-regexp", r"^filter\..*\.(clean|smudge|process|required)$")
STATUS = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty", "--no-renames")


def asked_of_git(root: Path, *words: str) -> str | None:
    """What git prints, as text of one byte a character; None if it fails. Raises OSError, TimeoutError."""
    return _answer(root, OFF, words)


def commit_of(root: Path, name: str) -> str:
    """The commit with this name; empty if there is none. Raises as `asked_of_git`."""
    return (asked_of_git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}") or "").strip()


def copied_out(root: Path, commit: str, folder: Path) -> bool:
    """Write the files of a commit into a new folder, and return whether git could. Raises as `asked_of_git`.

    The folder is a repository of its own, which borrows the objects of the other one and has none of its settings.
    Submodules stay empty.
    """
    objects = (asked_of_git(root, "rev-parse", "--path-format=absolute", "--git-path", "objects") or "").strip()
    folder.mkdir(parents=True)
    if not objects or asked_of_git(folder, "init", "--quiet", "--template=") is None:
        return False
    (folder / ".git/objects/info").mkdir(exist_ok=True)
    (folder / ".git/objects/info/alternates").write_text(f"{objects}\n", encoding="latin-1")
    return _answer(folder, OFF, ("checkout", "--quiet", "--detach", commit), COPY_SECONDS_MAX) is not None


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


def _answer(root: Path, settings: Iterable[str], words: Iterable[str], seconds: float = SECONDS_MAX) -> str | None:
    given = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | ENVIRONMENT
    options = (word for setting in settings for word in ("-c", setting))
    command = ("git", "--no-pager", *options, "-C", str(root), *words)
    try:
        done = finished(command, seconds, given, encoding="latin-1")
    except ValueError:  # a NUL in a name
        return None
    return None if done.code else done.output
