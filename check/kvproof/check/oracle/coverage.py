"""Coverage: which properties a judge can decide for a subject.

`PROPERTIES` has one row for each property: what the subject must be able to do, or to show, so that the property can be
decided, at the levels whose subjects have sequences and tables and in recordings. A row may name any other level; a
level without an entry has its own needs (`Level.needs`). If a subject does not have what a property needs, the property
is unsupported, with the reason of that need; it never counts as passed.
"""

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass

from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.features import capabilities_used
from kvproof.check.protocol.own_property import OWN_PROPERTY
from kvproof.check.protocol.scopes import Scope
from kvproof.spec.systems import BLOCK_MANAGERS, System
from kvproof.spec.text.properties import MEANINGS

RECORDING = "recording"  # a recording of a manager, judged line by line: beside the levels, a place with its own needs


@dataclass(frozen=True)
class Facts:
    """Facts about a subject or a recording: its capabilities, and whether it reports refcounts."""

    can: Capabilities
    shows_refcounts: bool = True


@dataclass(frozen=True)
class Need:
    """A condition on a subject. reason: what a report says about a property if the subject does not fulfil it."""

    is_fulfilled: Callable[[Facts], bool]
    reason: str

    def unfulfilled(self, facts: Facts) -> str | None:
        """The reason why a property is unsupported; None if it can be decided."""
        return None if self.is_fulfilled(facts) else self.reason


def never(reason: str) -> Need:
    """The property cannot be decided for any subject."""
    return Need(lambda facts: False, reason)


NOTHING = Need(lambda facts: True, "")
FORK = Need(lambda facts: facts.can.fork, "the subject cannot fork")
SWAP = Need(lambda facts: facts.can.swap, "the subject cannot swap")
COPIES = Need(lambda facts: facts.can.fork or facts.can.swap, "the subject copies nothing: no fork, no swap")
WINDOW = Need(
    lambda facts: facts.can.window or facts.can.local_attention, "the subject has no sliding window, no local attention"
)
CACHE = Need(lambda facts: facts.can.caching, "the subject has no prefix cache")
HITS = Need(
    lambda facts: facts.can.caching and facts.can.lost_hits is not None,
    "the subject does not declare how many blocks of a cached prefix a look-up may miss",
)
COMPUTES_LAST = Need(
    lambda facts: facts.can.caching and not facts.can.hits_whole_prompts,
    "the subject has no prefix cache, or declares that a hit can have a whole prompt",
)
LOST_HITS = Need(
    lambda facts: facts.can.lost_hits is not None, "the subject does not declare that a look-up finds all that is there"
)
REFUSALS = Need(
    lambda facts: facts.can.refusal_slack is not None or facts.can.stores_what_fits,
    "the subject does not declare that it refuses only if it must",
)
REMOTE_LOADS = Need(
    lambda facts: facts.can.leases and facts.can.remote_loads, "the subject has no leases that may run out under a load"
)
ENDS_LEASES = Need(
    lambda facts: facts.can.leases and facts.can.ends_leases, "the subject may keep what a lease held that has run out"
)
COPIES_ALL = Need(
    lambda facts: facts.can.copies_all, "the subject does not declare that all it stores is copied to a lower tier"
)
EXACT = Need(
    lambda facts: facts.can.refusal_slack is not None, "the subject does not declare how exact its refusals are"
)
EVICTION = Need(lambda facts: bool(facts.can.eviction), "the subject does not declare what it evicts first")
SHARING = Need(
    lambda facts: facts.can.caching or facts.can.fork, "the subject shares nothing: no fork, no prefix cache"
)
ASKED = Need(
    lambda facts: facts.can.has_admission_query, "the subject is not asked before a call; it refuses the call itself"
)
REFCOUNTS = Need(lambda facts: facts.shows_refcounts, "the subject shows no refcounts")
RECORDED_POOL = Need(
    lambda facts: facts.shows_refcounts,
    "refcounts and free lists are not in this recording (record with shows_pool=True)",
)
IN_ORDER = Need(
    lambda facts: facts.can.num_overtaken_max is not None or bool(facts.can.policies) or facts.can.preempts_last,
    "the subject does not declare in which order it lets requests in or takes their blocks",
)
SERVES_RUNNING = Need(
    lambda facts: facts.can.serves_running and facts.can.refusal_slack is not None,
    "the subject does not declare that all who run are in each step that has room for them",
)
PREEMPTS_AS_SET = Need(
    lambda facts: facts.can.preempts_as_set,
    "the subject does not declare what becomes of a request that loses its blocks",
)
DELIVERS = Need(lambda facts: facts.can.reports_tokens, "the subject does not report which tokens users get")
CONNECTOR = Need(
    lambda facts: bool(facts.can.connectors),
    "judged at the store level, and for schedulers with a connector of their own to host memory",
)
CONNECTOR_OR_IMAGES = Need(
    lambda facts: bool(facts.can.connectors) or facts.can.encodes_images,
    "judged at the store level, and for schedulers with a connector of their own or with outputs of images",
)
SCHEDULER_LEVEL = never("judged only at the scheduler level")
MANAGER_LEVEL = never("judged only at the manager level")
STORE_LEVEL = never("judged only at the store level")
POOL_LEVEL = never("judged only at the pool level")
BLOCK_EVENTS = Need(
    lambda facts: facts.can.caching and facts.can.block_events, "the subject does not report what it caches"
)
EVENTS = Need(
    lambda facts: facts.can.caching and facts.can.events and facts.can.lost_hits == 0,
    "the subject does not report what it caches, or may forget some of it (`lost_hits`)",
)
OWN = Need(lambda facts: bool(facts.can.own_property), "the subject states no property of its own")
REPEATED = never("checked by the walker, and when a finding is replayed")


