"""The comment of a gate says which changed lines no walk ran, so that nobody takes a pass for a look at the change."""

from pathlib import Path

import pytest

from kvproof.reports.gate_comment import LEFT, OPEN, REPAIRED, Change, comment, lines
from kvproof.reports.result import Check, CodeFile, Difference, PartlyRun, Result, Run, SubjectCode
from kvproof.spec.verdict import Verdict

NAME = "python/engine/core/blocks.py"
FILE = "engine/core/blocks.py"  # as a subject names it, from the folder of its package
PARTLY = [PartlyRun("Pool.take", 6, [8, 9, 10], True), PartlyRun("Pool.keep", 14, [15])]
CODE = SubjectCode(9000, "", [CodeFile(FILE, 3, 2, 9, 4, PARTLY)])
FATES: dict[str, list[str]] = {REPAIRED: [], LEFT: [], OPEN: []}


def change(changed: dict[str, list[int]], code: SubjectCode | None = CODE, worse: list[str] | None = None) -> Change:
    run = Run("1", "hunt", "engine", 1, is_complete=True)
    difference = Difference("baseline.json", worse or [], has_findings=True)
    checks = [Check("walker/frame-kept", "walker", "frame-kept", Verdict.NOT_REFUTED, counts={"operations": 9000})]
    return Change("engine", "old", "new", [], Result(run, checks, code=code, difference=difference), FATES, changed)


def test_changed_lines_that_did_not_run_are_named_with_their_function() -> None:
    found = change({NAME: [7, 8, 9, 15]})
    assert found.not_looked_at == [f"{NAME}: lines 8-9 of Pool.take", f"{NAME}: line 15 of Pool.keep"]
    assert (f"  not looked at: {NAME}: lines 8-9 of Pool.take", "yellow") in list(lines(found))
    assert f"**Not looked at**\n\n- {NAME}: lines 8-9 of Pool.take\n- " in comment(found, Path())


def test_a_change_of_which_every_line_ran_has_nothing_to_name() -> None:
    found = change({NAME: [7]})
    assert f"✅ **{found.verdict}**" in comment(found, Path())
    assert found.not_looked_at == []
    assert not found.is_unseen


def test_a_change_of_files_that_no_walk_entered_is_said_to_be_unseen() -> None:
    found = change({"engine/worker.py": [1]})
    assert found.verdict == "No walk of engine entered a file that new changes: this says nothing of the change."
    assert f"⚠️ **{found.verdict}**" in comment(found, Path())


def test_one_file_that_was_entered_is_enough_for_the_usual_verdict() -> None:
    found = change({"engine/worker.py": [1], NAME: [7]})
    assert found.not_looked_at == ["engine/worker.py: no walk of engine entered this file"]
    assert found.verdict.startswith("new adds no finding to old")


def test_what_the_change_adds_is_said_although_no_walk_entered_its_files() -> None:
    """The lines of an extension in C are not known."""
    assert change({"engine/worker.py": [1]}, worse=["new finding: walker/frame-kept"]).verdict.startswith("new adds 1")


@pytest.mark.parametrize("code", [None, SubjectCode(9000, "nobody knows")])
def test_where_the_lines_that_ran_are_not_known_nothing_is_called_unseen(code: SubjectCode | None) -> None:
    found = change({"engine/worker.py": [1]}, code)
    assert not found.not_looked_at
    assert not found.is_unseen


def test_a_long_list_of_places_is_cut() -> None:
    code = SubjectCode(9000, "", [CodeFile(FILE, 30, partly=[PartlyRun(f"f{n}", n, [n]) for n in range(1, 26)])])
    found = change({NAME: list(range(1, 26))}, code)
    assert "- and 5 more places" in comment(found, Path())
