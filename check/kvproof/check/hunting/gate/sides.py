"""The two states of a repository that a gate compares: trees of files, and how each is hunted."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kvproof.check.hosts.git import NAME_CHARACTERS, asked_of_git, commit_of, copied_out
from kvproof.check.hunting.gate.imports import path_for
from kvproof.check.runs.errors import UsageError
from kvproof.check.subjects.loading.checkouts import AT, is_path, path_in
from kvproof.check.subjects.registry import NAMED
from kvproof.reports.source import repository_root

DEFAULT_BRANCH = "refs/heads/main"
FETCH = "fetch it first (`git fetch origin {}`; in GitHub's checkout action, `fetch-depth: 0`)"


@dataclass(frozen=True)
class Repository:
    """The repository around the working folder. folder: the working folder."""

    root: Path
    folder: Path

    def commit(self, name: str) -> str:
        """The commit with this name. Raises UsageError."""
        with _git():
            found = "" if name.startswith("-") else commit_of(self.root, name)
        if not found:
            raise UsageError(f"{self.root} has no commit {name}: {FETCH.format(name)}")
        return found


@dataclass(frozen=True)
class Side:
    """One state. name: in messages. tree: its files. is_copy: whether they were copied out of the repository."""

    name: str
    tree: Path
    is_copy: bool


@contextmanager
def _git() -> Iterator[None]:
    """Within the block git is asked. Raises UsageError if it does not answer."""
    try:
        yield
    except TimeoutError as error:
        raise UsageError(f"git does not answer ({error})") from error
    except OSError as error:
        raise UsageError(f"git cannot be asked ({error.strerror or error})") from error


def repository() -> Repository:
    """The repository around the working folder. Raises UsageError."""
    folder = Path.cwd().resolve()
    root = repository_root(folder)
    if root is None:
        raise UsageError(f"{folder} is in no git repository, so there is no change to judge")
    return Repository(root, folder)


def side_of(repo: Repository, name: str, into: Path, since: str = "") -> Side:
    """The state of a commit, which is copied into a new folder. Raises UsageError.

    since: the commit that findings compare the lines of this state with: it becomes the default branch of the copy.
    """
    commit = repo.commit(name)
    said = f"{name} ({commit[:NAME_CHARACTERS]})" if not commit.startswith(name) else commit[:NAME_CHARACTERS]
    with _git():
        is_there = copied_out(repo.root, commit, into)
        if since:
            asked_of_git(into, "update-ref", DEFAULT_BRANCH, since)
    if not is_there:
        raise UsageError(
            f"git cannot write the files of {said}; a partial or shallow clone may lack them: " + FETCH.format(name)
        )
    return Side(said, into.resolve(), is_copy=True)


@dataclass(frozen=True)
class Hunted:
    """How a side is hunted. subject: as `kvproof hunt` takes it. folder: where it runs. path: its PYTHONPATH."""

    subject: str
    folder: Path
    path: str


def hunted(repo: Repository, side: Side, subject: str, like: str | None, links: Path) -> Hunted:
    """How a subject of the working tree is hunted on a side. links: a folder that may be made. Raises UsageError."""
    folder = side.tree / repo.folder.relative_to(repo.root)
    if not folder.is_dir():
        raise UsageError(f"{side.name} has no folder {repo.folder.relative_to(repo.root)}, in which this command runs")
    if ":" in subject:
        _require_file(repo, side, subject, folder)
        return Hunted(subject, folder, path_for(side.tree, folder, links))
    name, _, text = subject.partition("==")
    if name in NAMED and not (NAMED[name].releases or NAMED[name].is_checkout):
        raise UsageError(f"{name} is a part of kvproof, which no change in this repository changes")
    if text and not is_path(text):
        raise UsageError(
            f"{subject} is a release, which no change in this repository changes; name its checkout: {name}==PATH"
        )
    release, path = path_in(text) if text else ("", str(repo.root))
    place = Path(path).expanduser().resolve()
    if not place.is_relative_to(repo.root):
        raise UsageError(f"{path} is not in {repo.root}, whose change is judged")
    release = release or like or ""
    there = side.tree / place.relative_to(repo.root)
    return Hunted(f"{name}=={release}{AT if release else ''}{there}", folder, os.environ.get("PYTHONPATH", ""))


def _require_file(repo: Repository, side: Side, subject: str, folder: Path) -> None:
    """The file that a subject names must be there, and in the tree."""
    file = subject.rpartition(":")[0]
    if not file.endswith(".py"):
        return
    if not (repo.folder / file).resolve().is_relative_to(repo.root):
        raise UsageError(f"{file} is not in {repo.root}, whose change is judged")
    if not (folder / file).is_file():
        raise UsageError(
            f"{side.name} has no {file}: there is no subject to compare with. Judge the change by `kvproof hunt`"
        )
