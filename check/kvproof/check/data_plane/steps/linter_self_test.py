"""Wrong mappings, each with the rule that must reject it, and right mappings that no rule may reject.

Sources are given as project and number of the issue or pull request.
"""

from dataclasses import dataclass

from kvproof.check.data_plane.run.results import LintResult
from kvproof.check.data_plane.steps.linter import RULES, lint
from kvproof.check.data_plane.steps.moves import Moves

NUM_GPU_BLOCKS, NUM_CPU_BLOCKS = 8, 6


@dataclass(frozen=True)
class LintCase:
    """A mapping. rule: the rule of the first complaint that the linter must make; empty if it must make none."""

    name: str
    sentence: str
    moves: Moves
    rule: str


CASES: tuple[LintCase, ...] = (
    LintCase(
        "past-the-pool",
        "A swap out to a host block that does not exist (vLLM 50443).",
        Moves(swap_out=((0, 0), (1, 511))),
        "id-out-of-range",
    ),
    LintCase("negative", "An id below 0, which indexing would wrap.", Moves(copy=((0, 1), (-1, 2))), "id-out-of-range"),
    LintCase(
        "absolute",
        "Host ids counted over both pools (vLLM 3834).",
        Moves(swap_in=((NUM_GPU_BLOCKS + 2, 0),)),
        "absolute-id",
    ),
    LintCase("doubled-target", "Two blocks to one place.", Moves(swap_out=((0, 3), (1, 3))), "target-twice"),
    LintCase("chained-copies", "A copy of a copy in one list.", Moves(copy=((0, 1), (1, 2))), "target-read"),
    LintCase("exchanged", "Two blocks copied onto each other.", Moves(copy=((0, 1), (1, 0))), "target-read"),
    LintCase("itself", "A block copied onto itself.", Moves(copy=((4, 4),)), "copied-onto-itself"),
    LintCase(
        "lost-before-saved",
        "A block is overwritten by a swap in before it is swapped out.",
        Moves(swap_in=((5, 5),), swap_out=((5, 2),)),
        "swapped-in-too-early",
    ),
    LintCase(
        "two-writers",
        "A block is the target of a swap in and of a copy.",
        Moves(swap_in=((0, 3),), copy=((1, 3),)),
        "written-by-two-lists",
    ),
    LintCase(
        "right",
        "A shared source, and reuse of a block that was read before.",
        Moves(((1, 5),), ((7, 1),), ((0, 2), (0, 3))),
        "",
    ),
    LintCase("empty", "Nothing is moved.", Moves(), ""),
)


def judge_lints() -> list[LintResult]:
    """Lint every case. The message of a result is empty if the linter missed a fault or rejected a right mapping."""
    found = []
    for case in CASES:
        complaints = lint(case.moves, NUM_GPU_BLOCKS, NUM_CPU_BLOCKS)
        if case.rule:
            message = complaints[0].text if complaints and complaints[0].rule == case.rule else ""
            sentence = f"{case.sentence} Rule: {RULES[case.rule]}."
        else:
            message, sentence = "" if complaints else "no complaint, as expected", case.sentence
        found.append(LintResult(case.name, sentence, message))
    return found
