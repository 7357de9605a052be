"""What an exploration reports: counts that do not move, what it exercised, how far it came, the path to a finding."""

from collections import Counter
from collections.abc import Iterable
from functools import cache

import pytest

from kvproof.check.protocol.manager import Unsupported
from kvproof.check.protocol.scopes import SCOPES, Scope
from kvproof.check.search.exhaustive import specification_call, specification_calls
from kvproof.check.search.exhaustive.specification import explore_specification
from kvproof.check.search.exhaustive.specification_calls import CallSpace
from kvproof.check.search.exhaustive.specification_rules import RuleSpace
from kvproof.check.search.exhaustive.subject import explore
from kvproof.check.search.result import SearchResult
from kvproof.check.search.strategies import MANAGERS
from kvproof.check.subjects.registry import find
from kvproof.spec.language import COLLECTED
from kvproof.spec.native import Machine
from kvproof.spec.sizes import Sizes
from kvproof.spec.text.operations import admit_sequence, compute_tokens
from kvproof.spec.text.witnesses import WITNESSES

# states, transitions, depth. The states of table scopes are derived in `test_canonical`; an implementation that
# permutes every order finds the same numbers there. A change of the specification that moves a count must say why.
PINNED = {
    "tables-4x3x6": (358, 1581, 11),
    "tables-5x3x8": (862, 4005, 13),
    "tables-6x4x8": (8712, 52086, 16),
    "swap-of-two": (132, 717, 11),
    "lookahead-of-two": (94, 343, 10),
    "lookahead": (875, 4504, 14),
    "window-and-swap": (447, 2669, 15),
    "swap": (1284, 9752, 14),
    "cache": (425, 9160, 8),
    "window-and-cache": (696, 10261, 12),
    "local-attention": (335, 1353, 20),
    "flights": (1015, 4685, 16),
    "transfers": (690, 4179, 15),
    "rules-lookahead": (1641, 10312, 14),
    "rules-cache": (2604, 19399, 23),
}
LARGE = {"tables-6x4x8", "rules-cache"}  # each takes seconds
MORE_SCOPES = {
    "swap-of-two": Scope(num_gpu_blocks=3, num_host_blocks=3, num_seqs=2, num_tokens=4, swap=True),
    "lookahead-of-two": Scope(num_gpu_blocks=4, num_seqs=2, num_tokens=4, lookahead=2),
}
FOR_SHARING = Scope(2, 0, 2, 2, 1, caching=True, reserving=True, level="rules")
FOR_REHITS = Scope(2, 1, 2, 1, 1, caching=True, fork=False, swap=True)
FOR_HITS_PAST_A_WINDOW = Scope(2, 0, 2, 3, 1, caching=True, window=2, fork=False)
FOR_COPIES = Scope(1, 0, 1, 1, 1, caching=True, fork=False, num_flights=1, level="rules")
FOR_LATE_WRITES = Scope(2, 0, 1, 1, 1, fork=False, num_flights=2, level="rules")


@cache
def explored(scope: Scope) -> SearchResult:
    """The whole search of a scope. Several tests read it."""
    return explore_specification(scope, seconds=120)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in LARGE)) for name in PINNED])
def test_the_number_of_states_of_a_scope_is_known(name: str) -> None:
    found = explored((SCOPES | MORE_SCOPES)[name])
    assert found.finding is None
    assert found.is_exhausted
    assert (found.num_states, found.num_operations, found.depth) == PINNED[name]


def unexercised(searches: Iterable[SearchResult]) -> list[str]:
    """The rules that never fired, and the witnesses that were never observed."""
    coverage = sum((search.coverage for search in searches), Counter[str]())
    silent = [f"rule {rule.__name__} never fired" for rule in COLLECTED.rules if not coverage[rule.__name__]]
    return silent + [f"witness {name} was never met" for name in WITNESSES if not coverage[name]]


def test_small_scopes_together_fire_every_rule_and_meet_every_witness() -> None:
    scopes = [
        SCOPES[name]
        for name in (
            "tables-4x3x6",
            "rules-lookahead",
            "window-and-swap",
            "local-attention",
            "swap",
            "flights",
            "transfers",
        )
    ]
    scopes += [SCOPES["cache"], FOR_SHARING, FOR_REHITS, FOR_HITS_PAST_A_WINDOW, FOR_LATE_WRITES, FOR_COPIES]
    assert unexercised(map(explored, scopes)) == []


