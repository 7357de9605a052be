"""What a device can no longer do: it has no memory left, or an executor has broken it.

CUDA keeps an error such as an access out of bounds: every later call of the process fails with it, whoever makes it.
And a kernel that does not end can be neither interrupted nor waited for, so what waits here asks again and again
instead: then a time limit reaches it.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

import torch

REST_SECONDS_MAX = 5.0
_POLL_SECONDS = 0.0001


class Stream(Protocol):
    """What of a stream of a device is asked."""

    def query(self) -> bool:
        """Whether all work that was given to it has ended."""
        ...


def wait_for(stream: Stream) -> None:
    """Until all its work has ended; a signal comes through meanwhile."""
    while not stream.query():
        time.sleep(_POLL_SECONDS)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed: by Python or numpy, by torch in either memory, pinned or mapped."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("out of memory" in text or "allocate memory" in text)


def broken(device: torch.device, seconds_max: float = REST_SECONDS_MAX) -> str:
    """Why nothing more can be done on this device; empty if it comes to rest."""
    said: list[str] = []

    def wait() -> None:
        try:
            torch.cuda.synchronize(device)
            said.append("")
        except RuntimeError as error:
            said.append(f"{type(error).__name__}: {error}".splitlines()[0])

    if device.type != "cuda":
        return ""
    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(seconds_max)
    return said[0] if said else f"it is still at work after {seconds_max:g} s"
