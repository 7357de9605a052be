"""Every mutant of the rules is searched three ways: with full keys, as the product searches, and in C.

None calls a scope exhausted where another finds what is wrong. A search may say unknown instead: where a rule reads a
cell that keys leave out or takes a name for something else, or the path of a finding in C cannot be followed in Python.
All portions take about a quarter of an hour of processor time; they can be run one by one (`-k "portion-07"`).
"""

import math
import shutil
from collections.abc import Callable
from functools import cache

import pytest
from tests.check.search.exhaustive.watched_cells import WatchedSpace

from kvproof.audit.faults.edits import Fault
from kvproof.audit.mutation.mutants import rules_reaching
from kvproof.audit.mutation.operators import changed, changes, deletions
from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.exhaustive.c_reader import exploration
from kvproof.check.search.exhaustive.c_reader.comparison import ReadersDiffer
from kvproof.check.search.exhaustive.c_reader.specification import SpecificationInC, UnfitForC, translation_of
from kvproof.check.search.exhaustive.specification import explore_specification, space_of
from kvproof.check.search.result import SearchResult
from kvproof.spec.c_reader import library
from kvproof.spec.language import COLLECTED
from kvproof.spec.syntax_trees import Functions, functions

SCOPES = (
    Scope(2, 0, 2, 2, 1, level="rules"),
    Scope(2, 0, 2, 2, 2, level="rules"),
    Scope(2, 0, 2, 1, 1, lookahead=1, level="rules"),
    Scope(2, 0, 1, 2, 1, window=1, fork=False, level="rules"),
    Scope(2, 0, 1, 4, 2, window=2, fork=False, level="rules"),
    Scope(1, 0, 1, 2, 2, caching=True, fork=False, reserving=True, level="rules"),
    Scope(2, 0, 2, 1, 1, caching=True, level="rules"),
    Scope(2, 0, 1, 2, 1, caching=True, window=1, fork=False, level="rules"),
    Scope(1, 1, 2, 1, 1, swap=True, level="rules"),
    Scope(1, 1, 1, 1, 1, caching=True, fork=False, swap=True, level="rules"),
    Scope(2, 0, 1, 1, 1, fork=False, num_flights=2, level="rules"),
    Scope(1, 0, 1, 2, 2, fork=False, num_flights=1, level="rules"),
    Scope(1, 1, 1, 1, 1, fork=False, swap=True, num_flights=1, level="rules"),
    Scope(1, 2, 1, 1, 1, fork=False, swap=True, num_flights=1, level="rules"),
    Scope(1, 0, 1, 1, 1, caching=True, fork=False, num_flights=1, level="rules"),
)
NUM_PORTIONS = 24
TRANSITIONS_MAX = 30_000  # ten times as many as any of these scopes has
REFUTED, EXHAUSTED, UNKNOWN = "refuted", "exhausted", "unknown"
NEEDS_COMPILER = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@cache
def rules_that_fire(scope: Scope) -> frozenset[str]:
    return frozenset(explore_specification(scope, seconds=math.inf).coverage)


def word(found: SearchResult) -> str:
    return REFUTED if found.finding is not None else EXHAUSTED if found.is_exhausted else UNKNOWN


def with_full_keys(scope: Scope, text: Functions) -> str:
    space = WatchedSpace(scope, text)
    return word(explore_specification(scope, seconds=math.inf, max_transitions=TRANSITIONS_MAX, space=space))


def as_shipped(scope: Scope, text: Functions) -> str:
    space = space_of(scope, text=text)
    return word(explore_specification(scope, seconds=math.inf, max_transitions=TRANSITIONS_MAX, space=space))


def in_c(text: Functions) -> Callable[[Scope], str]:
    """How the text is searched in C, compiled once for all scopes."""
    loaded = library.load(translation_of(text)[1])

    def search(scope: Scope) -> str:
        try:
            spec = SpecificationInC(scope, loaded, text)
            found = exploration.explore_in_c(scope, seconds=math.inf, max_transitions=TRANSITIONS_MAX, spec=spec)
        except (ReadersDiffer, UnfitForC):  # the search ends with this error
            return UNKNOWN
        return word(found)

    return search


def differences(name: str, text: Functions, function: str) -> list[str]:
    """Where the three searches of a text do not say the same."""
    search_in_c, found = in_c(text), []
    for number, scope in enumerate(SCOPES):
        if rules_that_fire(scope) & rules_reaching("specification", function):
            words = with_full_keys(scope, text), as_shipped(scope, text), search_in_c(scope)
            if {EXHAUSTED, REFUTED} <= {*words}:
                found.append(f"{name}, scope {number}: {', '.join(words)}")
    return found


def text_of(mutant: Fault) -> Functions:
    return {**functions(), mutant.row: (changed(mutant), functions()[mutant.row][1])}


@pytest.fixture(autouse=True)
def quickly_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little is searched in each library. What Python compares with C before a search, the three searches compare."""
    monkeypatch.setattr(library, "FLAGS", tuple("-O0" if flag == "-O3" else flag for flag in library.FLAGS))
    monkeypatch.setattr(exploration, "NUM_COMPARED", 0)


def test_every_rule_fires_in_some_scope() -> None:
    assert {rule.__name__ for rule in COLLECTED.rules} <= frozenset[str]().union(*map(rules_that_fire, SCOPES))


@NEEDS_COMPILER
@pytest.mark.long
@pytest.mark.parametrize("portion", [pytest.param(n, id=f"portion-{n:02}") for n in range(NUM_PORTIONS)])
def test_a_mutant_is_searched_alike_with_full_keys_as_shipped_and_in_c(portion: int) -> None:
    mutants = [*deletions(), *changes()][portion::NUM_PORTIONS]
    found = [one for mutant in mutants for one in differences(mutant.id, text_of(mutant), mutant.row)]
    assert found == []
