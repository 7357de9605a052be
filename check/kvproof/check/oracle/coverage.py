"""Which property a judge can speak of for a subject; what it cannot speak of is unsupported, with the reason."""

import ast
import inspect
from collections.abc import Callable

from kvproof.check.protocol.features import capabilities_used
from kvproof.check.protocol.manager import Capabilities, Config, ManagerSubject, Unsupported
from kvproof.check.protocol.scopes import Scope
from kvproof.spec.language import COLLECTED
from kvproof.spec.text import invariants
from kvproof.spec.text.properties import ONLY_AT_LOOP_LEVEL, SENTENCES
from kvproof.spec.texts import RULE_TEXTS

Can = Callable[[Capabilities], bool]

# What a manager must be able to do for the property to have a meaning. A property that is not here always has one.
NEEDS: dict[str, tuple[Can, str]] = {
    "cow-copied": (lambda can: can.fork, "the subject cannot fork"),
    "mapping-hazard-free": (lambda can: can.fork or can.swap, "the subject copies nothing: no fork, no swap"),
    "swap-mapping": (lambda can: can.swap, "the subject cannot swap"),
    "window-kept": (lambda can: can.window, "the subject has no sliding window"),
    "cache-content": (lambda can: can.caching, "the subject has no prefix cache"),
    "hit-computed": (lambda can: can.caching, "the subject has no prefix cache"),
    "hit-complete": (lambda can: can.caching, "the subject has no prefix cache"),
    "evict-unreferenced": (lambda can: can.caching, "the subject has no prefix cache"),
    "eviction-order": (lambda can: can.evicts_lru, "the subject does not declare this policy"),
    "sharing-equal": (lambda can: can.caching or can.fork, "the subject shares nothing: no fork, no prefix cache"),
    "admission-sound": (lambda can: can.has_admission_query, "the subject is not asked before a call; it refuses"),
}

LOOP_LEVEL = "seen only where a whole scheduler is driven"
NOT_REPEATED = "looked at by the walker, and when a finding is replayed"


def unsupported(property: str, capabilities: Capabilities) -> str | None:
    """Why nothing can be said of this property at manager level with these capabilities; None if something can."""
    if property in ONLY_AT_LOOP_LEVEL:
        return LOOP_LEVEL
    if property == "nondeterministic":
        return NOT_REPEATED
    if property in NEEDS:
        is_met, reason = NEEDS[property]
        return None if is_met(capabilities) else reason
    return None


def within(scope: Scope) -> Capabilities:
    """The capabilities that the runs of a scope use."""
    return Capabilities(fork=scope.fork, **capabilities_used(scope.config))


def has_meaning(property: str, scope: Scope) -> bool:
    """Whether a scope says anything of a property; of what is in flight only the specification does so far."""
    return scope.num_flights > 0 if property == "in-flight-held" else unsupported(property, within(scope)) is None


def hidden(subject: ManagerSubject) -> dict[str, str]:
    """Properties that need what this subject does not show, with the reason."""
    try:
        subject.open(Config())
        seen = subject.observe()
    except Unsupported:
        return {}
    except Exception:  # a finding, which is the judges' to make
        return {}
    return {"refcount-exact": "the subject shows no refcounts"} if seen.refs is None else {}


def properties_of_the_specification() -> frozenset[str]:
    """Those that an invariant, a theorem or an obligation of a rule belongs to."""
    claimed = {claim.property for claim in (*COLLECTED.invariants, *COLLECTED.theorems)}
    for text in (*RULE_TEXTS, invariants):
        for node in ast.walk(ast.parse(inspect.getsource(text))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "check":
                claimed |= {str(part.value) for part in node.args[1:] if isinstance(part, ast.Constant)}
    return frozenset(claimed & SENTENCES.keys())


# What a walk must meet, or its claims are empty: each with what the subject must be able to do for it. Other witnesses
# (a copy-on-write into the very last block) are counted, but some managers rule them out by their own caution.
WITNESSES: dict[str, Can] = {
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
}


def expected_witnesses(subject: ManagerSubject) -> dict[str, bool]:
    """Every witness that a long walk of this subject must meet, and those that it need not."""
    return {name: is_expected(subject.capabilities) for name, is_expected in WITNESSES.items()}
