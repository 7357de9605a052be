"""Every fault of the rules is noticed by some judge, or proved to be none."""

import pytest

from kvproof.audit.faults.catalogue import EXPLORER, PIN, by_hand, machinery
from kvproof.audit.faults.running import judge_all
from kvproof.audit.mutation.mutants import noticed
from kvproof.audit.mutation.mutation_score import ALIVE, judged
from kvproof.audit.mutation.operators import changed_statement, changes, deletions
from kvproof.audit.mutation.weakenings import weakenings


def test_a_guard_that_forbids_too_much_is_noticed_by_what_can_no_longer_be_reached() -> None:
    never = changed_statement(
        "fork", "require(not state.live[child], 'the child does not exist')", "require(False, 'never')"
    )
    found = noticed(never)
    assert "states and" in found
    assert "instead of" in found


def test_a_fault_that_no_judge_looks_at_is_alive() -> None:
    mutant = deletions()[0]
    assert judged(mutant, ()).by == ALIVE
    assert judged(changed_statement("lose", "state.refcount[block] -= 1"), (EXPLORER,)).by == EXPLORER


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_fault_of_the_rules_is_noticed_or_changes_nothing() -> None:
    found = list(judge_all("2", judged, [*deletions(), *changes()]))
    assert [one.fault.id for one in found if one.by == ALIVE] == []


def test_a_stronger_guard_is_noticed_by_the_explorer_and_by_the_pin() -> None:
    guard = next(one for one in weakenings() if one.id == "guards/evict: block != 0")
    assert judged(guard, (EXPLORER,)).by == EXPLORER
    assert judged(guard, (PIN,)).by == PIN
    assert judged(guard, ()).by == ALIVE


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_every_weakening_and_every_fault_of_the_machinery_is_noticed() -> None:
    found = list(judge_all("2", judged, [*weakenings(), *by_hand(), *machinery()]))
    assert [one.fault.id for one in found if one.by == ALIVE] == []
