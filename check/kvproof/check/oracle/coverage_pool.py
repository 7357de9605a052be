"""Which property can be spoken of at pool level, and what a walk of a pool must meet, or its claims are empty."""

from collections.abc import Callable

from kvproof.check.oracle import coverage
from kvproof.check.protocol.manager import Capabilities, Unsupported
from kvproof.check.protocol.pool import PoolConfig, PoolSubject

TABLES = "seen only where there are sequences and tables"
NOT_REPEATED = coverage.NOT_REPEATED
AT_POOL_LEVEL = frozenset(
    {
        "refcount-exact",
        "no-double-free",
        "no-use-after-free",
        "conservation",
        "no-leak-at-rest",
        "hit-computed",
        "hit-complete",
        "sharing-equal",
        "evict-unreferenced",
        "lists-agree",
        "admission-sound",
        "failed-call-changes-nothing",
        "total-calls",
    }
)
NEEDS_CACHE = frozenset({"hit-computed", "hit-complete", "evict-unreferenced"})


def unsupported(property: str, subject: PoolSubject) -> str | None:
    """Why nothing can be said of this property of this pool; None if something can."""
    can = subject.capabilities
    if property == "nondeterministic":
        return NOT_REPEATED
    if property not in AT_POOL_LEVEL:
        return TABLES
    if property in NEEDS_CACHE and not can.caching:
        return "the subject has no prefix cache"
    if property == "sharing-equal" and not (can.caching or can.fork):
        return "the subject shares nothing: no fork, no prefix cache"
    return _hidden(subject) if property == "refcount-exact" else None


def _hidden(subject: PoolSubject) -> str | None:
    try:
        subject.open(PoolConfig())
        return "the subject shows no refcounts" if subject.observe().refs is None else None
    except Unsupported:
        return None
    except Exception:  # a finding, which is the judge's to make
        return None


WITNESSES: dict[str, Callable[[Capabilities], bool]] = {
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
}


def expected_witnesses(subject: PoolSubject) -> dict[str, bool]:
    """Every witness that a long walk of this pool must meet, and those that it need not."""
    return {name: is_expected(subject.capabilities) for name, is_expected in WITNESSES.items()}
