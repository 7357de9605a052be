"""The contracts: every hypothesis and goal is true at each moment of a native run, and each function agrees with it."""

import pytest

from kvproof.audit.crosscheck.comparison import Crosscheck
from kvproof.audit.crosscheck.contracts import ContractCheck
from kvproof.spec.contract_texts import CONTRACTS
from kvproof.spec.language import Contract


@pytest.fixture(scope="module")
def crosscheck() -> Crosscheck:
    return Crosscheck()


LONG = {"move_entry"}  # its obligations take half a minute


@pytest.mark.parametrize(
    "contract",
    [pytest.param(one, marks=[pytest.mark.long] if one.rule in LONG else [], id=one.rule) for one in CONTRACTS],
)
def test_a_contract_means_the_same_to_the_prover_and_in_a_native_run(
    crosscheck: Crosscheck, contract: Contract
) -> None:
    check = ContractCheck(crosscheck, contract, seed=1)
    check.run()
    print(f"{contract.name}: {check.num_true:,} hypotheses and goals, {check.num_values:,} values of functions")
    assert check.num_true > 300
    assert check.num_values > 150
    postcondition = check.functions[contract.name]
    assert min(postcondition.counts[False], postcondition.counts[True]) >= 4
    assert all(check.functions[name].counts[True] for name in (contract.precondition, contract.loop_invariant))
    choices = [check.functions[choice] for _, choice in contract.firings if choice is not None]
    assert all(choice.counts[True] for choice in choices)
