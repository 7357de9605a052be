"""The processor time of a run: of this process, and of every process that it started.

The speed of a run is its operations per second of processor time. The time on the clock also contains what other
programs of the machine used.
"""

import os
from contextlib import suppress
from pathlib import Path

TASKS_MAX = 4096  # looked at; a subject may start processes without end


def processor_seconds() -> float:
    """The processor time in seconds so far, of this process, its ended children, and its living descendants.

    The living ones count only where there is /proc (Linux). Source: proc(5), /proc/pid/stat, values 14 to 17.
    """
    own = os.times()
    living = sum(_ticks_of(pid) for pid in _descendants())
    return own.user + own.system + own.children_user + own.children_system + living / os.sysconf("SC_CLK_TCK")


def _descendants() -> list[str]:
    """The ids of the living descendants of this process; none without /proc."""
    found: list[str] = []
    left = ["self"]
    while left and len(found) < TASKS_MAX:
        with suppress(OSError):  # the process has ended
            for task in Path("/proc", left.pop(), "task").iterdir():
                children = (task / "children").read_text().split()
                found += children
                left += children
    return found


def _ticks_of(pid: str) -> int:
    """What a process and its ended children have used, in ticks of the clock; 0 if it has ended."""
    with suppress(OSError, ValueError, IndexError):
        values = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()  # from the third value on
        return sum(int(value) for value in values[11:15])
    return 0
