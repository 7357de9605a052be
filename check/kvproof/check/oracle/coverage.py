"""Coverage: which properties a judge can decide for a subject, and which situations a walk of it must reach.

`PROPERTIES` has one row for each property: what the subject must be able to do, or to show, at each level, so that the
property can be decided. If a subject does not have it, the property is unsupported, with the reason of that need; it
never counts as passed. `WITNESSES` names, for each level, the situations that a long walk must reach. A walk that does
not reach them proves nothing.
"""

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kvproof.check.oracle.level import Level
from kvproof.check.protocol.features import capabilities_used
from kvproof.check.protocol.manager import Capabilities, Unsupported
from kvproof.check.protocol.scopes import Scope
from kvproof.spec.language import COLLECTED
from kvproof.spec.text import invariants
from kvproof.spec.text.properties import SENTENCES
from kvproof.spec.texts import RULE_TEXTS

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


def never(reason: str) -> Need:
    """The property cannot be decided for any subject."""
    return Need(lambda facts: False, reason)


NOTHING = Need(lambda facts: True, "")
FORK = Need(lambda facts: facts.can.fork, "the subject cannot fork")
SWAP = Need(lambda facts: facts.can.swap, "the subject cannot swap")
COPIES = Need(lambda facts: facts.can.fork or facts.can.swap, "the subject copies nothing: no fork, no swap")
WINDOW = Need(lambda facts: facts.can.window, "the subject has no sliding window")
CACHE = Need(lambda facts: facts.can.caching, "the subject has no prefix cache")
LRU = Need(lambda facts: facts.can.evicts_lru, "the subject does not declare least-recently-used eviction")
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
SCHEDULER_LEVEL = never("judged only at the scheduler level")
MANAGER_LEVEL = never("judged only at the manager level")
TABLES = never("judged only for subjects with sequences and tables")
REPEATED = never("checked by the walker, and when a finding is replayed")


def _row(need: Need = NOTHING, **by_level: Need) -> dict[str, Need]:
    """A need at the levels of managers and schedulers and in recordings; a pool has no tables; then the exceptions."""
    return {"manager": need, "scheduler": need, RECORDING: need, "pool": TABLES} | by_level


PROPERTIES: dict[str, dict[str, Need]] = {
    "refcount-exact": _row(REFCOUNTS, recording=RECORDED_POOL, pool=REFCOUNTS),
    "no-double-free": _row(pool=NOTHING),
    "no-use-after-free": _row(pool=NOTHING),
    "exclusive-writer": _row(),
    "cow-copied": _row(FORK),
    "read-back": _row(),
    "conservation": _row(pool=NOTHING),
    "no-leak-at-rest": _row(pool=NOTHING),
    "cache-content": _row(CACHE),
    "hit-computed": _row(CACHE, pool=CACHE),
    "hit-complete": _row(CACHE, pool=CACHE),
    "sharing-equal": _row(SHARING, recording=NOTHING, pool=SHARING),
    "evict-unreferenced": _row(CACHE, pool=CACHE),
    "eviction-order": _row(LRU, recording=never("the times at which blocks were used are not recorded")),
    "lists-agree": _row(recording=RECORDED_POOL, pool=NOTHING),
    "in-flight-held": _row(
        SCHEDULER_LEVEL, scheduler=NOTHING, recording=never("a recording does not say when a step ends on the device")
    ),
    "swap-mapping": _row(SWAP),
    "mapping-hazard-free": _row(COPIES),
    "admission-sound": _row(ASKED, scheduler=MANAGER_LEVEL, pool=NOTHING),
    "admission-final": _row(),
    "failed-call-changes-nothing": _row(scheduler=MANAGER_LEVEL, pool=NOTHING),
    "frame-kept": _row(),
    "total-calls": _row(pool=NOTHING),
    "window-kept": _row(WINDOW),
    "budget-kept": _row(
        SCHEDULER_LEVEL,
        scheduler=NOTHING,
        recording=never("budgets belong to the scheduler, and are not in a recording of its manager"),
    ),
    "progress": _row(
        SCHEDULER_LEVEL, scheduler=NOTHING, recording=never("a request that waits leaves no line in a recording")
    ),
    "nondeterministic": _row(REPEATED, recording=never("a recording has every call once"), pool=REPEATED),
}


def unsupported(property: str, level: str, facts: Facts) -> str | None:
    """Why a property cannot be decided; None if it can. level: the name of a level, or `RECORDING`."""
    need = PROPERTIES[property][level]
    return None if need.is_fulfilled(facts) else need.reason