def _row(need: Need = NOTHING, **by_level: Need) -> dict[str, Need]:
    """A need at the levels of managers and schedulers and in recordings, and then the exceptions."""
    return {"manager": need, "scheduler": need, RECORDING: need} | by_level


OF_STORES = (
    "hit-written",
    "promise-kept",
    "pin-own",
    "one-writer",
    "arrived-whole",
    "abort-unseen",
    "source-held",
    "void-told",
    "lease-ends",
    "completion-commutes",
    "refusal-needed",
    "tiers-agree",
    "groups-agree",
)
OF_CONNECTORS = ("hit-written", "one-writer", "arrived-whole", "source-held")  # also where a scheduler has one
PROPERTIES: dict[str, dict[str, Need]] = {
    "refcount-exact": _row(REFCOUNTS, recording=RECORDED_POOL),
    "no-double-free": _row(),
    "no-use-after-free": _row(),
    "exclusive-writer": _row(),
    "cow-copied": _row(FORK),
    "read-back": _row(),
    "conservation": _row(),
    "no-leak-at-rest": _row(),
    "cache-content": _row(CACHE),
    "hit-computed": _row(CACHE),
    "hit-complete": _row(CACHE),
    "hit-found": _row(HITS),
    "token-left": _row(
        COMPUTES_LAST,
        scheduler=CACHE,
        recording=never("in a recording the engine decides what it computes of a prompt that is hit"),
    ),
    "sharing-equal": _row(SHARING, recording=NOTHING),
    "evict-unreferenced": _row(CACHE),
    "eviction-order": _row(EVICTION, recording=never("the times at which blocks were used are not recorded")),
    "lists-agree": _row(recording=RECORDED_POOL),
    "in-flight-held": _row(
        SCHEDULER_LEVEL, scheduler=NOTHING, recording=never("a recording does not say when a step ends on the device")
    ),
    "swap-mapping": _row(SWAP),
    "mapping-hazard-free": _row(COPIES),
    "admission-sound": _row(ASKED),
    "admission-final": _row(),
    "admission-exact": _row(EXACT),
    "failed-call-changes-nothing": _row(scheduler=MANAGER_LEVEL),
    "frame-kept": _row(),
    "total-calls": _row(),
    "window-kept": _row(WINDOW),
    "budget-kept": _row(
        SCHEDULER_LEVEL,
        scheduler=NOTHING,
        recording=never("budgets belong to the scheduler, and are not in a recording of its manager"),
    ),
    "progress": _row(
        SCHEDULER_LEVEL, scheduler=NOTHING, recording=never("a request that waits leaves no line in a recording")
    ),
    "running-served": _row(
        SCHEDULER_LEVEL, scheduler=SERVES_RUNNING, recording=never("steps of a scheduler are not in a recording")
    ),
    "preempted-as-set": _row(
        SCHEDULER_LEVEL, scheduler=PREEMPTS_AS_SET, recording=never("steps of a scheduler are not in a recording")
    ),
    "tokens-delivered": _row(
        SCHEDULER_LEVEL, scheduler=DELIVERS, recording=never("what users get is not in a recording")
    ),
    "arrival-order": _row(
        SCHEDULER_LEVEL, scheduler=IN_ORDER, recording=never("a request that waits leaves no line in a recording")
    ),
    **{name: _row(STORE_LEVEL, scheduler=CONNECTOR if name in OF_CONNECTORS else STORE_LEVEL) for name in OF_STORES},
    "hit-written": _row(STORE_LEVEL, scheduler=CONNECTOR_OR_IMAGES),
    "events-agree": _row(BLOCK_EVENTS, recording=never("the events of a cache are not recorded")),
    "nondeterministic": _row(REPEATED, recording=never("a recording has every call once")),
}


def has_meaning(property: str, scope: Scope) -> bool:
    """Whether a search of this scope says anything about a property.

    Only searches of the specification itself have anything in flight.
    """
    if property == OWN_PROPERTY:
        return True
    if property == "in-flight-held":
        return scope.num_flights > 0
    within = Capabilities(fork=scope.fork, **capabilities_used(scope.config))
    return PROPERTIES[property]["manager"].is_fulfilled(Facts(within))


def properties_of_the_specification(system: System = BLOCK_MANAGERS) -> frozenset[str]:
    """The properties that an invariant, a theorem or an obligation of a rule of a specification belongs to."""
    claimed = {claim.property for claim in (*system.collected.invariants, *system.collected.theorems)}
    for text in system.texts:
        for node in ast.walk(ast.parse(inspect.getsource(text))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "check":
                claimed |= {str(part.value) for part in node.args[1:] if isinstance(part, ast.Constant)}
    return frozenset(claimed & MEANINGS.keys())
