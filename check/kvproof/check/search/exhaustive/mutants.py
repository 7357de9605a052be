"""Mutants of the rules, run natively: the explorer must notice them, or its claims show nothing.

`kvproof.models.mutation` says which changes there are. Exploring one finds it if a claim breaks, if the run
fails, or if what can be reached is not what it was: a guard made too strong breaks no claim, it only forbids.
"""

import math
from collections.abc import Iterator
from functools import cache

from kvproof.check.protocol.scopes import Scope, sizes_of
from kvproof.check.search.exhaustive.specification import explore_specification
from kvproof.check.search.exhaustive.specification_rules import RuleSpace
from kvproof.check.search.result import SearchResult
from kvproof.models.mutation.operators import Mutant, changed
from kvproof.models.mutation.weakenings import Weakening
from kvproof.models.translation.dependencies import reached
from kvproof.models.translation.text import specification
from kvproof.spec.language import COLLECTED
from kvproof.spec.native import Functions, Machine, Sizes, functions

RULES = [rule.__name__ for rule in COLLECTED.rules]
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


def noticed(mutant: Mutant | Weakening) -> str:
    """What the explorer notices of a mutant, in the first scope in which it does; empty if nothing."""
    return next(_noticed(mutant), "")


def _noticed(mutant: Mutant | Weakening) -> Iterator[str]:
    rules = frozenset[str]().union(*(rules_reaching(name) for name in _functions_changed(mutant)))
    for number, scope in enumerate(SCOPES if rules else ()):
        expected = _expected(number)
        if not expected.coverage.keys() & rules:
            continue
        try:
            space = RuleSpace(scope, mutated(mutant, sizes_of(scope)))
            found = explore_specification(scope, seconds=math.inf, max_transitions=TRANSITIONS_MAX, space=space)
        except Exception as error:  # the text as it is raises nothing
            yield f"{type(error).__name__} in {scope}"
            continue
        if found.counterexample is not None:
            broken = found.counterexample
            yield f"{broken.finding.property} breaks after {len(broken.operations)} rules"
        elif found.is_exhausted and _reach(found) != _reach(expected):
            yield f"{found.num_states} states and {found.num_operations} firings instead of {_words(expected)}"


def _reach(found: SearchResult) -> tuple[object, ...]:
    return found.num_states, found.num_operations, {rule: found.coverage[rule] for rule in RULES}


def _words(found: SearchResult) -> str:
    return f"{found.num_states} and {found.num_operations}"


@cache
def _expected(number: int) -> SearchResult:
    """The search of the unchanged text."""
    return explore_specification(SCOPES[number], seconds=math.inf)


@cache
def rules_reaching(function: str) -> frozenset[str]:
    """The rules that are the function or call it, directly or not."""
    text = specification()
    return frozenset(rule.__name__ for rule in COLLECTED.rules if function in reached(text, rule.__name__))


def _functions_changed(mutant: Mutant | Weakening) -> list[str]:
    return [mutant.function] if isinstance(mutant, Mutant) else list(mutant.sources)


@cache
def _text(mutant: Mutant) -> Functions:
    text = functions()
    return {**text, mutant.function: (changed(mutant), text[mutant.function][1])}


def _functions(mutant: Mutant | Weakening) -> Functions:
    if isinstance(mutant, Mutant):
        return _text(mutant)
    text = mutant.text(specification())
    return {name: text.functions[name] for name in functions()}


def mutated(mutant: Mutant | Weakening, sizes: Sizes, with_ghosts: bool = True, with_checks: bool = True) -> Machine:
    """A machine that runs the changed text."""
    return Machine(sizes, with_ghosts, with_checks, _functions(mutant))
