"""Faults of proved code: each can be planted, and is noticed by a proof; code without a fault is not."""

import ast
from dataclasses import replace

import pytest

from kvproof.audit.mutation.code import code_faults
from kvproof.audit.mutation.mutation_score import EQUIVALENT, EXPLORER, PROVER, judged
from kvproof.audit.mutation.planting import ROOT

BY_NAME = {one.name: one for one in code_faults()}


def test_each_fault_changes_one_place_of_a_file_that_stays_python() -> None:
    assert len(BY_NAME) == len(code_faults()) > 100
    for one in code_faults():
        assert ast.dump(ast.parse(one.changed(ROOT))) != ast.dump(ast.parse((ROOT / one.file).read_text())), one.name


def test_a_fault_of_proved_code_leaves_an_obligation_open() -> None:
    found = judged(BY_NAME["device_blocks.release: never lists block 0"])
    assert (found.by, found.evidence.split("/")[0]) == (PROVER, "refinement")


def test_what_no_run_can_show_is_equivalent_only_if_it_is_proved() -> None:
    same = BY_NAME["device_blocks.take_one: += 1"]
    assert (judged(same).by, judged(same).evidence) == (EQUIVALENT, "a free block has the count 0")
    assert judged(replace(same, new=same.new.replace("+= 1", "+= 2"))).by == PROVER
    assert judged(same, (EXPLORER,)).by != EQUIVALENT


def test_what_a_decorator_keeps_for_the_next_call_is_refused() -> None:
    some = BY_NAME["device_blocks.release: never lists block 0"]
    head = "    def release(self, block_ids: Iterable[int])"
    kept = f"    from functools import lru_cache\n\n    @lru_cache\n{head}"
    found = judged(replace(some, old=head, new=kept))
    assert found.by == PROVER
    assert "is refused: release of DeviceBlocks belongs to the class, and can change" in found.evidence


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", BY_NAME)
def test_every_fault_leaves_an_obligation_open_unless_no_run_can_show_it(name: str) -> None:
    assert judged(BY_NAME[name]).by == (EQUIVALENT if BY_NAME[name].equivalent else PROVER)
