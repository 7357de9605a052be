"""`kvproof gate`: what a change in a repository adds, repairs and leaves."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kvproof.check.cli.app import app
from kvproof.check.hunting.gate import imports, running
from kvproof.check.hunting.gate.changes import lines_changed
from kvproof.check.hunting.gate.imports import path_for
from kvproof.check.hunting.gate.sides import Hunted
from kvproof.check.runs.errors import UsageError
from kvproof.check.search.lines_run import IS_REPORTED
from kvproof.spec.verdict import Exit

EXAMPLES = Path(__file__).parents[4] / "examples"
RIGHT = (EXAMPLES / "forty_lines.py").read_text()
COUNTS = "        for block in self.tables[child]:\n            self.refcounts[block] += 1\n"
FORGETS = RIGHT.replace(COUNTS, "")
SELDOM = "        for block in self.tables[child]:\n            self.refcounts[block] += len(self.tables) < 5\n"
ADAPTER = "adapter.py:Adapter"


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=n", "-c", "user.email=e", "-c", "init.defaultBranch=main")
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the tags `right` and `wrong`; the working tree is right."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet")
    for tag, text in (("right", RIGHT), ("wrong", FORGETS)):
        (folder / "adapter.py").write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", tag)
        git(folder, "tag", tag)
    (folder / "adapter.py").write_text(RIGHT)
    monkeypatch.chdir(folder)
    return folder


def gate(*words: str) -> Result:
    return CliRunner().invoke(app, ["gate", "--effort", "300", *words])


def comment() -> str:
    return Path(".kvproof/gate/gate.md").read_text()


def test_a_change_adds_what_only_the_second_state_has(repository: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (repository / "adapter.py").write_text(FORGETS)
    done = gate("--subject", ADAPTER, "--base", "right")
    assert done.exit_code == Exit.WORSE_THAN_BASELINE, done.output
    assert "the working tree adds 1 finding to right" in done.output
    assert "it repairs 0 and leaves 0" in done.output
    assert "refcount-exact is refuted for adapter.py:Adapter at step 4" in comment()
    assert "Repeat: kvproof replay .kvproof/gate/head/crashes/" in comment()
    assert "while calling BlockManager.fork of adapter.py:" in capfd.readouterr().out


@pytest.mark.usefixtures("quick")
def test_a_change_repairs_what_was_refuted_and_whose_run_refutes_nothing_now(repository: Path) -> None:
    done = gate("--subject", ADAPTER, "--base", "wrong")
    assert "adds no finding to wrong" in done.output
    assert "it repairs 1 and leaves 0" in done.output
    assert "  repaired: refcount-exact: fork" in done.output

    done = gate("--subject", ADAPTER, "--base", "wrong", "--head", "wrong")
    assert "was hunted before; its result is in" in done.output  # a commit does not change
    assert "it repairs 0 and leaves 1" in done.output


@pytest.mark.usefixtures("quick")
def test_what_a_new_fault_may_hide_is_not_called_repaired(repository: Path) -> None:
    line = "def allocate(self, seq: int, num_tokens: int) -> None:\n"
    ends = line + '        raise RuntimeError("ends every run")\n'
    (repository / "adapter.py").write_text(FORGETS.replace(line, ends))
    done = gate("--subject", ADAPTER, "--base", "wrong")
    assert done.exit_code == Exit.WORSE_THAN_BASELINE, done.output
    assert "it repairs 0 and leaves 0, and 1 were not met again" in done.output
    assert "not met again, and not shown to be repaired: refcount-exact: fork" in done.output


def test_what_the_first_state_has_too_and_did_not_meet_is_not_added(
    repository: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first hunt is cut short here; a change of answers can also lead the second one elsewhere."""
    seldom = RIGHT.replace(COUNTS, SELDOM)
    (repository / "adapter.py").write_text(seldom)
    git(repository, "commit", "--all", "--quiet", "-m", "seldom")
    run = running._run

    def short_at_first(how: Hunted, name: str, words: list[str], said: Path | None) -> int:
        is_first = name == running.KVPROOF and said is not None
        return run(how, name, ["1" if is_first and one == "3000" else one for one in words], said)

    monkeypatch.setattr(running, "_run", short_at_first)
    done = gate("--subject", ADAPTER, "--base", "HEAD", "--effort", "3000")
    assert "has refcount-exact too; the working tree is hunted again" in done.output, done.output
    assert "adds no finding to HEAD" in done.output
    assert "it repairs 0 and leaves 1" in done.output
    assert done.exit_code == Exit.OK


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--base", "nowhere", "--subject", ADAPTER), "has no commit nowhere: fetch it first"),
        (("--base", "--all", "--subject", ADAPTER), "has no commit --all"),
        (("--base", "right"), "no subject is given"),
        (("--base", "right", "--subject", "kvproof"), "kvproof is a part of kvproof"),
        (("--base", "right", "--subject", "vllm-v1==0.33.0"), "vllm-v1==0.33.0 is a release"),
        (("--base", "right", "--subject", "vllm-v1==/"), "/ is not in"),
        (("--base", "right", "--subject", "later.py:Adapter"), "has no later.py: there is no subject to compare with"),
        (("--base", "right", "--subject", "../x.py:Adapter"), "../x.py is not in"),
        (("--base", "right", "--subject", "adapter.py:Other"), "ended with exit code 2"),
    ],
)
def test_what_cannot_be_compared_is_one_message(repository: Path, words: tuple[str, ...], said: str) -> None:
    done = gate(*words)
    assert (done.exit_code, said in done.output) == (Exit.USAGE, True), done.output