def test_what_a_set_of_searches_never_did_is_named() -> None:
    missing = unexercised([explored(SCOPES["tables-4x3x6"])])
    assert "rule slide never fired" in missing
    assert "witness hit-on-an-evictable-block was never met" in missing
    assert "rule fork never fired" not in missing


@pytest.mark.long
@pytest.mark.parametrize("name", SCOPES)
def test_every_scope_is_exhausted_without_a_finding(name: str) -> None:
    found = explore_specification(SCOPES[name], seconds=600)
    assert (found.finding, found.is_exhausted) == (None, True)


def test_a_search_that_ran_out_of_time_is_not_exhausted() -> None:
    found = explore_specification(SCOPES["tables-6x4x8"], seconds=0.05)
    assert not found.is_exhausted
    assert found.finding is None
    assert 0 < found.num_states < 8712


def test_a_scope_with_flights_is_refused_for_a_subject() -> None:
    with pytest.raises(Unsupported, match="on the specification alone"):
        explore(MANAGERS, find("kvproof")(), SCOPES["flights"], seconds=1)


def test_a_prefix_cache_with_flights_is_explored_by_rules() -> None:
    with pytest.raises(ValueError, match="take the level of rules"):
        CallSpace(Scope(2, 1, 1, 1, 1, caching=True, swap=True, num_flights=1))


def test_progress_reports_the_number_of_states() -> None:
    reported: list[int] = []
    explore_specification(SCOPES["tables-5x3x8"], seconds=60, progress=reported.append)
    assert reported == [500]


def test_an_operation_that_is_refused_although_it_was_expected_to_finish_is_a_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(specification_call, "_victims", lambda *_: [((), True)])
    found = explore_specification(SCOPES["tables-4x3x6"], seconds=60)
    assert found.counterexample is not None
    assert found.counterexample.finding.property == "admission-sound"
    assert [operation[0] for operation in found.counterexample.operations][-1] == "append"


def test_an_operation_that_finishes_unexpectedly_is_a_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(specification_call, "_victims", lambda *_: [((), False)])
    found = explore_specification(SCOPES["tables-4x3x6"], seconds=60)
    assert found.counterexample is not None
    assert (found.counterexample.finding.property, len(found.counterexample.operations)) == ("admission-sound", 1)


def test_a_transition_that_changes_the_state_it_came_from_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = iter(range(1_000_000))
    monkeypatch.setattr(specification_calls, "_rows", lambda _: next(rows))
    found = explore_specification(SCOPES["tables-4x3x6"], seconds=60)
    assert found.finding is not None
    assert found.finding.property == "failed-call-changes-nothing"


def test_a_rule_that_is_refused_and_changes_the_state_is_a_finding() -> None:
    scope = SCOPES["rules-tables"]
    machine = Machine(Sizes(3, 0, 2, 2, 2))
    begin_free = machine.rules["begin_free"]

    def forgetful(state: object, seq: int) -> object:
        refused = begin_free(state, seq)
        if refused is not None:
            state.window[seq] += 1  # type: ignore[attr-defined]
        return refused

    machine.rules["begin_free"] = forgetful  # type: ignore[assignment]
    found = explore_specification(scope, seconds=60, space=RuleSpace(scope, machine)).counterexample
    assert found is not None
    assert (found.finding.property, found.operations) == ("failed-call-changes-nothing", [("begin_free", 0)])


@pytest.mark.parametrize("num_tokens", range(9))
def test_a_prompt_admitted_at_once_is_a_prompt_that_grew(num_tokens: int) -> None:
    level = CallSpace(SCOPES["tables-6x4x8"])
    machine, tokens = level.machine, list(range(1, num_tokens + 1))
    at_once = machine.first_state()
    num_entries = (num_tokens + 1) // 2
    for rule, arguments in admit_sequence(at_once, 2, 0, 0, tokens, 0, num_entries, lambda index: index, False):
        assert machine.rules[rule](at_once, *arguments) is None
    for rule, arguments in compute_tokens(at_once, 2, 0, num_tokens):
        assert machine.rules[rule](at_once, *arguments) is None
    grown = machine.first_state()
    assert machine.rules["admit"](grown, 0, 0) is None
    for _ in tokens:
        grown = next(state for operation, state in level.successors(grown) if operation[0] == "append")
    assert level.state_key(grown) == level.state_key(at_once)
