"""Files that are whole or not there: a run may be killed, or a disk full, while one is being written."""

import os
from contextlib import suppress
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the file by one with this data, or leave it as it was. Raises OSError.

    What is not a regular file (a pipe, /dev/stdout) cannot be replaced: the data is written into it.
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
