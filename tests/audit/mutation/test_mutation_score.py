"""Every fault of the rules is noticed by some judge, or proved to be none."""

import signal

import pytest

from kvproof.audit.mutation import mutation_score
from kvproof.audit.mutation.handmade import handmade
from kvproof.audit.mutation.machinery import PLANTS
from kvproof.audit.mutation.mutants import noticed
from kvproof.audit.mutation.mutation_score import ALIVE, EXPLORER, JUDGES, PIN, judge_all, judged
from kvproof.audit.mutation.operators import Mutant, changes, deletions
from kvproof.audit.mutation.weakenings import weakenings


def test_a_guard_that_forbids_too_much_is_noticed_by_what_can_no_longer_be_reached() -> None:
    never = Mutant("fork", "require(not state.live[child], 'the child does not exist')", "require(False, 'never')")
    found = noticed(never)
    assert "states and" in found
    assert "instead of" in found


def test_a_fault_that_no_judge_looks_at_is_alive() -> None:
    mutant = next(deletions())
    assert judged(mutant, ()).by == ALIVE
    assert judged(Mutant("lose", "state.refcount[block] -= 1"), (EXPLORER,)).by == EXPLORER


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_fault_of_the_rules_is_noticed_or_changes_nothing() -> None:
    found = list(judge_all([*deletions(), *changes()], JUDGES, num_processes=2))
    assert [one.mutant.id for one in found if one.by == ALIVE] == []


def test_a_process_that_judges_nothing_is_ended_by_sigterm_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: list[object] = []

    def judge(fault: object, judges: object) -> None:
        handlers.append(signal.getsignal(signal.SIGTERM))
        with pytest.raises(SystemExit):  # the process that runs the test of a planted fault ends that test, too
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(mutation_score, "judged", judge)
    before = signal.getsignal(signal.SIGTERM)
    try:
        mutation_score._judged((PLANTS[0], ()))
        assert callable(handlers[0])
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_stronger_guard_is_noticed_by_the_explorer_and_by_the_pin() -> None:
    guard = next(one for one in weakenings() if one.id == "guards/evict: block != 0")
    assert judged(guard, (EXPLORER,)).by == EXPLORER
    assert judged(guard, (PIN,)).by == PIN
    assert judged(guard, ()).by == ALIVE


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_every_weakening_and_every_fault_of_the_machinery_is_noticed() -> None:
    found = list(judge_all([*weakenings(), *handmade(), *PLANTS], JUDGES, num_processes=2))
    assert [one.mutant.id for one in found if one.by == ALIVE] == []
