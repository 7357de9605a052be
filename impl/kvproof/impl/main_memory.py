"""The main memory that this process can still take: what the system has available, and what its limits leave.

A limit is set by a control group, that of the process or one above it, in version 1 or 2 of the interface, or by
`ulimit -v` on addresses. A group is also charged for files that the system keeps in its cache. Those that were not used
recently are dropped when memory is needed, so they count as free.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from .errors import InvalidValueError

MEMINFO, STATUS = Path("/proc/meminfo"), Path("/proc/self/status")
CONTROL_GROUPS, OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
# For each version: its mount point, and the files with the limit, the use, and the part of it that can be dropped.
_VERSION_2 = (Path(), "memory.max", "memory.current", "inactive_file")
_VERSION_1 = (Path("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def available_bytes() -> int:
    """Number of bytes: the smallest that any limit leaves, at least 0."""
    return max(0, min([bytes_of(MEMINFO, "MemAvailable"), *_left_by_groups(), *_left_of_addresses()]))


def bytes_of(path: Path, name: str) -> int:
    """Return the bytes of a line such as `VmRSS:  1234 kB`. Raises InvalidValueError if the file has no such line."""
    for line in path.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise InvalidValueError("path", str(path), f"it must have a line {name}")


def _left_by_groups() -> Iterator[int]:
    """Yield what each limited group leaves: that of the process, and those above it."""
    for (mount, limit, used, cached), group in _groups():
        top = CONTROL_GROUPS / mount
        for folder in (top / group, *(top / group).parents):
            if not folder.is_relative_to(top):
                break
            with suppress(OSError, ValueError):  # no such file, or no limit but the word "max"
                left = int((folder / limit).read_text()) - int((folder / used).read_text())
                yield left + _counted(folder / "memory.stat", cached)


def _groups() -> Iterator[tuple[tuple[Path, str, str, str], str]]:
    """Yield the group of the process in each version, relative to its mount; in a container that can be the mount."""
    try:
        lines = OWN_GROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if not controllers or "memory" in controllers.split(","):
            yield _VERSION_1 if controllers else _VERSION_2, group.lstrip("/")


def _counted(path: Path, name: str) -> int:
    """Return the number of a line such as `inactive_file 4096`; 0 if there is no such line."""
    with suppress(OSError, ValueError):
        return next((int(line.split()[1]) for line in path.read_text().splitlines() if line.startswith(f"{name} ")), 0)
    return 0


def _left_of_addresses() -> Iterator[int]:
    """Yield what `ulimit -v` leaves, if there is such a limit."""
    with suppress(ImportError, OSError):
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            yield limit - bytes_of(STATUS, "VmSize")
