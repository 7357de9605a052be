"""How much of the subject's code ran is counted from its files, which are compiled and not executed."""

from pathlib import Path

import pytest

from kvproof.check.runs import code_reached as counted
from kvproof.check.runs.code_reached import NOT_SEEN, code_reached
from kvproof.reports.result import CodeFile, PartlyRun, SubjectCode

SOURCE = """raise SystemExit

class Manager:
    size = 2

    def take(self, room):
        \"\"\"Take a block.\"\"\"
        if room:
            return [one for one in room]
        return []

    def give(self): return 3

    def keep(self):
        return 4
"""


@pytest.fixture(autouse=True)
def _as_from_3_12_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counted, "IS_REPORTED", True)


def test_each_function_that_did_not_run_as_a_whole_is_listed_with_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "manager.py"
    path.write_text(SOURCE)
    found = code_reached({str(path): [6, 8, 9, 12]}, 500)
    partly = [PartlyRun("Manager.take", 6, [10], True), PartlyRun("Manager.keep", 14, [15], False)]
    assert found == SubjectCode(500, "", [CodeFile(str(path), 3, 2, 5, 3, partly)])


@pytest.mark.parametrize("content", [None, "no Python", "x = '\\udfff'", "("])
def test_a_file_that_cannot_be_read_as_python_is_left_out(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "manager.py"
    if content is not None:
        path.write_text(content)
    found = code_reached({str(path): [1]}, 500)
    assert (found.files, found.why_unknown) == ([], NOT_SEEN) or content == "x = '\\udfff'"


def test_before_3_12_nothing_is_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counted, "IS_REPORTED", False)
    found = code_reached({}, 500)
    assert found.files == []
    assert found.why_unknown.startswith("which lines of the subject ran is not known before Python 3.12")
