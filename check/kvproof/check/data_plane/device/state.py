"""Recognise out-of-memory errors and broken devices.

After an error such as an access out of bounds, every later CUDA call of the process fails with the same error. A kernel
that does not end cannot be interrupted, and a blocking wait for it could not be interrupted either. So the functions
here poll, or wait in another thread; a time limit then takes effect.
"""

import threading
import time
from typing import Protocol

import torch

REST_SECONDS_MAX = 5.0
_POLL_SECONDS = 0.0001


class Stream(Protocol):
    """A stream of a device, such as `torch.cuda.Stream`."""

    def query(self) -> bool:
        """Whether all work on the stream has ended."""
        ...


def wait_for(stream: Stream) -> None:
    """Wait until all work on the stream has ended. Signals are handled while waiting."""
    while not stream.query():
        time.sleep(_POLL_SECONDS)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error is a failed allocation, by Python, numpy or torch, in any kind of memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("out of memory" in text or "allocate memory" in text)


def broken(device: torch.device, seconds_max: float = REST_SECONDS_MAX) -> str:
    """Why the device can no longer be used; empty if all its work ends within seconds_max."""
    outcomes: list[str] = []

    def wait() -> None:
        try:
            torch.cuda.synchronize(device)
            outcomes.append("")
        except RuntimeError as error:
            outcomes.append(f"{type(error).__name__}: {error}".splitlines()[0])

    if device.type != "cuda":
        return ""
    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(seconds_max)
    return outcomes[0] if outcomes else f"its work has not ended after {seconds_max:g} s"
