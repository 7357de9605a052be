"""The folder of the user in which kvproof keeps what it can make again, such as compiled libraries."""

import os
import stat
from pathlib import Path


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/kvproof, or ~/.cache/kvproof. Raises RuntimeError if the user has no home.

    Source: XDG Base Directory Specification, which has relative paths ignored.
    """
    root = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if os.path.isabs(root) else Path.home() / ".cache") / "kvproof"


def require_private(path: Path) -> None:
    """Require that a file or folder is the user's, and that nobody else can write to it.

    Who can write there could change what kvproof trusts or runs. Raises PermissionError, or OSError if there is none.
    """
    status = path.stat()
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(
            f"{path} belongs to another user, or others can write to it; "
            "remove it, or set XDG_CACHE_HOME to a folder that is yours alone"
        )