def facts_of(level: Level, subject: Any) -> Facts:
    """The facts about a subject. It is opened in the default configuration, to see whether it reports refcounts."""
    try:
        subject.open(level.config())
        return Facts(subject.capabilities, subject.observe().refs is not None)
    except Unsupported:
        return Facts(subject.capabilities)
    except Exception:  # a finding, which is for the judges to make
        return Facts(subject.capabilities)


def has_meaning(property: str, scope: Scope) -> bool:
    """Whether a search of this scope says anything about a property.

    Only searches of the specification itself have anything in flight.
    """
    if property == "in-flight-held":
        return scope.num_flights > 0
    within = Capabilities(fork=scope.fork, **capabilities_used(scope.config))
    return unsupported(property, "manager", Facts(within)) is None


def properties_of_the_specification() -> frozenset[str]:
    """The properties that an invariant, a theorem or an obligation of a rule of the specification belongs to."""
    claimed = {claim.property for claim in (*COLLECTED.invariants, *COLLECTED.theorems)}
    for text in (*RULE_TEXTS, invariants):
        for node in ast.walk(ast.parse(inspect.getsource(text))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "check":
                claimed |= {str(part.value) for part in node.args[1:] if isinstance(part, ast.Constant)}
    return frozenset(claimed & SENTENCES.keys())


# Other witnesses (such as a copy-on-write into the very last block) are counted too, but some managers rule them out by
# their own caution.
WITNESSES: dict[str, Mapping[str, Callable[[Capabilities], bool]]] = {
    "manager": {
        "admitted": lambda can: True,
        "pool full": lambda can: True,
        "append": lambda can: True,
        "compute": lambda can: True,
        "drop_last": lambda can: True,
        "preempted": lambda can: True,
        "fork": lambda can: can.fork,
        "three holders": lambda can: can.fork or can.caching,
        "copy-on-write": lambda can: can.fork,
        "reserve": lambda can: can.lookahead,
        "slide": lambda can: can.window,
        "hit past a window": lambda can: can.window_with_caching and can.window and can.caching,
        "promote": lambda can: can.caching,
        "mark_computed": lambda can: can.caching,
        "hit": lambda can: can.caching,
        "hit on an evictable block": lambda can: can.caching,
        "evict": lambda can: can.caching,
        "eviction with a choice": lambda can: can.evicts_lru,
        "reset": lambda can: can.reset and can.caching,
        "begin_swap": lambda can: can.swap,
        "move_entry": lambda can: can.swap,
        "end_swap": lambda can: can.swap,
    },
    "scheduler": {
        "admitted": lambda can: True,
        "finished": lambda can: True,
        "pool full": lambda can: True,
        "preempted": lambda can: True,
        "ignored while waiting": lambda can: True,
        "aborted while waiting": lambda can: can.aborts,
        "aborted while running": lambda can: can.aborts,
        "aborted in flight": lambda can: can.aborts,
        "load": lambda can: can.transfers,
        "loaded in vain": lambda can: can.transfers,
        "send": lambda can: can.transfers,
        "scheduled while another is under way": lambda can: can.async_steps > 0,
        "token dropped": lambda can: can.runs_ahead,
        "forked by itself": lambda can: can.forks_itself,
        "forked, and waits": lambda can: can.forks_itself,
        "aborted while swapped": lambda can: can.swap and can.aborts,
        "swap_out": lambda can: can.swap,
        "swap_in": lambda can: can.swap,
        "swap in beside others": lambda can: can.swap,
        "prompt in chunks": lambda can: can.chunked,
        "aborted within its prompt": lambda can: can.chunked and can.aborts,
        "decodes and chunks in one step": lambda can: can.chunked,
        "fork": lambda can: can.fork,
        "copy-on-write": lambda can: can.fork,
        "three holders": lambda can: can.fork or can.caching,
        "reserve": lambda can: can.lookahead,
        "slide": lambda can: can.window,
        "hit": lambda can: can.caching,
        "hit on an evictable block": lambda can: can.caching,
        "evict": lambda can: can.caching,
        "cross-attention table": lambda can: can.cross,
    },
    "pool": {
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
    },
}


def expected_witnesses(level: str, capabilities: Capabilities) -> dict[str, bool]:
    """The witnesses of a level, each with whether a long walk of a subject with these capabilities must reach it."""
    return {name: is_expected(capabilities) for name, is_expected in WITNESSES[level].items()}
