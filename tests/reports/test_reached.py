"""What a run did not reach is said in one line, and as a whole in the file and on the page."""

from pathlib import Path

import pytest

from kvproof.reports.document import decode, encode
from kvproof.reports.reached import code_lines, not_reached
from kvproof.reports.result import Check, CodeFile, PartlyRun, Result, Run, SubjectCode, WitnessCount
from kvproof.reports.run_page import run_page
from kvproof.reports.terminal import plain_text
from kvproof.spec.verdict import Verdict

PARTLY = [PartlyRun("Manager.take", 6, [8, 9, 10, 12], True), PartlyRun("Manager.keep", 14, [15])]
CODE = SubjectCode(9000, "", [CodeFile("own/manager.py", 3, 2, 9, 4, PARTLY)])


@pytest.fixture
def result() -> Result:
    check = Check("walker/frame-kept", "walker", "frame-kept", Verdict.NOT_REFUTED, counts={"operations": 9000})
    witnesses = [
        WitnessCount("fork", "walker operations", 7, False),
        WitnessCount("swap_in", "walker operations", 0, False),
    ]
    return Result(Run("1", "hunt", "own", 1, is_complete=True), [check], witnesses, code=CODE)


def test_one_line_names_the_operations_the_functions_and_the_number_of_lines(result: Result) -> None:
    assert not_reached(result) == (
        "not reached in 9,000 operations: the operations swap_in; 1 of 3 functions of the subject (Manager.keep); "
        "5 of 9 lines of the subject"
    )


def test_little_work_reached_nothing_that_is_worth_a_line(result: Result) -> None:
    result.checks[0].counts["operations"] = 4999
    assert not_reached(result) == ""


def test_where_lines_are_not_known_the_reason_is_said_and_no_line_is_called_reached(result: Result) -> None:
    result.code = SubjectCode(9000, "nobody knows")
    assert not_reached(result) == "not reached in 9,000 operations: the operations swap_in; nobody knows"
    result.witnesses.pop()
    assert not_reached(result) == "nobody knows"


def test_a_subject_that_was_reached_as_a_whole_is_said_to_be(result: Result) -> None:
    result.witnesses.pop()
    result.code = SubjectCode(9000, "", [CodeFile("own/manager.py", 3, 3, 9, 9)])
    assert not_reached(result) == "reached in 9,000 operations: every operation, function and line of the subject"


def test_the_file_of_the_report_and_the_page_have_every_function(result: Result, tmp_path: Path) -> None:
    lines = [
        "code: own/manager.py: 2 of 3 functions and 4 of 9 lines ran",
        "  Manager.take (6): lines 8-10, 12 did not run",
        "  Manager.keep (14): never entered",
    ]
    assert list(code_lines(result)) == lines
    text = plain_text(result, tmp_path)
    assert "\n".join(lines) in text
    assert "walker operations never done: swap_in" in text
    page = run_page(result, tmp_path)
    for words in (not_reached(result), "lines 8-10, 12 did not run", "never entered", "never done"):
        assert words in page


def test_the_document_keeps_the_code_and_one_of_an_older_kvproof_has_none(result: Result) -> None:
    written = encode(result)
    assert decode(written, Result, "result").code == CODE
    result.code = None
    assert decode(encode(result).replace(b'"code": null,', b""), Result, "result").code is None
