"""What a subject in a process of its own may take: time for a call, and memory."""

import resource
from dataclasses import dataclass
from pathlib import Path

GIB = 1 << 30
CALL_SECONDS_MAX = 3.0
CALL_SECONDS_MIN = 0.5  # under a small budget, still more than a call that is only slow takes
START_SECONDS_MAX = 60.0  # to import an engine
MEMORY_BYTES_MAX = 2 * GIB


@dataclass(frozen=True)
class Limits:
    """call_seconds: for one call. memory_bytes: address space beyond what the subject has when it is made."""

    call_seconds: float = CALL_SECONDS_MAX
    memory_bytes: int = MEMORY_BYTES_MAX
    start_seconds: float = START_SECONDS_MAX

    @staticmethod
    def within(budget_seconds: float | None) -> "Limits":
        """Limits under which a hang is found within the budget."""
        if budget_seconds is None:
            return Limits()
        return Limits(call_seconds=min(CALL_SECONDS_MAX, max(CALL_SECONDS_MIN, budget_seconds / 4)))


def limit_memory(more_bytes: int) -> None:
    """Let this process have so much address space more than it has now."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError):
        return  # a system without /proc; the time limit still holds
    soft = pages * resource.getpagesize() + more_bytes
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
