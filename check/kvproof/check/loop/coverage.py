"""What a walk of the loop must meet, or its claims are empty: each with what the subject must be able to do for it."""

from collections.abc import Callable

from kvproof.check.loop.subject import LoopSubject
from kvproof.check.subject import Capabilities

WITNESSES: dict[str, Callable[[Capabilities], bool]] = {
    "admitted": lambda can: True,
    "finished": lambda can: True,
    "pool full": lambda can: True,
    "preempted": lambda can: True,
    "ignored while waiting": lambda can: True,
    "aborted while waiting": lambda can: True,
    "aborted while running": lambda can: True,
    "aborted in flight": lambda can: True,
    "aborted while swapped": lambda can: can.swap,
    "swap_out": lambda can: can.swap,
    "swap_in": lambda can: can.swap,
    "swap in beside others": lambda can: can.swap,
    "prompt in chunks": lambda can: can.chunked,
    "aborted within its prompt": lambda can: can.chunked,
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


def expected_witnesses(subject: LoopSubject) -> dict[str, bool]:
    """Every witness that a long walk of this subject must meet, and those that it need not."""
    return {name: is_expected(subject.capabilities) for name, is_expected in WITNESSES.items()}
