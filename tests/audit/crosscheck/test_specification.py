"""The specification: what the prover is given about every size, in the states of random walks, against native runs."""

import pytest

from kvproof.audit.crosscheck.specification import Compared, SpecificationCheck
from kvproof.models.proofs.endless_quantifiers import LENGTHS
from kvproof.models.translation.text import specification
from kvproof.spec.language import COLLECTED
from kvproof.spec.native import FIELDS
from kvproof.spec.store.machine import STORES

NEVER_FALSE_MAX, NEVER_REFUSED_MAX = 6, 16  # claims and guards for which a million cells need not show both outcomes
RULES = {rule.__name__ for rule in COLLECTED.rules}
CLAIMS = {claim.name for claim in (*COLLECTED.invariants, *COLLECTED.theorems)}


def compared(num_cells: int, seed: int) -> Compared:
    found = SpecificationCheck(seed).run(num_cells)
    print(found)
    assert found.num_cells >= num_cells
    assert set(found.fired) == RULES
    return found


def test_the_terms_of_the_prover_agree_with_native_runs_in_fifty_thousand_cells_with_every_rule_fired() -> None:
    found = compared(50_000, seed=1)
    assert found.num_values >= 50_000
    assert found.num_formulas >= 10_000
    assert sum(found.refused.values()) > 100
    assert sum(found.false.values()) > 60
    assert found.longest.keys() == LENGTHS.keys() & FIELDS.keys()
    assert min(found.longest.values()) >= 1


def test_the_terms_of_the_prover_agree_with_native_runs_of_stores_with_every_rule_fired() -> None:
    found = SpecificationCheck(7, specification(STORES)).run(36_000)
    assert set(found.fired) == {rule.__name__ for rule in STORES.collected.rules}
    assert sum(found.refused.values()) > 100
    assert sum(found.false.values()) > 60
    assert found.longest.keys() == LENGTHS.keys() & STORES.fields.keys()


@pytest.mark.long
def test_the_terms_of_the_prover_agree_with_native_runs_in_a_million_cells() -> None:
    found = compared(1_000_000, seed=2)
    assert min(found.fired.values()) >= 15
    never_false = {name for name in CLAIMS if not found.false[name]}
    never_refused = {guard for guard, num in found.refused.items() if not num}
    assert len(never_false) <= NEVER_FALSE_MAX, never_false
    assert len(never_refused) <= NEVER_REFUSED_MAX, never_refused
