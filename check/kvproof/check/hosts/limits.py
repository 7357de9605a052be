"""The limits of a subject in a separate process: time for a call, and memory."""

import resource
from dataclasses import dataclass
from pathlib import Path

GIB = 1 << 30
CALL_SECONDS_MAX = 3.0
CALL_SECONDS_MIN = 0.5  # with a small budget; more than a slow call takes
START_SECONDS_MAX = 60.0  # to import an engine
MEMORY_BYTES_MAX = 2 * GIB


@dataclass(frozen=True)
class Limits:
    """call_seconds: for one call. start_seconds: to create the subject. memory_bytes: address space that a subject may
    use in addition to what it has after its creation; of a program behind a pipe, the main memory that it uses."""

    call_seconds: float = CALL_SECONDS_MAX
    memory_bytes: int = MEMORY_BYTES_MAX
    start_seconds: float = START_SECONDS_MAX

    @staticmethod
    def within(budget_seconds: float | None) -> "Limits":
        """Limits with which a hang is detected within the budget."""
        if budget_seconds is None:
            return Limits()
        return Limits(call_seconds=min(CALL_SECONDS_MAX, max(CALL_SECONDS_MIN, budget_seconds / 4)))


def limit_memory(more_bytes: int) -> None:
    """Limit the address space of this process to what it has now plus `more_bytes`."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError):
        return  # on a system without /proc only the time limit applies
    soft = pages * resource.getpagesize() + more_bytes
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
