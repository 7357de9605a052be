"""Write files atomically: if the run is killed or the disk is full, the file is complete or unchanged."""

import os
from contextlib import suppress
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the content of the file by `data`, or leave it unchanged. Raises OSError.

    A path that is not a regular file (a pipe, /dev/stdout) cannot be replaced; the data is written into it.
    """
    target = Path(os.path.realpath(path))
    if path.is_relative_to("/dev") or (target.exists() and not target.is_file()):
        path.write_bytes(data)
        return
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        draft.write_bytes(data)
        os.replace(draft, target)
    except BaseException:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
