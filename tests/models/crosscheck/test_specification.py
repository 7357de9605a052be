"""The specification: what the prover is given about every size, in the states of random walks, against native runs."""

import pytest

from kvproof.models.crosscheck.specification import Compared, SpecificationCheck
from kvproof.models.proofs.induction import Induction
from kvproof.spec.language import COLLECTED

RULES = {rule.__name__ for rule in COLLECTED.rules}
CLAIMS = {claim.name for claim in (*COLLECTED.invariants, *COLLECTED.theorems)}


def compared(num_cells: int, seed: int) -> tuple[SpecificationCheck, Compared]:
    check = SpecificationCheck(seed)
    found = check.run(num_cells)
    print(found)
    assert found.num_cells >= num_cells
    assert set(found.fired) == RULES
    return check, found


def test_the_terms_of_the_prover_agree_with_native_runs_in_fifty_thousand_cells_with_every_rule_fired() -> None:
    _, found = compared(50_000, seed=1)
    assert found.num_values >= 50_000
    assert found.num_formulas >= 10_000
    assert sum(found.refused.values()) > 150
    assert sum(found.false.values()) > 100


@pytest.mark.long
def test_the_terms_of_the_prover_agree_with_native_runs_in_a_million_cells() -> None:
    check, found = compared(1_000_000, seed=2)
    assert min(found.fired.values()) >= 15
    assert {name for name, num in found.false.items() if num} >= CLAIMS - NEVER_FALSE
    assert {guard for guard, num in found.refused.items() if not num} <= NEVER_REFUSED
