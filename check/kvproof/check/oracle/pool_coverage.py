"""What a long walk of a block pool must reach, and what each property needs of it."""

from collections.abc import Callable, Mapping

from kvproof.check.oracle.coverage import CACHE, EVENTS, EVICTION, HITS, NOTHING, REFCOUNTS, REPEATED, SHARING, Need
from kvproof.check.protocol.capabilities import Capabilities

POOL_WITNESSES: Mapping[str, Callable[[Capabilities], bool]] = {
    "reserve": lambda can: True,
    "append": lambda can: True,
    "drop_last": lambda can: True,
    "pool full": lambda can: True,
    "refused": lambda can: True,
    "fork": lambda can: can.fork,
    "a block twice in one call": lambda can: can.fork or can.caching,
    "three holders": lambda can: can.fork or can.caching,
    "hit": lambda can: can.caching,
    "hit on an evictable block": lambda can: can.caching,
    "evict": lambda can: can.caching,
    "reset": lambda can: can.caching and can.reset,
    "given up twice": lambda can: can.ignores_double_free,
    "a content in two blocks": lambda can: can.events and can.caching and can.lost_hits == 0,
}
POOL_NEEDS: Mapping[str, Need] = {
    "refcount-exact": REFCOUNTS,
    "no-double-free": NOTHING,
    "no-use-after-free": NOTHING,
    "conservation": NOTHING,
    "no-leak-at-rest": NOTHING,
    "hit-computed": CACHE,
    "hit-complete": CACHE,
    "hit-found": HITS,
    "sharing-equal": SHARING,
    "evict-unreferenced": CACHE,
    "eviction-order": EVICTION,
    "events-agree": EVENTS,
    "lists-agree": NOTHING,
    "admission-sound": NOTHING,
    "failed-call-changes-nothing": NOTHING,
    "total-calls": NOTHING,
    "nondeterministic": REPEATED,
}
