"""Whether somebody still writes to a recording.

A file is locked for as long as lines may follow. The lock ends with its process, however that ends.
"""

import fcntl
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def lock(file: int) -> None:
    """Say that lines may follow. The lock ends when every copy of the descriptor is closed."""
    with suppress(OSError):  # a file system without locks
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_locked(file: int) -> bool:
    """Whether somebody else may write further lines to the file."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def wait_until_written(paths: Iterable[Path]) -> None:
    """Wait until nobody writes to these recordings any more."""
    for path in paths:
        with suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
