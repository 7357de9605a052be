"""Git answers about a repository, and runs nothing that the repository configures."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from kvproof.check.hosts.git import asked_of_git, may_be_changed

ALONE = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
ENVIRONMENT = ALONE | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
WHO = "-c", "user.name=n", "-c", "user.email=e", "-c", "protocol.file.allow=always"
PROGRAM = "core.fsmonitor", "core.pager", "core.editor", "diff.external", "diff.own.textconv", "core.sshCommand"


def git(folder: Path, *words: str) -> None:
    subprocess.run(("git", *WHO, *words), cwd=folder, env=ENVIRONMENT, check=True, capture_output=True)


def repository(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "manager.py").write_text("one\n")
    (folder / ".gitattributes").write_text("*.py filter=own diff=own\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "begin")
    return folder


def touched(folder: Path) -> None:
    """Give the file another time, so that git must read it again."""
    os.utime(folder / "manager.py", ns=(0, time.time_ns()))


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return repository(tmp_path / "here")


@pytest.fixture
def program(tmp_path: Path) -> str:
    """A program that leaves the file `was-run` beside it."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho x >> {tmp_path}/was-run\ncat\n")
    program.chmod(0o755)
    return str(program)


def was_run(program: str) -> bool:
    return Path(program).with_name("was-run").exists()


def test_the_state_of_the_files_is_known(here: Path) -> None:
    assert len((asked_of_git(here, "rev-parse", "HEAD") or "").strip()) == 40
    assert asked_of_git(here, "rev-parse", "--verify", "none") is None
    assert asked_of_git(here, "ls-files", "a\0b") is None
    assert not may_be_changed(here)
    touched(here)
    assert not may_be_changed(here)
    (here / "unknown.py").write_text("")
    assert not may_be_changed(here)
    (here / "manager.py").write_text("two\n")
    assert may_be_changed(here)
    git(here, "commit", "--quiet", "--all", "--message", "two")
    (here / "other.py").write_text("")
    git(here, "add", "other.py")
    assert may_be_changed(here)
    assert may_be_changed(here.parent)  # no repository


@pytest.mark.parametrize("filter", ["clean", "process", "smudge"])
@pytest.mark.parametrize("is_required", [False, True])
def test_nothing_that_the_repository_configures_is_run(
    here: Path, program: str, filter: str, is_required: bool
) -> None:
    for name in (*PROGRAM, f"filter.own.{filter}"):
        git(here, "config", name, program)
    git(here, "config", "filter.own.required", str(is_required).lower())
    hook = here / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.symlink_to(program)
    Path(program).with_name("was-run").unlink(missing_ok=True)
    touched(here)
    assert not may_be_changed(here)
    (here / "manager.py").write_text("two\n")
    assert may_be_changed(here)
    assert asked_of_git(here, "ls-files") is not None
    assert not was_run(program)


def test_a_filter_of_an_included_file_is_not_run_nor_one_whose_name_no_option_can_have(
    here: Path, program: str
) -> None:
    (here / ".git" / "more").write_text(f'[filter "own"]\n\tclean = {program}\n')
    git(here, "config", "include.path", "more")
    touched(here)
    assert not may_be_changed(here)
    (here / ".git" / "more").write_text(f'[filter "o=wn"]\n\tclean = {program}\n')
    (here / ".git" / "info" / "attributes").write_text("*.py filter=o=wn\n")
    assert may_be_changed(here)
    assert not was_run(program)


def test_a_submodule_is_compared_by_its_commit_and_what_it_configures_is_not_run(
    here: Path, program: str, tmp_path: Path
) -> None:
    git(here, "submodule", "--quiet", "add", str(repository(tmp_path / "there")), "part")
    git(here, "commit", "--quiet", "--message", "part")
    part = here / "part"
    for name in ("core.fsmonitor", "filter.own.clean"):
        git(part, "config", name, program)
    touched(part)
    Path(program).with_name("was-run").unlink(missing_ok=True)
    assert not may_be_changed(here)
    git(part, "config", "--unset", "core.fsmonitor")
    git(part, "config", "--unset", "filter.own.clean")
    git(part, "commit", "--quiet", "--allow-empty", "--message", "two")
    assert may_be_changed(here)
    assert not was_run(program)
