"""Mutants of the rules, run natively: the explorer must notice them, or its claims show nothing.

`kvproof.audit.mutation` says which changes there are. Exploring one finds it if a claim breaks, if the run
fails, or if what can be reached is not what it was: a guard made too strong breaks no claim, it only forbids.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache

from kvproof.audit.faults.edits import Fault
from kvproof.audit.faults.planting import faulty_text, functions_changed
from kvproof.audit.mutation.operators import SYSTEMS
from kvproof.check.protocol.scopes import Scope, sizes_of
from kvproof.check.search.exhaustive.specification import explore_specification
from kvproof.check.search.exhaustive.specification_rules import RuleSpace
from kvproof.check.search.exhaustive.store_rules import StoreRuleSpace, StoreScope, explore_stores
from kvproof.check.search.result import SearchResult
from kvproof.models.translation.dependencies import reached
from kvproof.models.translation.text import specification
from kvproof.spec.native import Machine
from kvproof.spec.sizes import Sizes
from kvproof.spec.store.machine import STORES, StoreMachine
from kvproof.spec.syntax_trees import Functions, functions
from kvproof.spec.systems import BLOCK_MANAGERS

TRANSITIONS_MAX = 1_000_000  # in one scope, nine times as many as any has; a search that needs more found nothing

# Small searches that fire every rule in every way it branches: tables, windows, lookahead, cache, swap, flights.
SCOPES: tuple[Scope, ...] = (
    Scope(2, 0, 2, 3, level="rules"),
    Scope(2, 0, 2, 2, 1, window=1, level="rules"),
    Scope(2, 0, 2, 1, 1, lookahead=1, level="rules"),
    Scope(2, 0, 1, 4, window=2, fork=False, level="rules"),
    Scope(2, 0, 2, 1, 1, caching=True, level="rules"),
    Scope(2, 2, 2, 1, 1, swap=True, level="rules"),
    Scope(2, 2, 2, 1, 1, lookahead=1, swap=True, level="rules"),
    Scope(2, 2, 1, 2, 1, window=1, fork=False, swap=True, level="rules"),
    Scope(2, 0, 2, 2, 2, caching=True, reserving=True, level="rules"),
    Scope(2, 0, 1, 3, 1, caching=True, window=1, fork=False, level="rules"),
    Scope(2, 0, 1, 2, 1, caching=True, window=2, fork=False, level="rules"),
    Scope(2, 0, 1, 1, 1, fork=False, num_flights=2, level="rules"),
    Scope(1, 2, 1, 1, 1, swap=True, num_flights=1, level="rules"),
    Scope(2, 1, 1, 1, 1, swap=True, num_flights=2, fork=False, level="rules"),
    Scope(2, 0, 1, 1, 1, caching=True, fork=False, num_flights=2, level="rules"),
    Scope(2, 1, 2, 1, 1, caching=True, fork=False, swap=True, level="rules"),
)
STORE_SCOPES: tuple[StoreScope, ...] = (
    StoreScope((1, 1), num_keys=2, is_built=False),
    StoreScope((2,), num_keys=2, num_pins=2, num_flights=2),
    StoreScope(num_pins=2, num_owners=2, leases=True, ends=True, promises=True, drops=True, is_built=False),
    StoreScope((1, 1), num_pins=3, num_flights=2, moves=True),
    StoreScope((1, 1), num_pins=2, leases=True, moves=True, drops=True),
    StoreScope((1, 1), num_keys=2, num_pins=2, moves=True, ranges=True),
    StoreScope((1, 1), num_pins=2, leases=True, loads=False, moves=True, ranges=True),
    StoreScope(num_owners=2, ends=True, parts=2),
)
BY_SUITE: dict[str, Sequence[Scope | StoreScope]] = {BLOCK_MANAGERS.name: SCOPES, STORES.name: STORE_SCOPES}


def noticed(mutant: Fault) -> str:
    """What the explorer notices of a mutant, in the first scope in which it does; empty if nothing."""
    return next(_noticed(mutant), "")


def _noticed(mutant: Fault) -> Iterator[str]:
    rules = frozenset[str]().union(*(rules_reaching(mutant.subject, name) for name in functions_changed(mutant)))
    for scope in BY_SUITE[mutant.subject] if rules else ():
        expected, expected_edges = _unchanged(scope)
        if not expected.coverage.keys() & rules:
            continue
        try:
            found, edges = _explored(scope, mutant)
        except Exception as error:  # the text as it is raises nothing
            yield f"{type(error).__name__} in {scope}"
            continue
        if found.counterexample is not None:
            broken = found.counterexample
            yield f"{broken.finding.property} breaks after {len(broken.operations)} rules"
        elif found.text:  # it reads what keys leave out
            yield found.text
        elif found.is_exhausted and _reach(mutant.subject, found) != _reach(mutant.subject, expected):
            yield f"{found.num_states} states and {found.num_operations} firings instead of {_words(expected)}"
        elif found.is_exhausted and edges != expected_edges:
            yield f"the {found.num_operations} firings lead to other states"


def _reach(suite: str, found: SearchResult) -> tuple[object, ...]:
    rules = [rule.__name__ for rule in SYSTEMS[suite].collected.rules]
    return found.num_states, found.num_operations, {rule: found.coverage[rule] for rule in rules}


def _words(found: SearchResult) -> str:
    return f"{found.num_states} and {found.num_operations}"


@lru_cache(maxsize=len(SCOPES) + len(STORE_SCOPES))
def _unchanged(scope: Scope | StoreScope) -> tuple[SearchResult, int]:
    """The search of the unchanged text."""
    return _explored(scope)


def _explored(scope: Scope | StoreScope, mutant: Fault | None = None) -> tuple[SearchResult, int]:
    """The search of the text, or of a changed one; and a number for all transitions, which only stores have."""
    if isinstance(scope, StoreScope):
        text = None if mutant is None else _functions(mutant)
        stores = StoreRuleSpace(scope, StoreMachine(scope.sizes, text=text))
        return explore_stores(scope, max_transitions=TRANSITIONS_MAX, space=stores), stores.edges
    space = None if mutant is None else RuleSpace(scope, mutated(mutant, sizes_of(scope)))
    return explore_specification(scope, seconds=math.inf, max_transitions=TRANSITIONS_MAX, space=space), 0


@cache
def rules_reaching(suite: str, function: str) -> frozenset[str]:
    """The rules of a specification that are the function or call it, directly or not."""
    text = specification(SYSTEMS[suite])
    return frozenset(rule.__name__ for rule in text.system.collected.rules if function in reached(text, rule.__name__))


@cache
def _functions(mutant: Fault) -> Functions:
    system = SYSTEMS[mutant.subject]
    text = faulty_text(mutant, specification(system))
    return {name: text.functions[name] for name in functions(system)}


def mutated(mutant: Fault, sizes: Sizes, with_ghosts: bool = True, with_checks: bool = True) -> Machine:
    """A machine that runs the changed text of block managers."""
    return Machine(sizes, with_ghosts, with_checks, _functions(mutant))
