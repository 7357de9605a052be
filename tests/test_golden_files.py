"""The golden files of commands: nothing passes without its section, and each section is that of a test."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.conftest import COLLECTED, pytest_runtest_call
from tests.golden_files import GOLDEN, TESTS, Command, sections, settled

TEST = "check/test_x.py::test_it[a b]"
WORDS = "$ kvproof subjects --fix 1\n[standard error]\nUsage: kvproof subjects [OPTIONS]"


def ran(folder: Path, *arguments: str) -> Command:
    command = Command(TEST, folder, folder)
    assert command(*arguments).exit_code == 2
    return command


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """A folder with the section of a test, and with one of another test before it and after it."""
    ran(tmp_path, "subjects", "--fix", "1").write()
    for other in ("check/test_a.py::test_it", "check/test_z.py::test_it"):
        command = ran(tmp_path, "subjects", "--fix", "2")
        command.test = other
        command.write()
    return tmp_path


def test_what_was_written_is_what_is_printed(golden: Path) -> None:
    assert ran(golden, "subjects", "--fix", "1").difference() == ""
    found = sections(golden / "subjects.txt")
    assert [*found] == ["check/test_a.py::test_it", TEST, "check/test_z.py::test_it"]
    assert found[TEST].startswith(WORDS)
    assert found[TEST].endswith("\n[exit code 2]\n")


def test_a_test_without_its_file_or_section_fails(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    command = ran(golden, "subjects", "--fix", "1")
    command.test = "check/test_x.py::test_it[b]"
    assert command.difference().startswith(f"subjects.txt has no section {command.test}; ")
    command.golden = tmp_path_factory.mktemp("empty")
    assert command.difference().startswith("subjects.txt has no section ")


def test_other_words_fail_and_each_line_that_differs_is_shown(golden: Path) -> None:
    difference = ran(golden, "subjects", "--fix", "3").difference()
    assert "\n-$ kvproof subjects --fix 1\n+$ kvproof subjects --fix 3\n" in difference
    twice = ran(golden, "subjects", "--fix", "1")
    twice("subjects", "--fix", "1")
    assert "\n+$ kvproof subjects --fix 1\n" in twice.difference()


def test_a_section_of_a_command_that_its_test_no_longer_runs_fails_and_is_removed(golden: Path) -> None:
    command = ran(golden, "config", "--fix", "1")
    command.write()
    assert [*sections(golden / "subjects.txt")] == ["check/test_a.py::test_it", "check/test_z.py::test_it"]
    ran(golden, "subjects", "--fix", "1").write()
    both = ran(golden, "config", "--fix", "1")
    assert both.difference() == f"config.txt has no section {TEST}; write it with `pytest --write-golden`"
    command.write()
    both("subjects", "--fix", "1")
    both.write()
    assert command.difference() == f"subjects.txt has a section {TEST}, and this test ran no such command"


def test_a_file_with_two_sections_of_one_test_is_refused(golden: Path) -> None:
    file = golden / "subjects.txt"
    file.write_text(file.read_text() * 2)
    with pytest.raises(AssertionError, match=r"subjects\.txt has two sections of one test"):
        sections(file)


@pytest.mark.parametrize("is_written", [False, True])
def test_a_test_that_passes_fails_if_other_words_were_printed(
    golden: Path, is_written: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request.config.option, "write_golden", is_written)
    command = ran(golden, "subjects", "--fix", "3")
    item: Any = SimpleNamespace(funcargs={"command": command}, config=request.config)
    after = pytest_runtest_call(item)
    next(after)
    with pytest.raises(pytest.fail.Exception, match=r"\+\$ kvproof subjects --fix 3"):
        after.send(None)
    assert (command.difference() == "") is is_written


def test_a_test_that_takes_the_fixture_and_runs_no_command_fails(golden: Path) -> None:
    assert "ran none with it" in Command(TEST, golden, golden).difference()


def test_what_differs_from_run_to_run_is_replaced(tmp_path: Path) -> None:
    text = f"kvproof 0.2.0 hunt {tmp_path}/a.py, {TESTS.parent}/b.py: effort 60. 1.25 s, z3 4.13.0.0, seed 1."
    expected = "kvproof VERSION hunt FOLDER/a.py, REPOSITORY/b.py: effort 60. N s, z3 VERSION, seed 1."
    assert settled(text, tmp_path) == expected


def unused(golden: Path, tests: set[str], is_whole: bool) -> list[str]:
    """The sections of no test. Of a file of which not all tests are among these, it is known what functions it has."""
    files = {test.partition("::")[0] for test in tests} if is_whole else set()

    def is_used(name: str) -> bool:
        file, _, test = name.partition("::")
        if file in files:
            return name in tests
        return (TESTS / file).is_file() and f"def {test.partition('[')[0]}(" in (TESTS / file).read_text()

    return [f"{file.name}: {name}" for file in golden.glob("*.txt") for name in sections(file) if not is_used(name)]


def test_a_section_that_no_test_uses_is_found(golden: Path) -> None:
    assert unused(golden, {TEST, "check/test_a.py::test_it", "check/test_z.py::test_other"}, is_whole=True) == [
        "subjects.txt: check/test_z.py::test_it"
    ]
    assert len(unused(golden, {TEST}, is_whole=False)) == 3


def test_every_section_is_that_of_a_test(request: pytest.FixtureRequest) -> None:
    is_whole = not any("::" in one for one in request.config.args)
    assert unused(GOLDEN, request.config.stash[COLLECTED], is_whole) == []
