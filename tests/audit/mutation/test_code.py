"""Faults of proved code: each can be planted, and is noticed by a proof; code without a fault is not."""

import ast
from functools import cache

import pytest
from tests.audit.faults.altering import altered

from kvproof.audit.faults.catalogue import EXPLORER, PROVER, code_faults
from kvproof.audit.faults.planting import ROOT, sources
from kvproof.audit.mutation import mutation_score
from kvproof.audit.mutation.mutation_score import EQUIVALENT, judged
from kvproof.audit.mutation.process_judges import proof_notices

BY_NAME = {one.id.removeprefix("code/"): one for one in code_faults()}


def test_each_fault_changes_one_place_of_a_file_that_stays_python() -> None:
    assert len(BY_NAME) == len(code_faults()) > 100
    as_it_is = cache(lambda file: ast.dump(ast.parse((ROOT / file).read_text())))
    for one in code_faults():
        ((file, text),) = sources(one).items()
        assert ast.dump(ast.parse(text)) != as_it_is(file), one.id


def test_a_fault_of_proved_code_leaves_an_obligation_open() -> None:
    found = judged(BY_NAME["device_blocks.release: never lists block 0"])
    assert (found.by, found.text.split("/")[0]) == (PROVER, "refinement")


def test_what_no_run_can_show_is_equivalent_only_if_it_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite that runs this function is asked. The long test asks every suite about every fault."""
    monkeypatch.setattr(mutation_score, "proof_notices", lambda fault: proof_notices(fault, "refinement"))
    same = BY_NAME["device_blocks.take_one: += 1"]
    assert (judged(same).by, judged(same).text) == (EQUIVALENT, "a free block has the count 0")
    assert judged(altered(same, new=same.plant[0].new.replace("+= 1", "+= 2"))).by == PROVER
    assert judged(same, (EXPLORER,)).by != EQUIVALENT


def test_what_a_decorator_keeps_for_the_next_call_is_refused() -> None:
    some = BY_NAME["device_blocks.release: never lists block 0"]
    head = "    def release(self, block_ids: Iterable[int])"
    kept = f"    from functools import lru_cache\n\n    @lru_cache\n{head}"
    found = judged(altered(some, old=head, new=kept))
    assert found.by == PROVER
    assert "is refused: release of DeviceBlocks belongs to the class, and can change" in found.text


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", BY_NAME)
def test_every_fault_leaves_an_obligation_open_unless_no_run_can_show_it(name: str) -> None:
    assert judged(BY_NAME[name]).by == (EQUIVALENT if BY_NAME[name].equivalent else PROVER)
