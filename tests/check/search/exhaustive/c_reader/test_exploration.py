"""The C reader finds the states that Python finds, on one core and on two, and says what stopped it."""

import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from kvproof.check.protocol.scopes import SCOPES, Scope
from kvproof.check.search.exhaustive.c_reader import exploration
from kvproof.check.search.exhaustive.c_reader.comparison import ReadersDiffer, compare_searches
from kvproof.check.search.exhaustive.c_reader.exploration import explore_in_c
from kvproof.check.search.exhaustive.c_reader.specification import SpecificationInC, TooLargeForC
from kvproof.check.search.exhaustive.specification import explore_specification

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

# In these, what the next token may be depends on which of two like states Python has reached first.
IN_FLIGHT = {"flights", "transfers", "transfers-of-tails"}
# Python tries some operations twice, for sequences that differ only in what no rule reads.
TRIED_TWICE = {"cache", "cache-and-swap", "window-and-cache", "local-attention-and-cache"}


def counts(scope: Scope, workers: int = 1) -> tuple[int, int, int]:
    found = explore_in_c(scope, seconds=600, workers=workers)
    assert (found.finding, found.is_exhausted) == (None, True)
    return found.num_states, found.num_operations, found.depth


def test_a_search_in_c_counts_what_a_search_in_python_counts() -> None:
    scope = SCOPES["tables-4x3x6"]
    expected, found = explore_specification(scope, seconds=60), explore_in_c(scope, seconds=60)
    assert found.text.startswith("exhausted (C reader): 358 states in ")
    assert replace(found, seconds=0.0, text="") == replace(expected, seconds=0.0)


@pytest.mark.parametrize("name", ["window-and-swap", "transfers", "rules-lookahead"])
def test_two_threads_reach_what_one_reaches(name: str) -> None:
    assert counts(SCOPES[name], 2) == counts(SCOPES[name], 1)


@pytest.mark.long
@pytest.mark.parametrize("name", SCOPES)
def test_every_scope_has_the_states_that_python_counts(name: str) -> None:
    found, expected = counts(SCOPES[name]), explore_specification(SCOPES[name], seconds=600)
    compare_searches(SpecificationInC(SCOPES[name]), 10_000)
    if name not in IN_FLIGHT:
        assert (found[0], found[2]) == (expected.num_states, expected.depth)
    if name not in IN_FLIGHT | TRIED_TWICE:
        assert found[1] == expected.num_operations


@pytest.mark.parametrize("name", ["cache-and-swap", "flights", "rules-window-and-cache"])
def test_states_lead_to_the_same_states_in_both_readers(name: str) -> None:
    assert compare_searches(SpecificationInC(SCOPES[name]), 60) == 60


def test_two_like_blocks_that_move_to_one_cached_block_take_none() -> None:
    scope = replace(SCOPES["cache-and-swap"], num_gpu_blocks=3)
    found = explore_in_c(scope, seconds=60, max_transitions=20_000)
    assert (found.finding, found.num_operations >= 20_000) == (None, True)


def test_states_that_a_search_has_found_are_compared_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []
    monkeypatch.setattr(exploration, "compare_states", lambda _, strings: compared.extend(strings))
    spec = SpecificationInC(SCOPES["cache-and-swap"])
    explore_in_c(spec.scope, seconds=60, spec=spec, workers=2)
    assert len(set(compared)) == len(compared) == 16


def test_a_state_of_a_search_that_leads_elsewhere_in_python_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = SpecificationInC(SCOPES["tables-4x3x6"])
    reached = spec.successors

    def with_one_missing(string: bytes) -> tuple[list[bytes], int]:
        strings, finding = reached(string)
        return strings[:-1], finding

    monkeypatch.setattr(exploration, "compare_searches", lambda *_: 0)
    monkeypatch.setattr(spec, "successors", with_one_missing)
    with pytest.raises(ReadersDiffer, match="only Python"):
        explore_in_c(spec.scope, seconds=60, spec=spec)


def test_memory_that_is_full_is_not_exhausted() -> None:
    found = explore_in_c(SCOPES["tables-6x4x8"], seconds=60, max_bytes=1 << 19)
    assert not found.is_exhausted
    assert 0 < found.num_states < 8712
    assert found.text.startswith(f"stopped at {found.num_states:,} states, depth ")


def test_effort_that_is_used_up_is_not_exhausted() -> None:
    found = explore_in_c(SCOPES["tables-4x3x6"], seconds=60, max_transitions=100)
    assert (found.is_exhausted, found.finding) == (False, None)
    assert 100 <= found.num_operations < 200


def test_time_that_is_over_is_not_exhausted() -> None:
    assert not explore_in_c(SCOPES["tables-6x4x8"], seconds=0.0).is_exhausted


def test_a_scope_that_bytes_cannot_name_is_refused() -> None:
    with pytest.raises(TooLargeForC, match="at most 64 blocks"):
        SpecificationInC(Scope(65))


BROKEN_FORK = """
import ast, copy
from kvproof.spec import syntax_trees
for found in (syntax_trees.functions(), syntax_trees.functions(syntax_trees.BLOCK_MANAGERS)):
    function, file = found["fork"]
    function = copy.deepcopy(function)
    function.body = [one for one in function.body if not ast.unparse(one).startswith("state.refcount")]
    found["fork"] = function, file
from kvproof.check.protocol.scopes import SCOPES
from kvproof.check.search.exhaustive.c_reader import exploration
from kvproof.check.search.exhaustive.specification import explore_specification
exploration.NUM_COMPARED = 0
scope = SCOPES["tables-4x3x6"]
expected = explore_specification(scope, seconds=60).counterexample
assert expected is not None
for workers in (1, 2):
    found = exploration.explore_in_c(scope, seconds=60, workers=workers).counterexample
    assert (found.operations, found.finding.args) == (expected.operations, expected.finding.args)
"""


@pytest.mark.long
def test_a_finding_in_c_is_the_counterexample_of_python() -> None:
    subprocess.run([sys.executable, "-c", BROKEN_FORK], check=True)
