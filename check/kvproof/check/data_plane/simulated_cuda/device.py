"""Replace `torch.cuda` by the simulated device, for as long as a block of code runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from kvproof.check.data_plane.compare import triton_verify
from kvproof.check.data_plane.simulated_cuda.accesses import Accesses, UnorderedAccesses
from kvproof.check.data_plane.simulated_cuda.order import Event, Host, Stream
from kvproof.check.data_plane.simulated_cuda.tensors import Calls, DeviceTensor, Mode
from kvproof.impl import free_bytes, row_copier

NAME = "simulated CUDA device"
REFUSAL = "the device is simulated, and runs no kernel"
_ACTIVE: list[Accesses] = []


def is_simulated() -> bool:
    """Whether a device is simulated now."""
    return bool(_ACTIVE)


def new_races() -> list[UnorderedAccesses]:
    """The races that were found since the last call; none if no device is simulated."""
    found = [race for accesses in _ACTIVE for race in accesses.races]
    for accesses in _ACTIVE:
        accesses.races.clear()
    return found


@contextmanager
def simulated_cuda() -> Iterator[Accesses]:
    """Make `torch.cuda` a simulated device. Yields the accesses; their `races` are found when work runs."""
    host = Host()
    accesses = Accesses(host)
    calls = Calls(host, accesses)
    with (
        patch.multiple(torch.cuda, **_functions(host)),
        patch.object(DeviceTensor, "calls", calls, create=True),
        # On a machine with a GPU, Triton would compile its kernels for the simulated one, and abort the process.
        patch.object(triton_verify, "refusal", lambda device: REFUSAL),
        patch.object(row_copier, "refusal", lambda device: REFUSAL),
    ):
        _ACTIVE.append(accesses)
        try:
            with Mode(calls):
                yield accesses
        finally:
            _ACTIVE.remove(accesses)


def _functions(host: Host) -> dict[str, Any]:
    """The functions of `torch.cuda` that are replaced."""

    @contextmanager
    def stream(chosen: Stream | None) -> Iterator[None]:
        before = host.current
        host.current = chosen or before
        try:
            yield
        finally:
            host.current = before

    def on_device(device: object = None) -> AbstractContextManager[None]:
        return nullcontext()

    properties = SimpleNamespace(name=NAME, total_memory=free_bytes("cpu"), multi_processor_count=1, major=0, minor=0)
    return {
        "_lazy_init": lambda: None,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "device": on_device,
        "Stream": lambda device=None, priority=0: Stream(host),
        "Event": lambda enable_timing=False, blocking=False, interprocess=False: Event(host),
        "stream": stream,
        "current_stream": lambda device=None: host.current,
        "default_stream": lambda device=None: host.default,
        "synchronize": lambda device=None: host.synchronize(),
        "get_device_name": lambda device=None: NAME,
        "get_device_properties": lambda device=None: properties,
        "mem_get_info": lambda device=None: (free_bytes("cpu"), properties.total_memory),
        "empty_cache": lambda: None,
        "reset_peak_memory_stats": lambda device=None: None,
        "memory_reserved": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 0,
        "_sleep": lambda cycles: host.current.submit("a wait", lambda operation: None),
    }
