"""Which property the loop can speak of for a subject, and what a walk must meet, or its claims are empty."""

from collections.abc import Callable

from kvproof.check.oracle import coverage
from kvproof.check.protocol.manager import Capabilities, Unsupported
from kvproof.check.protocol.scheduler import SchedulerConfig, SchedulerSubject
from kvproof.spec.text.properties import ONLY_AT_LOOP_LEVEL

MANAGER_LEVEL = "seen only where the block manager is asked and called by the judge itself"
ONLY_AT_MANAGER_LEVEL = frozenset({"admission-sound", "failed-call-changes-nothing"})


def unsupported(property: str, capabilities: Capabilities) -> str | None:
    """Why nothing can be said of this property with these capabilities; None if something can."""
    if property in ONLY_AT_MANAGER_LEVEL:
        return MANAGER_LEVEL
    return None if property in ONLY_AT_LOOP_LEVEL else coverage.unsupported(property, capabilities)


def hidden(property: str, subject: SchedulerSubject) -> str | None:
    """Why this subject does not show what the property needs; None if it does."""
    if property != "refcount-exact":
        return None
    try:
        subject.open(SchedulerConfig())
        return "the subject shows no refcounts" if subject.observe().refs is None else None
    except Unsupported:
        return None
    except Exception:  # a finding, which is the judge's to make
        return None


WITNESSES: dict[str, Callable[[Capabilities], bool]] = {
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
}


def expected_witnesses(subject: SchedulerSubject) -> dict[str, bool]:
    """Every witness that a long walk of this subject must meet, and those that it need not."""
    return {name: is_expected(subject.capabilities) for name, is_expected in WITNESSES.items()}
