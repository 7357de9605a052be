"""`make everything`: every outcome is kept, what was stopped goes on, and the table says what is not there."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from tests import everything

TREE = Path(__file__).parents[1]
TESTS = """
import os, pathlib, pytest
HERE = pathlib.Path(__file__).parent
pytestmark = pytest.mark.long
def ran(name):
    with (HERE / "ran").open("a") as out:
        out.write(name + " ")
def test_a(): ran("a")
def test_b():
    ran("b")
    assert False
def test_c(): pytest.skip("not here")
@pytest.mark.browser
def test_d():
    ran("d")
    if (HERE / "die").exists():
        os._exit(9)
def test_e(): ran("e")
def test_f(): pass
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one test file."""
    markers = "".join(f'"{suite}", ' for suite in everything.SUITES)
    (tmp_path / "pyproject.toml").write_text(f"[tool.pytest.ini_options]\nmarkers = [{markers}]\n")
    (tmp_path / ".gitignore").write_text("build/\nran\n__pycache__/\n.pytest_cache/\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text(TESTS)
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *identity, *command], cwd=tmp_path, check=True)
    monkeypatch.setenv("PYTHONPATH", str(TREE))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take longer to load than all of this
    return tmp_path


def run(folder: Path, capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str], str]:
    """The exit code, the lines of the table, and the tests that ran so far."""
    code = everything.main(["long", *arguments], folder)
    table = capfd.readouterr().out.partition("suite ")[2].splitlines()[1:]
    ran = folder / "tests" / "ran"
    return code, table, ran.read_text() if ran.exists() else ""


def row(passed: int, failed: int, skipped: int, left: int, tree: str) -> str:
    return f"long      {passed:8}{failed:8}{skipped:9}{left:12}{0:9}  {tree}"


def test_each_test_runs_once_for_a_tree_and_its_outcome_is_in_the_table(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tree = everything.tree_of(folder)
    expected = [row(4, 1, 1, 0, tree), "", "failed:", "long: tests/test_one.py::test_b"]
    assert run(folder, capfd) == (1, expected, "a b d e ")
    assert run(folder, capfd) == (1, expected, "a b d e ")
    file = folder / "tests" / "test_one.py"
    file.write_text(TESTS.replace("assert False", "pass"))
    changed = everything.tree_of(folder)
    assert changed.startswith(f"{tree}+")
    assert run(folder, capfd) == (0, [row(5, 0, 1, 0, changed)], "a b d e a b d e ")


def test_a_test_at_which_pytest_dies_has_failed_and_the_others_run(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "tests" / "die").touch()
    code, table, ran = run(folder, capfd)
    assert (code, table[0].split()[:5], ran) == (1, ["long", "3", "2", "1", "0"], "a b d e ")
    assert table[3:] == ["long: tests/test_one.py::test_b", "long: tests/test_one.py::test_d"]


def test_a_run_that_was_stopped_goes_on_with_the_tests_that_have_no_outcome(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(folder, capfd, "--only", "tests/two")[:2] == (1, [row(0, 0, 0, 1, everything.tree_of(folder))])
    assert run(folder, capfd, "--seconds", "0")[:2] == (1, [row(0, 0, 0, 1, everything.tree_of(folder))])
    (folder / "tests" / "test_one.py").write_text(TESTS.replace('ran("a")', 'ran("a"); import time; time.sleep(1)'))
    code, table, ran = run(folder, capfd, "--seconds", "0.5")
    assert (code, table, ran) == (1, [row(1, 0, 0, 1, everything.tree_of(folder))], "a ")
    assert run(folder, capfd)[2] == "a b d e "


def test_an_interrupted_run_shows_the_table_and_goes_on_with_the_test_that_was_interrupted(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    once = 'ran("d"); (HERE / "ran").read_text().count("d") == 1 and os.kill(os.getpid(), 2)'
    (folder / "tests" / "test_one.py").write_text(TESTS.replace('ran("d")', once))
    tree = everything.tree_of(folder)
    failed = ["", "failed:", "long: tests/test_one.py::test_b"]
    assert run(folder, capfd) == (1, [row(1, 1, 1, 1, tree), *failed], "a b d ")
    assert run(folder, capfd) == (1, [row(4, 1, 1, 0, tree), *failed], "a b d d e ")


def test_many_tests_of_a_file_run_at_once_and_each_has_one_outcome(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "tests" / "die").touch()
    code, table, ran = run(folder, capfd, "--workers", "2")
    assert (code, table[0].split()[:5], sorted(ran.split())) == (1, ["long", "3", "2", "1", "0"], ["a", "b", "d", "e"])
    assert run(folder, capfd, "--workers", "2")[1:] == (table, ran)
    outcomes = [line for line in (folder / everything.FILE).read_text().splitlines() if '"outcome"' in line]
    assert len(outcomes) == 6


def test_the_table_has_the_minutes_of_all_runs_of_a_tree(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tree = everything.tree_of(folder)
    for test, seconds in (("a", 90.0), ("b", 150.0)):
        everything.write(folder / everything.FILE, "long", tree, test=test, outcome="passed", seconds=seconds)
    table = run(folder, capfd, "--seconds", "0")[1]
    assert table == [f"long      {2:8}{0:8}{0:9}{1:12}{4:9}  {tree}"]


def test_a_file_that_cannot_be_collected_has_failed(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "tests" / "test_one.py").write_text(TESTS + "\nassert False\n")
    _, table, _ = run(folder, capfd)
    assert table[0].split()[:5] == ["long", "0", "1", "0", "0"]
    assert table[3:] == ["long: tests/test_one.py"]


def test_a_suite_of_which_nothing_passed_is_not_good(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "tests" / "test_one.py").write_text("import pytest\n@pytest.mark.long\ndef test_a(): pytest.skip()\n")
    assert run(folder, capfd)[:2] == (1, [row(0, 0, 1, 0, everything.tree_of(folder))])


def test_every_mark_that_leaves_a_test_out_of_the_default_suite_is_a_suite() -> None:
    options = tomllib.loads((TREE / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert {one.partition(":")[0] for one in options["markers"]} == set(everything.SUITES)
    assert set(re.findall(r"not (\w+)", options["addopts"][-1])) == set(everything.SUITES)


def test_a_test_sees_no_variable_that_a_command_would_refuse(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = "import os, pytest\n@pytest.mark.long\ndef test_a(): assert not {*os.environ} - {*KNOWN}\n"
    known = repr({*os.environ, "PYTEST_VERSION", "PYTEST_CURRENT_TEST", "COLUMNS", "LINES"})
    (folder / "tests" / "test_one.py").write_text(program.replace("KNOWN", known))
    assert run(folder, capfd)[0] == 0, capfd.readouterr()
