"""The device that a run uses: the facts that may explain its results, and whether it still works.

After an error such as an access out of bounds, every later CUDA call of the process fails with the same error. A kernel
that does not end cannot be interrupted, and a blocking wait for it could not be interrupted either. So the functions
here poll, or wait in another thread; a time limit then takes effect.
"""

import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol

import torch

TORCH_MIN = (2, 11)
RELEASES = ("triton", "vllm", "sgl_kernel")  # what runs on a GPU, if it is installed


class UnfitTorch(Exception):
    """The installed torch is too old; the message is for the user."""


def require_torch(release: str = str(torch.__version__)) -> None:
    """Raises UnfitTorch for a release before 2.11.

    The variable KVPROOF_ANY_TORCH, which is 1, allows any release, for a machine on which no other can be installed.
    """
    if os.environ.get("KVPROOF_ANY_TORCH") == "1":
        return
    numbers = release.split("+")[0].split(".")
    try:
        is_new_enough = tuple(int(number) for number in numbers[:2]) >= TORCH_MIN
    except ValueError:
        return  # a custom build, whose version cannot be compared
    if not is_new_enough:
        wanted = ".".join(map(str, TORCH_MIN))
        raise UnfitTorch(f"torch {release} is too old for the data plane; install torch {wanted} or newer")


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def device_name(device: torch.device) -> str:
    """The GPU's name, or the processor's."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else processor()


def environment(device: torch.device) -> dict[str, str]:
    """The facts of the machine, by the names that a report shows. No value is empty."""
    facts = {
        "torch": str(torch.__version__),
        "processor": processor(),
        "cores usable": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1),
        "device": str(device),
        "pinned memory": "yes" if device.type == "cuda" else "no: both pools lie in main memory",
    }
    if hasattr(os, "getloadavg"):
        facts["load at the start"] = f"{os.getloadavg()[0]:.1f}"
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        facts |= {
            "GPU": properties.name,
            "GPU memory": f"{properties.total_memory / 2**30:.0f} GiB",
            "multiprocessors": str(properties.multi_processor_count),
            "compute capability": f"{properties.major}.{properties.minor}",
            "CUDA of torch": torch.version.cuda or "unknown",
            "driver": _driver(),
        }
        facts |= {package: release for package in RELEASES if (release := _release(package))}
    return facts


def _release(package: str) -> str:
    """The version of an installed package; empty if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _driver() -> str:
    """The version that the kernel module of the driver reports."""
    try:
        first = Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
    except (OSError, IndexError):
        return "unknown"
    words = first.split()
    return next((word for word in words if word[:1].isdigit() and "." in word), first)


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


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """Make a new stream the current one, ordered after earlier and before later work of the stream before."""
    before, own = torch.cuda.current_stream(device), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    own.wait_stream(before)
    with torch.cuda.stream(own):
        yield
    before.wait_stream(own)


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
