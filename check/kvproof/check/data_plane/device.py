"""The device that a run uses: the facts that may explain its results, and whether it still works.

After an error such as an access out of bounds, every later CUDA call of the process fails with the same error. A kernel
that does not end cannot be interrupted, and a blocking wait for it could not be interrupted either. So the functions
here poll, or wait in another thread; a time limit then takes effect.

The facts of the machine may explain why it is slower or less reliable than others of its kind. They are read without
privilege: from nvidia-smi, from the files of the kernel, and from torch. What cannot be read
is "not known", with the reason; nothing is guessed. `kvproof device compare` shows the facts of several machines.
"""

import os
import platform
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol

import torch

from kvproof.check.hosts.program import finished
from kvproof.check.protocol.finding import error_text

TORCH_MIN = (2, 11)
RELEASES = ("triton", "vllm", "sgl_kernel")  # what runs on a GPU, if it is installed

SMI_SECONDS_MAX = 20.0
SYSTEM = Path("/sys")
NOT_KNOWN = "not known"

# What nvidia-smi is asked for, by the name of the fact. Source: nvidia-smi --help-query-gpu.
QUERIES: dict[str, tuple[str, ...]] = {
    "PCIe link": ("pcie.link.gen.current", "pcie.link.width.current", "pcie.link.gen.max", "pcie.link.width.max"),
    "clocks": ("clocks.sm", "clocks.max.sm", "clocks.mem", "clocks.max.mem"),
    "ECC errors": ("ecc.errors.corrected.aggregate.total", "ecc.errors.uncorrected.aggregate.total"),
}
TEXTS: dict[str, str] = {
    "PCIe link": "generation {} x{} (at most generation {} x{})",
    "clocks": "processors {} MHz (at most {}), memory {} MHz (at most {})",
    "ECC errors": "{} corrected, {} uncorrected",
}


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


CUDA_ERRORS = getattr(torch, "AcceleratorError", ())  # older releases have none


def reason_of(error: BaseException) -> str:
    """The type and the text of an exception. Of an error of CUDA only its first line: torch adds how to debug it."""
    text = error_text(error)
    shown = text.partition("\n")[0] if isinstance(error, CUDA_ERRORS) else text
    return f"{type(error).__name__}: {shown}"


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


def not_known(reason: str) -> str:
    """The value of a fact that cannot be read."""
    return f"{NOT_KNOWN}: {reason}"


def host_facts(device: torch.device, label: str) -> dict[str, str]:
    """The facts by the names that a report shows. label: the name of the machine. No value is empty."""
    facts = {"host": label, "kernel": platform.release() or not_known("the system does not say")}
    if device.type == "cuda":
        address = _pci_address(device)
        return facts | _gpu_facts(address, _queried) | {"NUMA node": _numa_node(address)}
    return facts | {
        "PCIe link": not_known("the blocks lie in main memory"),
        "clocks": _processor_clocks(),
        "NUMA node": _numa_nodes(),
        "ECC errors": _memory_errors(),
    }


# A GPU -----------------------------------------------------------------------------------------------------------


def _pci_address(device: torch.device) -> str:
    """The address of the GPU as `0000:3b:00.0`; empty if torch does not report it."""
    properties = torch.cuda.get_device_properties(device)
    domain, bus, slot = (getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device"))
    return "" if domain is None or bus is None or slot is None else f"{domain:04x}:{bus:02x}:{slot:02x}.0"


def _queried(address: str, names: Iterable[str]) -> list[str]:
    """What nvidia-smi answers about a GPU, one value for each name. Raises OSError or ValueError with the reason."""
    command = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits", f"--id={address}"]
    try:
        done = finished(command, SMI_SECONDS_MAX)
    except FileNotFoundError:
        raise ValueError("nvidia-smi is not installed") from None
    except TimeoutError:
        raise ValueError(f"nvidia-smi gave no answer within {SMI_SECONDS_MAX:g} s") from None
    if done.code:
        said = (done.output + done.errors).strip().splitlines() or [f"exit code {done.code}"]
        raise ValueError(f"nvidia-smi: {said[0]}")
    return [value.strip() for value in done.output.strip().split(",")]


def _gpu_facts(address: str, ask: Callable[[str, Iterable[str]], list[str]]) -> dict[str, str]:
    """The link, the clocks and the ECC counts of a GPU. ask: as `_queried`."""
    facts = {}
    for fact, names in QUERIES.items():
        try:
            if not address:
                raise ValueError("this torch does not report the PCI address of the GPU")
            values = ask(address, names)
            missing = [name for name, value in zip(names, values, strict=True) if not value.isdecimal()]
            if missing:
                raise ValueError(f"nvidia-smi reports no {missing[0]}")
            facts[fact] = TEXTS[fact].format(*values)
        except (OSError, ValueError) as error:
            facts[fact] = _link_of(address) if fact == "PCIe link" else ""
            facts[fact] = facts[fact] or not_known(str(error))
    return facts


def _link_of(address: str) -> str:
    """The PCIe link as the kernel reports it; empty if it does not.

    Source: Linux, Documentation/ABI/testing/sysfs-bus-pci.
    """
    files = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")
    values = [_content(SYSTEM / "bus/pci/devices" / address / file) for file in files] if address else [""]
    return "{} x{} (at most {} x{})".format(*values) if all(values) else ""


def _numa_node(address: str) -> str:
    """The NUMA node that a GPU is attached to; the kernel reports -1 if it does not know it."""
    node = _content(SYSTEM / "bus/pci/devices" / address / "numa_node") if address else ""
    return node if node.isdecimal() else not_known("the system does not report the node of the GPU")


# A processor -----------------------------------------------------------------------------------------------------


def _processor_clocks() -> str:
    """The clock of the first core now, and the highest; in MHz."""
    folder = SYSTEM / "devices/system/cpu/cpu0/cpufreq"
    now, most = (_content(folder / name) for name in ("scaling_cur_freq", "cpuinfo_max_freq"))
    if now.isdecimal() and most.isdecimal():
        return f"{int(now) // 1000} MHz (at most {int(most) // 1000})"
    found = re.search(r"^cpu MHz\s*:\s*([\d.]+)", _content(Path("/proc/cpuinfo")), re.MULTILINE)
    if found:
        return f"{float(found[1]):.0f} MHz (at most {NOT_KNOWN}: the system does not report it)"
    return not_known("the system does not report it")


def _numa_nodes() -> str:
    """The NUMA nodes of the machine."""
    nodes = _content(SYSTEM / "devices/system/node/online")
    return f"{nodes} (of the machine)" if nodes else not_known("the system does not report them")


def _memory_errors() -> str:
    """The errors of main memory that its controllers have counted. Source: Linux, Documentation/driver-api/edac.rst."""
    folder = SYSTEM / "devices/system/edac/mc"
    try:
        controllers = [one for one in os.listdir(folder) if re.fullmatch(r"mc\d+", one)]
    except OSError:
        controllers = []
    counts = [[_content(folder / one / name) for one in controllers] for name in ("ce_count", "ue_count")]
    if not controllers or not all(value.isdecimal() for values in counts for value in values):
        return not_known("no memory controller reports errors here")
    return TEXTS["ECC errors"].format(*(sum(map(int, values)) for values in counts))


def _content(file: Path) -> str:
    """The content of a file without the white space around it; empty if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
