"""Mutants of the rules: each is one change, proofs notice it, or prove that it changes nothing."""

import pytest

from kvproof.audit.mutation.operators import changed, changed_statement, changes, deletions
from kvproof.audit.mutation.prover import MutantProver

EVERY = [*deletions(), *changes()]


@pytest.fixture(scope="module")
def prover() -> MutantProver:
    return MutantProver()


def test_there_are_hundreds_of_mutants_each_with_a_name_of_its_own() -> None:
    assert len(EVERY) > 600
    assert len({one.id for one in EVERY}) == len(EVERY)
    assert all(changed(one) for one in EVERY[::9])


def test_a_statement_is_changed_in_every_small_way() -> None:
    found = {one.plant[0].new for one in changes() if one.row == "follow_entry" and "leader != seq" in one.plant[0].old}
    assert any("state.live[leader] or leader != seq" in new for new in found)  # another connective
    assert any("leader == seq" in new for new in found)  # another sign
    assert any("state.live[leader] and leader != seq," in new for new in found)  # a part left out
    assert any("state.live[seq]" in new for new in found)  # another sequence
    assert not any(one.plant[0].old.startswith("check(") for one in changes())


@pytest.mark.parametrize("function", ["begin_free", "evict"])
def test_whatever_is_left_out_of_a_rule_a_proof_notices(prover: MutantProver, function: str) -> None:
    mutants = [one for one in deletions() if one.row == function]
    open_ones = [one.id for one in mutants if not prover.killer(one) and not prover.is_equivalent(one)]
    assert mutants != []
    assert open_ones == []


def test_the_killer_is_an_obligation_that_the_change_breaks(prover: MutantProver) -> None:
    uncounted = next(one for one in deletions() if one.row == "unpin" and one.plant[0].old == "state.pins[block] -= 1")
    assert prover.killer(uncounted).partition("/")[0] == "specification"
    assert not prover.is_equivalent(uncounted)


def test_the_same_rule_in_other_words_is_proved_to_be_the_same(prover: MutantProver) -> None:
    needless = changed_statement("finish", "state.num_filled[seq] = 0")
    assert prover.is_equivalent(needless)


def test_a_guard_that_only_forbids_too_much_is_another_rule(prover: MutantProver) -> None:
    (guard,) = [
        one
        for one in deletions()
        if one.row == "promote" and one.plant[0].old.startswith("require(not state.cached[block]")
    ]
    assert not prover.is_equivalent(guard)
