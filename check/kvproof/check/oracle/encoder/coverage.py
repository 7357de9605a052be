"""What a long walk of a cache of encoder outputs must reach, and what each property needs of the cache."""

from collections.abc import Callable, Mapping

from kvproof.check.oracle.coverage import EVICTION, LOST_HITS, NOTHING, REFCOUNTS, REFUSALS, REPEATED, Need
from kvproof.check.protocol.capabilities import Capabilities

ENCODER_WITNESSES: Mapping[str, Callable[[Capabilities], bool]] = {
    "taken": lambda can: True,
    "hit": lambda can: True,
    "hit on an unreferenced output": lambda can: can.lost_hits == 0,
    "evicted": lambda can: True,
    "eviction with a choice": lambda can: bool(can.eviction),
    "taken in the step that evicted it": lambda can: True,
    "pool full": lambda can: True,
    "refused": lambda can: True,
    "refused for the budget": lambda can: True,
    "an image twice in a request": lambda can: True,
    "read": lambda can: True,
    "preempted in the step that takes": lambda can: True,
    "ended with references": lambda can: True,
    "reported": lambda can: True,
    "forgot": lambda can: can.reset,
}
ENCODER_NEEDS: Mapping[str, Need] = {
    "refcount-exact": REFCOUNTS,
    "conservation": NOTHING,
    "no-leak-at-rest": NOTHING,
    "hit-complete": NOTHING,
    "hit-found": LOST_HITS,
    "hit-written": NOTHING,
    "evict-unreferenced": NOTHING,
    "eviction-order": EVICTION,
    "admission-sound": NOTHING,
    "refusal-needed": REFUSALS,
    "frame-kept": NOTHING,
    "events-agree": NOTHING,
    "total-calls": NOTHING,
    "nondeterministic": REPEATED,
}
