"""Main memory that this process can still take: what the system has available, and what its limits leave.

A limit may be set by a control group, the process's own or one above it, in either version of their interface, or by
`ulimit -v` on addresses. A group is charged for files that the system keeps cached, too; what of them was not used of
late is given back when memory is asked for, so it counts as free.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from .errors import InvalidValueError

MEMINFO, STATUS = Path("/proc/meminfo"), Path("/proc/self/status")
CONTROL_GROUPS, OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
# Of each version: where its groups are mounted, the limit, what is used, and what of it is files not used of late.
_VERSION_2 = (Path(), "memory.max", "memory.current", "inactive_file")
_VERSION_1 = (Path("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def available_bytes() -> int:
    """The least that any of them leaves, never below 0."""
    return max(0, min([bytes_of(MEMINFO, "MemAvailable"), *_left_by_groups(), *_left_of_addresses()]))


def bytes_of(path: Path, name: str) -> int:
    """The bytes of a line such as `VmRSS:  1234 kB`."""
    for line in path.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise InvalidValueError("path", str(path), f"it must have a line {name}")


def _left_by_groups() -> Iterator[int]:
    """What each limited group leaves: the process's own, and those above it."""
    for (mount, limit, used, cached), group in _groups():
        top = CONTROL_GROUPS / mount
        for folder in (top / group, *(top / group).parents):
            if not folder.is_relative_to(top):
                break
            with suppress(OSError, ValueError):  # no such file, or no limit but the word "max"
                left = int((folder / limit).read_text()) - int((folder / used).read_text())
                yield left + _counted(folder / "memory.stat", cached)


def _groups() -> Iterator[tuple[tuple[Path, str, str, str], str]]:
    """The process's group of each version, relative to its mount. In a container the mount itself may be the group."""
    try:
        lines = OWN_GROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if not controllers or "memory" in controllers.split(","):
            yield _VERSION_1 if controllers else _VERSION_2, group.lstrip("/")


def _counted(path: Path, name: str) -> int:
    """The number of a line such as `inactive_file 4096`; 0 without one."""
    with suppress(OSError, ValueError):
        return next((int(line.split()[1]) for line in path.read_text().splitlines() if line.startswith(f"{name} ")), 0)
    return 0


def _left_of_addresses() -> Iterator[int]:
    """What `ulimit -v` leaves, where there is such a limit."""
    with suppress(ImportError, OSError):
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            yield limit - bytes_of(STATUS, "VmSize")