def test_a_folder_without_a_repository_has_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = gate("--subject", ADAPTER, "--base", "main")
    assert (done.exit_code, "is in no git repository" in done.output) == (Exit.USAGE, True)


# What a state imports -----------------------------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Two trees with one package, of which another tree is on the path; it returns the named tree."""
    for name in ("here", "there"):
        package = tmp_path / name / "src" / "thirty"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f'PLACE = "{name}"\n')
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "there" / "src"))
    return lambda name: tmp_path / name


def imported(path: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PYTHONPATH", path)
    words = [sys.executable, "-P", "-c", "import thirty; print(thirty.PLACE)"]
    return subprocess.run(words, capture_output=True, text=True, check=True, cwd=folder).stdout.strip()


def test_a_state_imports_its_own_packages_and_not_what_is_installed(
    installed: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = installed("here").resolve()
    before = str(installed("there") / "src")
    assert imported(before, here, monkeypatch) == "there"
    path = path_for(here, here, here / "links")
    assert imported(path, here, monkeypatch) == "here"


def test_a_state_that_imports_its_own_packages_needs_no_links(
    installed: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = installed("there").resolve()
    assert path_for(there, there, there / "links") == str(installed("there") / "src")
    assert not (there / "links").exists()


def test_an_import_hook_that_comes_first_is_refused(
    installed: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = installed("here").resolve()
    monkeypatch.setattr(imports, "_found_elsewhere", lambda *_: {"thirty": "elsewhere"})
    with pytest.raises(UsageError, match="`import thirty` finds elsewhere"):
        path_for(here, here, here / "links")


def test_a_package_that_kvproof_uses_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "msgspec").mkdir()
    (tmp_path / "msgspec" / "__init__.py").write_text("")
    with pytest.raises(UsageError, match="kvproof itself uses msgspec"):
        path_for(tmp_path.resolve(), tmp_path, tmp_path / "links")


# What a change has ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not IS_REPORTED, reason="which lines ran is not known before Python 3.12")
@pytest.mark.usefixtures("quick")
def test_changed_lines_that_no_walk_ran_are_named(repository: Path) -> None:
    """Nobody calls a new function, so nothing is known of it."""
    (repository / "adapter.py").write_text(RIGHT + "\n\ndef later() -> int:\n    return 1\n")
    done = gate("--subject", ADAPTER, "--base", "right")
    last = len(RIGHT.splitlines()) + 4
    assert f"not looked at: adapter.py: line {last} of later" in done.output, done.output
    assert f"**Not looked at**\n\n- adapter.py: line {last} of later" in comment()


def test_lines_that_are_gone_count_as_changes_of_those_behind_them(repository: Path, tmp_path: Path) -> None:
    before = tmp_path / "before"
    before.mkdir()
    (before / "adapter.py").write_text(RIGHT)
    (repository / "adapter.py").write_text(FORGETS)
    place = RIGHT[: RIGHT.index(COUNTS)].count("\n") + 1
    assert lines_changed(before, repository) == {"adapter.py": [place]}
    (repository / "adapter.py").write_text(RIGHT)
    assert lines_changed(before, repository) == {}


def test_a_finding_is_annotated_at_the_line_that_the_change_has(repository: Path, quick: None) -> None:
    wrong = RIGHT.replace(COUNTS, COUNTS.replace("+= 1", "+= 0"))
    (repository / "adapter.py").write_text(wrong)
    git(repository, "commit", "--all", "--quiet", "-m", "nothing is counted")
    done = gate("--subject", ADAPTER, "--base", "right", "--head", "HEAD")
    assert done.exit_code == Exit.WORSE_THAN_BASELINE, done.output
    log = json.loads(Path(".kvproof/gate/head/result.sarif").read_text())
    places = [one["locations"][0]["physicalLocation"] for one in log["runs"][0]["results"]]
    line = wrong[: wrong.index("+= 0")].count("\n") + 1
    assert {(one["artifactLocation"]["uri"], one["region"]["startLine"]) for one in places} == {("adapter.py", line)}
    assert f"line {line} of BlockManager.fork differs from" in comment()
