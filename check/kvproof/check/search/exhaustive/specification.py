"""Every reachable state of a scope, on the specification alone.

A breadth-first search over canonical states. In each new state every claim is evaluated and the references are counted
again; every transition evaluates the obligations of its rules. A rule that never fired and a witness that was never
observed show that a scope covers less than it seems to.
"""

import gc
from collections.abc import Callable

from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.exhaustive.breadth_first import search
from kvproof.check.search.exhaustive.specification_calls import CallSpace
from kvproof.check.search.exhaustive.specification_rules import RuleSpace
from kvproof.check.search.exhaustive.specification_space import Continuations, note_claims
from kvproof.check.search.result import UNLIMITED, SearchResult
from kvproof.spec.syntax_trees import Functions

PROGRESS_EVERY = 500  # states


def space_of(
    scope: Scope, continuations: Continuations | None = None, text: Functions | None = None
) -> RuleSpace | CallSpace:
    """The space in which a scope is searched: single rules, or whole calls.

    text: other rules than those of the specification.
    """
    if scope.level == "rules":
        return RuleSpace(scope, None, continuations, text)
    return CallSpace(scope, None, continuations, text)


def explore_specification(
    scope: Scope,
    *,
    seconds: float,
    max_transitions: int = UNLIMITED,
    progress: Callable[[int], None] | None = None,
    space: RuleSpace | CallSpace | None = None,
) -> SearchResult:
    """Search a scope for at most so many seconds and transitions.

    progress: called with the number of states now and then. space: the states to search, if not those of the
    specification as it is.
    """
    space = space or space_of(scope)
    is_collecting = gc.isenabled()
    # Nothing here is cyclic, and millions of small tuples live on: the collector of cycles would only visit them again.
    gc.disable()
    try:
        found = search(
            space,
            scope.config,
            seconds=seconds,
            max_transitions=max_transitions,
            progress=progress,
            progress_every=PROGRESS_EVERY,
        )
        found.coverage = space.firings.fired + space.firings.witnesses
        note_claims(found, space.claims.are_asked)
        if space.reads_left_out:
            found.is_exhausted, found.text = False, space.reads_left_out
    finally:
        if is_collecting:
            gc.enable()
    return found
