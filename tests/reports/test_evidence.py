"""No check is refuted without what shows it, and kvproof refutes one in one place only."""

import ast
from pathlib import Path
from typing import Any

import pytest

from kvproof.reports import evidence
from kvproof.reports.document import decode, encode
from kvproof.reports.evidence import (
    BadPlaces,
    BrokenObligation,
    DivergingLine,
    Evidence,
    FailedCase,
    PrintedRun,
    SavedRun,
    refuted,
)
from kvproof.reports.result import Check, Result, Run
from kvproof.spec.verdict import Verdict

ROOT = Path(__file__).parents[2]
OPEN = Check("walker/read-back", "walker", "read-back", Verdict.UNKNOWN)


def test_a_check_that_is_refuted_by_nothing_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="read-back is not refuted by walker without what shows it"):
        Check("walker/read-back", "walker", "read-back", Verdict.REFUTED)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (SavedRun, ("it leaks", "")),
        (SavedRun, ("", "crashes/a.json")),
        (PrintedRun, ("it leaks", "")),
        (BrokenObligation, ("it leaks", "")),
        (FailedCase, ("a byte differs", "")),
        (DivergingLine, ("it diverges", 0)),
        (BadPlaces, ("a guard comes late", ())),
    ],
)
def test_evidence_without_what_it_shows_cannot_be_made(kind: type[Evidence], fields: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match=f"nothing is refuted by {kind.__name__} without"):
        kind(*fields)


def test_evidence_of_no_kind_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="nothing is refuted by Evidence without a kind"):
        Evidence("it leaks")


def test_a_refuted_check_has_the_run_or_the_state_that_shows_it() -> None:
    saved = refuted(OPEN, SavedRun("it leaks", "crashes/a.json"))
    assert (saved.verdict, saved.text, saved.trace) == (Verdict.REFUTED, "it leaks", "crashes/a.json")
    assert refuted(OPEN, PrintedRun("it leaks", "1  free()")).text == "it leaks\n1  free()"
    assert refuted(OPEN, FailedCase("a byte differs", "engine, fp8")).text == "engine, fp8: a byte differs"
    assert refuted(OPEN, BrokenObligation("it leaks", "specification/free", {"a": 1})).counterexample == {"a": 1}


def test_a_document_with_a_refuted_check_is_read_as_it_was_written() -> None:
    result = Result(Run("0.2.0", "hunt", "kvproof", 1), [refuted(OPEN, DivergingLine("line 3 diverges", 3))])
    assert decode(encode(result), Result, "a document") == result


def makes_refuted(tree: ast.AST) -> list[int]:
    """Lines on which the verdict of anything becomes REFUTED: as an argument, or by an assignment to `verdict`."""
    found = []
    for node in ast.walk(tree):
        given: list[ast.expr] = []
        if isinstance(node, ast.Call):
            is_check = any(isinstance(one, ast.Name) and one.id == "Check" for one in ast.walk(node.func))
            given = [*(node.args if is_check else ()), *(one.value for one in node.keywords if one.arg == "verdict")]
        elif isinstance(node, ast.Assign) and "verdict" in ast.unparse(ast.Tuple(node.targets)):
            given = [node.value]
        found += [one.lineno for one in given if "Verdict.REFUTED" in ast.unparse(one)]
    return found


def test_checks_are_refuted_in_one_place() -> None:
    files = [file for root in ("reports", "check", "audit") for file in (ROOT / root / "kvproof").rglob("*.py")]
    found = {file: lines for file in files if (lines := makes_refuted(ast.parse(file.read_text(encoding="utf-8"))))}
    answers = ROOT / "check/kvproof/check/proving/checks.py"  # the answer of a solver, which is no check
    assert set(found) - {answers} == {Path(evidence.__file__)}
