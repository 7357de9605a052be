"""What a worker cannot do rightly is refused, and nothing else."""

from __future__ import annotations

import pytest

from kvproof.check.data_plane.mappings import KINDS, scenario
from kvproof.check.data_plane.steps.linter import CASES, RULES, judge_lints, lint
from kvproof.check.data_plane.steps.moves import Moves


def test_every_bad_mapping_of_the_catalogue_is_reported_and_every_right_one_let_pass() -> None:
    assert [result.name for result in judge_lints() if not result.message] == []
    assert {case.rule for case in CASES} - {""} == set(RULES)


@pytest.mark.parametrize(
    ("moves", "text"),
    [
        (Moves(swap_out=((1, 6),)), "swap_out pair 1 -> 6: the CPU pool has no block 6, only 0 to 5"),
        (
            Moves(swap_in=((9, 0),)),
            "swap_in pair 9 -> 0: the CPU pool has no block 9, only 0 to 5; "
            "if ids count over both pools, it is block 1",
        ),
        (Moves(copy=((-1, 0),)), "copy pair -1 -> 0: the GPU pool has no block -1, only 0 to 7"),
        (Moves(copy=((1, 0), (2, 0))), "copy writes block 0 of the GPU pool twice, from block 1 and from block 2"),
        (Moves(copy=((1, 2), (2, 3))), "copy writes block 2 by 1 -> 2 and reads it by 2 -> 3"),
    ],
)
def test_a_complaint_names_list_pair_and_pool(moves: Moves, text: str) -> None:
    complaints = lint(moves, 8, 6)
    assert [complaint.text for complaint in complaints] == [text]
    assert complaints[0].refuses


def test_a_mapping_that_is_defined_but_unusual_is_reported_and_not_refused() -> None:
    complaints = lint(Moves(swap_in=((0, 3),), swap_out=((3, 1),)), 8, 6)
    assert [(complaint.rule, complaint.refuses) for complaint in complaints] == [("swapped-in-too-early", False)]


@pytest.mark.parametrize("kind", KINDS)
def test_no_scenario_is_refused(kind: str) -> None:
    for seed in range(3):
        made = scenario(kind, seed, 12, 9, 4)
        complaints = [c for step in made.steps for c in lint(step.moves, 12, 9)]
        assert [complaint.text for complaint in complaints if complaint.refuses] == []
