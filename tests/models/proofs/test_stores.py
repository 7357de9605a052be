"""The proofs about stores: faults of their text are noticed, and the order of reports is part of what is proved."""

import pytest
import z3

from kvproof.audit.faults.edits import Edit
from kvproof.audit.faults.planting import text_with
from kvproof.models.obligation import Obligation
from kvproof.models.proofs import stores
from kvproof.models.proofs.stores import NotFired
from kvproof.models.translation.text import specification
from kvproof.spec.store.machine import STORES


def is_proved(one: Obligation) -> bool:
    solver = z3.SimpleSolver()
    solver.set(auto_config=False, mbqi=False, rlimit=1_000_000)
    solver.add(*(hypothesis.formula for hypothesis in one.hypotheses), one.negated_goal())
    return one.is_trivial() or bool(solver.check() == z3.unsat)


@pytest.mark.parametrize(
    ("function", "old", "new", "claim"),
    [
        ("commit", "is_written(state, block)", "True", "ready_blocks_are_written"),
        ("evict", "state.status[block] == EVICTABLE", "state.status[block] != FREE", "status_tells_who_refers"),
        ("submit_move", "state.mover[write] == NONE", "True", "transfers_use_pins"),
        ("submit_move", "target_first <= state.written[target]", "True", "transfers_move_slots_of_chunks"),
        (
            "submit_move",
            "brings_what_is_wanted(state, source, target, source_first, target_first)",
            "True",
            "moves_bring_what_is_wanted",
        ),
        ("land", "max(state.written[target], stop)", "state.length[key]", "written_slots_have_the_content"),
        (
            "end_owner",
            "state.parts[owner] = 0",
            "state.parts[owner] = state.parts[owner]",
            "only_awaited_parts_are_noticed",
        ),
        ("begin_store", "state.entry[state.tier[block]][key] == NONE", "True", "status_tells_who_refers"),
    ],
)
def test_without_a_guard_an_invariant_is_not_proved(function: str, old: str, new: str, claim: str) -> None:
    text = text_with(specification(STORES), Edit(function, old, new))
    unit = next(unit for unit in stores.units(text) if unit.name == function)
    found = {one.claim: one for one in unit.obligations()}
    assert not is_proved(found[claim])


def test_reports_that_do_not_commute_are_not_proved_to() -> None:
    text = text_with(
        specification(STORES), Edit("report", "state.phase[flight] = NONE", "state.phase[0] = state.phase[flight]")
    )
    of_reports = [one for one in stores.commuting(text) if one.claim.startswith("report and report")]
    assert [is_proved(one) for one in of_reports] == [True, False]  # both stay enabled, and leave different states


def test_a_mirror_that_may_lose_what_is_cached_is_not_proved_to_agree() -> None:
    wrong = text_with(specification(STORES), Edit("may_go", "not is_resident(state, above, key)", "state.known[key]"))
    for text, expected in ((None, True), (wrong, False)):
        unit = next(unit for unit in stores.units(text) if unit.name == stores.MIRROR)
        proved = {one.claim: is_proved(one) for one in unit.obligations()}
        assert len(proved) == 4
        assert proved["keep: that key, and no other, must come below"] is expected


def test_a_lease_that_waits_for_another_one_is_not_proved_to_end() -> None:
    text = text_with(
        specification(STORES), Edit("expire", "not is_in_force(state, pin)", "not is_in_force(state, 0) or pin == 0")
    )
    unit = next(unit for unit in stores.units(text) if unit.name == stores.LEASES)
    proved = {one.claim: is_proved(one) for one in unit.obligations()}
    assert proved == dict.fromkeys(proved, True) | {"it can end": False}


def test_a_rule_that_is_never_enabled_is_not_called_fired() -> None:
    text = text_with(specification(STORES), Edit("keep", "state.kind[pin] == WRITE", "state.kind[pin] > 5"))
    with pytest.raises(NotFired, match="keep"):
        list(stores.fired(stores.machine_of(text)))
