"""The folder of the user in which kvproof keeps what it can make again, such as compiled libraries."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/kvproof, or ~/.cache/kvproof. Raises RuntimeError if the user has no home.

    Source: XDG Base Directory Specification, which has relative paths ignored.
    """
    root = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if os.path.isabs(root) else Path.home() / ".cache") / "kvproof"
