"""Which lines of the subject's code a search ran: noted from Python 3.12 on, and once for each line."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kvproof.impl.block_manager
from kvproof.check.search.lines_run import IS_REPORTED, is_of, lines_run
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import strategy_of
from kvproof.check.subjects.builtin.manager import BuiltIn

SOURCE = """from functools import wraps

def noted(function):
    @wraps(function)
    def inner(*arguments):
        return function(*arguments)
    return inner

class Manager:
    @noted
    def take(self, has_room):
        if has_room:
            return 1
        return 0

    @property
    def size(self):
        return 2

    def give(self):
        return 3
"""
ONLY_REPORTED = pytest.mark.skipif(not IS_REPORTED, reason="Python reports lines from 3.12 on")


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    path = tmp_path / "own_manager.py"
    path.write_text(SOURCE)
    module = ModuleType("own_manager")
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "own_manager", module)
    exec(compile(SOURCE, str(path), "exec"), vars(module))
    subject = module.Manager()
    subject.file = str(path)
    return subject


@ONLY_REPORTED
def test_the_lines_that_run_are_noted_also_of_decorated_functions_and_properties(manager: Any) -> None:
    with lines_run(manager) as ran:
        manager.take(True)
        assert manager.size == 2
    assert ran.by_file()[manager.file] == [4, 6, 10, 12, 13, 16, 18]


@ONLY_REPORTED
def test_two_functions_with_equal_code_are_told_from_each_other(manager: Any, tmp_path: Path) -> None:
    path = tmp_path / "copy.py"
    copied = ModuleType("copied")
    exec(compile(SOURCE, str(path), "exec"), vars(copied))
    type(manager).copied = copied.Manager.give
    with lines_run(manager) as ran:
        manager.give()
        manager.copied()
    assert [ran.by_file()[file] for file in (manager.file, str(path))] == [[20, 21], [20, 21]]


@ONLY_REPORTED
def test_each_search_notes_its_own_lines(manager: Any) -> None:
    for answer, line in ((True, 13), (False, 14), (True, 13)):
        with lines_run(manager) as ran:
            manager.take(answer)
        assert ran.by_file()[manager.file] == [4, 6, 10, 12, line]


@ONLY_REPORTED
def test_the_number_of_the_tool_is_free_again_after_a_search_that_fails(manager: Any) -> None:
    before = [sys.monitoring.get_tool(number) for number in range(6)]  # type: ignore[attr-defined,unused-ignore]
    with pytest.raises(ZeroDivisionError), lines_run(manager):
        raise ZeroDivisionError
    after = [sys.monitoring.get_tool(number) for number in range(6)]  # type: ignore[attr-defined,unused-ignore]
    assert before == after


def test_a_walk_notes_lines_of_the_subject_alone_and_none_before_3_12() -> None:
    subject = BuiltIn()
    done = walk(strategy_of(subject), subject, 1, max_operations=200, seconds=60)
    files = {Path(file).name for file in done.lines}
    assert ("block_manager.py" in files) is IS_REPORTED
    assert not files & {"random_walk.py", "manager.py", "state.py"}


@pytest.mark.parametrize(
    ("file", "is_subject"),
    [
        (kvproof.impl.block_manager.__file__, True),
        (__file__.replace("tests/check", "check/kvproof/check"), False),
        ("/mine/own/manager.py", True),
        ("/mine/venv/lib/site-packages/engine/manager.py", True),
        ("/mine/venv/lib/site-packages/engine.py", True),
        ("/mine/venv/lib/site-packages/other/manager.py", False),
        (Path.__module__ and sys.modules["pathlib"].__file__, False),
        ("<string>", False),
    ],
)
def test_the_code_of_the_subject_is_no_code_of_python_of_kvproof_or_of_packages_that_it_does_not_name(
    file: str, is_subject: bool
) -> None:
    assert is_of(file, frozenset({"engine"})) is is_subject
