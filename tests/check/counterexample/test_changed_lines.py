"""In a git checkout the lines of the functions that a finding names are compared with the base of the checkout."""

import os
import subprocess
from pathlib import Path

import pytest

from kvproof.check.counterexample import changed_lines as compared
from kvproof.check.counterexample.changed_lines import changed_lines, fields_of, marked
from kvproof.check.hosts import git as git_host
from kvproof.check.oracle.method_called import Blame
from kvproof.spec.trace import EnteredCode

BEFORE = """def take():
    return 1


def give():
    return 2
"""
NOW = BEFORE.replace("return 2", "return 3")
WHO = "-c", "user.name=n", "-c", "user.email=e", "-c", "init.defaultBranch=main", "-c", "commit.gpgSign=false"


def git(folder: Path, *words: str) -> str:
    alone = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment = alone | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["git", *WHO, *words]
    return subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def manager(tmp_path: Path) -> Path:
    """A file of a checkout on its default branch, as it was committed."""
    path = tmp_path / "engine" / "manager.py"
    path.parent.mkdir()
    path.write_text(BEFORE)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "begin")
    return path


def test_a_file_that_is_as_it_was_committed_has_no_changed_lines(manager: Path) -> None:
    base, lines = changed_lines(str(manager))
    assert (base[:4], lines) == ("HEAD", set())


def test_on_the_default_branch_a_file_is_compared_with_its_last_commit(manager: Path) -> None:
    manager.write_text(f"# a comment\n{NOW}")
    head = git(manager.parent, "rev-parse", "HEAD")[:10]
    assert changed_lines(str(manager)) == (f"HEAD ({head})", {1, 7})


def test_on_another_branch_a_file_is_compared_with_where_the_branch_began(manager: Path) -> None:
    began = git(manager.parent, "rev-parse", "HEAD")[:10]
    git(manager.parent, "checkout", "--quiet", "-b", "mine")
    manager.write_text(NOW)
    git(manager.parent, "commit", "--quiet", "--all", "--message", "mine")
    manager.write_text(NOW.replace("return 1", "return 0"))
    assert changed_lines(str(manager)) == (f"{began} of main", {2, 6})


def test_only_the_functions_with_changed_lines_are_marked(manager: Path) -> None:
    manager.write_text(NOW)
    file = str(manager)
    blame = Blame(entered=[EnteredCode("take", file, 1, 2), EnteredCode("give", file, 5, 6)])
    fields = fields_of(blame)
    assert [one.changed for one in fields["entered"]] == [[], [6]]
    assert fields["base"].startswith("HEAD (")


def test_every_line_of_a_file_that_is_added_is_new_and_of_a_file_that_git_does_not_have_nothing_is_said(
    manager: Path,
) -> None:
    added, unknown = manager.with_name("added.py"), manager.with_name("unknown.py")
    added.write_text(BEFORE)
    unknown.write_text(BEFORE)
    git(manager.parent, "add", "added.py")
    assert changed_lines(str(added))[1] == {1, 2, 3, 4, 5, 6}
    assert changed_lines(str(unknown)) == ("", set())


def test_nothing_that_the_repository_configures_is_run(manager: Path, tmp_path: Path) -> None:
    proof, program = tmp_path / "was-run", tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho $0 >> {proof}\ncat\n")
    program.chmod(0o755)
    hook = tmp_path / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(program.read_text())
    hook.chmod(0o755)
    for name in ("diff.external", "diff.own.command", "diff.own.textconv", "filter.own.clean", "core.fsmonitor"):
        git(manager.parent, "config", name, str(program))
    git(manager.parent, "config", "core.pager", str(program))
    (tmp_path / ".gitattributes").write_text("*.py diff=own filter=own\n")
    proof.unlink(missing_ok=True)
    manager.write_text(NOW)
    assert changed_lines(str(manager))[1] == {6}
    assert not proof.exists()


def test_without_a_repository_or_with_a_broken_one_nothing_is_said(manager: Path, tmp_path: Path) -> None:
    manager.write_text(NOW)
    (tmp_path / ".git" / "HEAD").write_text("nonsense")
    assert changed_lines(str(manager)) == ("", set())
    assert changed_lines("<string>") == ("", set())
    assert changed_lines("a\0b") == ("", set())


def test_without_git_nothing_is_said(manager: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager.write_text(NOW)
    monkeypatch.setenv("PATH", str(manager.parent))
    assert changed_lines(str(manager)) == ("", set())


def test_a_repository_that_does_not_answer_in_time_says_nothing(manager: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = manager.parent / "git"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{manager.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(git_host, "SECONDS_MAX", 0.1)
    assert changed_lines(str(manager)) == ("", set())


def test_a_very_large_file_is_not_compared(manager: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager.write_text(NOW)
    monkeypatch.setattr(compared, "BYTES_MAX", 10)
    assert changed_lines(str(manager)) == ("", set())


def test_the_variables_of_a_hook_in_which_kvproof_runs_lead_to_no_other_repository(
    manager: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    manager.write_text(NOW)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert changed_lines(str(manager))[1] == {6}


def test_a_file_in_latin_1_with_other_line_ends_is_compared_line_by_line(manager: Path) -> None:
    manager.write_bytes(BEFORE.replace("\n", "\r\n").encode() + b"# \xe9\r\n")
    assert changed_lines(str(manager))[1] == {7}


def test_a_function_without_a_file_is_marked_with_nothing() -> None:
    function = EnteredCode("take", "<string>", 1, 2)
    assert marked([function]) == ([function], "")
