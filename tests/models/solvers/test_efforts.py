"""Efforts are kept and compared: what became harder is named, and what is new or gone."""

import json

import msgspec
import pytest
import z3

from kvproof.models.obligation import Obligation
from kvproof.models.solvers.solver_effort import FLOOR, Efforts, changes, efforts, worse
from kvproof.models.solvers.solving import Answer, ProofOutcome
from kvproof.spec.verdict import Verdict


def decided(claim: str, effort: int) -> ProofOutcome:
    obligation = Obligation("suite", "subject", claim, "read-back", (), z3.BoolVal(True))
    return ProofOutcome(obligation, Answer(Verdict.PROVED, effort=effort))


BEFORE = Efforts("z3 1", 0, {"suite/subject/hard": 4 * FLOOR}, {"suite/subject": 2})


@pytest.mark.parametrize(
    ("claim", "effort", "is_worse"),
    [
        ("hard", 6 * FLOOR, False),
        ("hard", 6 * FLOOR + 1, True),
        ("easy", FLOOR * 3 // 2, False),
        ("easy", FLOOR * 3 // 2 + 1, True),
        ("hard", 1, False),
    ],
)
def test_half_as_much_again_is_worse_and_anything_below_the_floor_is_not(
    claim: str, effort: int, is_worse: bool
) -> None:
    found = list(worse(BEFORE, [decided(claim, effort)]))
    assert [line.startswith(f"suite/subject/{claim}: effort {effort:,}") for line in found] == [True] * is_worse


def test_nothing_of_a_subject_that_the_baseline_does_not_know_is_harder() -> None:
    assert list(worse(Efforts("z3 1", 0, {}, {}), [decided("hard", 9 * FLOOR)])) == []


def test_new_and_vanished_obligations_are_named() -> None:
    now = efforts([decided("hard", FLOOR - 1), decided("harder", FLOOR), decided("easy", 7)], "z3 1", 0)
    assert now == Efforts("z3 1", 0, {"suite/subject/harder": FLOOR}, {"suite/subject": 3})
    assert [line.partition(":")[0] for line in changes(BEFORE, now)] == [
        "suite/subject",
        "suite/subject/harder",
        "suite/subject/hard",
    ]
    assert list(changes(now, now)) == []


def test_a_file_of_efforts_reads_as_it_was_written() -> None:
    assert msgspec.json.decode(json.dumps(BEFORE.as_data()), type=Efforts) == BEFORE
