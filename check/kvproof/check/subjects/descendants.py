"""No process is left behind: what a subject starts ends with its run, however the run ends.

A subject may start processes that leave its process group and its session, as daemons do. On Linux the fork server asks
to become the parent of every descendant whose own parent has ended, so it can see and end them; and each fork asks to
end with the fork server. Elsewhere only process groups are ended.
"""

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # of linux/prctl.h


def _prctl(option: int, argument: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(argument), 0, 0, 0)


def adopt_descendants() -> None:
    """Let this process become the parent of each descendant whose own parent ends."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_with(parent: int) -> None:
    """Let this process be killed when its parent ends. parent: the parent's id, before this process was forked."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended in between
        os._exit(0)


def children() -> set[int]:
    """The ids of the children of this process, of which the ended ones have not been waited for."""
    found: set[int] = set()
    with suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            found.update(int(pid) for pid in (task / "children").read_text().split())
    return found


def end_children() -> None:
    """Kill the children of this process, and those that they leave to it, until there are none."""
    while strays := children():
        for pid in strays:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
