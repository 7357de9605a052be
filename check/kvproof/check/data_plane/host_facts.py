"""Facts of the machine that may explain why it is slower or less reliable than others of its kind.

Everything is read without privilege: from nvidia-smi, from the files of the kernel, and from torch. What cannot be read
is "not known", with the reason; nothing is guessed. `kvproof device compare` shows the facts of several machines.
"""

import os
import platform
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from kvproof.check.hosts.program import finished

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
