"""A tier that mirrors another one: the worker that has the bytes of what a manager above it counts as cached.

The manager decides what is cached, and reports what it has evicted; the worker removes what is reported, and adds what
it computes. Between two steps the worker has exactly what is cached: a key that is cached and not there would be read
in vain, and one that is there and not cached takes memory that the manager gives to others.
"""

from kvproof.spec.language import predicate
from kvproof.spec.store.domains import KEYS
from kvproof.spec.store.state import StoreState, is_resident


@predicate
def may_go(state: StoreState, above: int, key: int) -> bool:
    """The tier below may lose the key: the tier above does not count it as cached."""
    return not is_resident(state, above, key)


@predicate
def must_go(state: StoreState, above: int, below: int, key: int) -> bool:
    """The tier below has a key that is not cached any more, and waits for its report."""
    return is_resident(state, below, key) and may_go(state, above, key)


@predicate
def must_come(state: StoreState, above: int, below: int, key: int) -> bool:
    """The tier below lacks a key that is cached, and has to compute it."""
    return not is_resident(state, below, key) and not may_go(state, above, key)


@predicate
def mirrors(state: StoreState, above: int, below: int) -> bool:
    """The tier below has exactly what the tier above counts as cached."""
    return all(not must_go(state, above, below, k) and not must_come(state, above, below, k) for k in KEYS)
