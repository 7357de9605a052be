"""An operation that breaks its contract has a counterexample of three states, confirmed by a native run."""

import pytest

from kvproof.audit.faults.edits import Edit
from kvproof.audit.faults.planting import text_with
from kvproof.models.counterexamples.contracts import broken_contract, contract_case
from kvproof.models.counterexamples.picture import contract_data, contract_lines
from kvproof.models.obligation import Obligation
from kvproof.models.proofs.contracts import contract_obligations
from kvproof.models.proofs.induction import Induction
from kvproof.models.solvers.solving import Allowance
from kvproof.models.suites import is_searched, refutation_of
from kvproof.models.translation.text import Text, specification
from kvproof.models.translation.translator import Translator
from kvproof.spec.contract_texts import CONTRACTS
from kvproof.spec.native import FIELDS


def changed(function: str, old: str, new: str) -> Text:
    """The specification with a piece of one function replaced."""
    return text_with(specification(), Edit(function, old, new))


def obligation_of(text: Text, rule: str, claim: str) -> Obligation:
    """The first of the contract of a rule whose claim begins so."""
    contract = next(one for one in CONTRACTS if one.rule == rule)
    return next(
        one
        for one in contract_obligations(Induction(Translator(text=text)), contract)
        if one.claim.startswith(claim) and not one.is_trivial()
    )


def test_an_append_that_takes_more_than_was_counted_is_shown_to_be_stuck() -> None:
    text = changed("append_cost", "1 if num_tokens", "0 if num_tokens")
    found = broken_contract(obligation_of(text, "append", "goes on"), text, Allowance(60))
    assert found is not None
    assert found.before.count[found.before.home[found.given["seq"]]][0] == 0
    assert "Here no rule can be fired any more." in contract_lines(found)


def test_a_policy_that_evicts_in_another_order_is_shown() -> None:
    text = changed("is_first_to_go", "not goes_before(last_used, prefix, o, block)", "True")
    claim = "keeps on: all((implies(is_evicted("
    found = broken_contract(obligation_of(text, "evict", claim), text, Allowance(60))
    assert found is not None
    evicted, ages = found.chosen["block"], found.given["last_used"]
    others = [b for b, status in enumerate(found.after.status) if status == 2]
    assert any(ages[other] <= ages[evicted] for other in others)
    picture, as_data = contract_lines(found), contract_data(found)
    assert picture[0].startswith("As many blocks are free as are wanted")
    assert picture[1] == "This is false afterwards:"
    assert f"evict is fired next, block {evicted}" in picture
    assert as_data["start"].keys() == as_data["before"].keys() == as_data["after"].keys() == FIELDS.keys()


@pytest.mark.parametrize(("rule", "claim"), [("drop_last", "is enabled"), ("drop_last", "has done")])
def test_a_contract_that_holds_has_no_counterexample(rule: str, claim: str) -> None:
    assert broken_contract(obligation_of(specification(), rule, claim), None, Allowance(5)) is None


def test_nothing_is_shown_when_no_time_is_left() -> None:
    text = changed("append_cost", "1 if num_tokens", "0 if num_tokens")
    assert broken_contract(obligation_of(text, "append", "goes on"), text, Allowance(0)) is None


def test_a_claim_that_reads_are_in_range_is_not_run() -> None:
    contract = next(one for one in CONTRACTS if one.rule == "drop_last")
    obligations = list(contract_obligations(Induction(Translator()), contract))
    for claim in ("all that it reads is there", "something is left, or nothing"):
        read = next(one for one in obligations if claim in one.claim)
        assert contract_case(read) is None
        assert not is_searched(read)
        assert refutation_of(read) is None
    assert is_searched(next(one for one in obligations if one.claim.startswith("has done")))
