"""transformers' continuous batching, importable with torch and without its models.

Real are the cache and its allocators, the scheduler, the requests, the offloading manager, the tensors of a batch (one
pair of host and device for each of two batches where they overlap), and the processor whose `prepare_next_batch` and
`update_batch` are the loop. Hollow is the rest: configurations (a bag of settings takes their place), the runner of the
model, and everything outside continuous batching.

There is no accelerator: memory is not pinned, and a stream is the order in which the calls come, which is the order in
which the engine puts its work on the one stream that it computes and copies on.
"""

import logging
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from kvproof.check.subjects.loading import download, stub_modules
from kvproof.check.subjects.loading.stub_modules import StubObject, no

PACKAGE = "transformers"
FOLDER = "generation.continuous_batching"
REAL = (
    "cache",
    "cache_allocators",
    "cache_allocators.cache_allocator",
    "cache_allocators.cache_pool",
    "cache_allocators.full_attention",
    "cache_allocators.sliding_attention",
    "continuous_api",
    "distributed",
    "input_outputs",
    "offloading_manager",
    "requests",
    "scheduler",
    "utils",
)
LOGGER = "ContinuousBatchingLogger"
MEMORY_BYTES = 1 << 40  # more than any pool here


def much_memory() -> tuple[str, int, int, int]:
    """The device, and its memory in bytes: total, reserved, allocated. The number of blocks is set, not measured."""
    return "cpu", MEMORY_BYTES, 0, 0


def in_order(stream: Any) -> nullcontext[None]:
    """A stream whose work runs at once."""
    return nullcontext()


# Imported, but not used on the paths that are driven.
BARS: dict[str, dict[str, Any]] = {
    "tqdm": {"tqdm": stub_modules.Unused},
    "tqdm.contrib": {},
    "tqdm.contrib.logging": {"logging_redirect_tqdm": stub_modules.Unused},
}
STAND_INS: dict[str, dict[str, Any]] = {
    "distributed.utils": {"_is_torch_distributed_initialized": no},
    "utils": {"get_available_devices": tuple, "is_psutil_available": no, "is_torch_xpu_available": no},
    "utils.generic": {"is_flash_attention_requested": no},
    "utils.logging": {"logging": logging},
}


def import_modules(version: str, cache: Path | None = None) -> StubObject:
    """The modules of a release's continuous batching, from its sources. Raises EngineError if they are not here."""
    root = download.find(PACKAGE, version, cache) / PACKAGE
    stub_modules.provide(BARS)
    submodule = stub_modules.mount_real(PACKAGE, root, [f"{FOLDER}.{name}" for name in REAL], STAND_INS)
    logging.getLogger(LOGGER).setLevel(logging.CRITICAL)
    modules = StubObject(
        cache=submodule(f"{FOLDER}.cache"),
        api=submodule(f"{FOLDER}.continuous_api"),
        distributed=submodule(f"{FOLDER}.distributed"),
        ios=submodule(f"{FOLDER}.input_outputs"),
        offloading=submodule(f"{FOLDER}.offloading_manager"),
        requests=submodule(f"{FOLDER}.requests"),
        scheduler=submodule(f"{FOLDER}.scheduler"),
    )
    modules.cache.get_device_and_memory_breakdown = much_memory
    for each in (modules.api, modules.ios, modules.offloading):
        each.stream_context = in_order
    torch = modules.offloading.torch
    torch.set_num_threads(1)  # several gain nothing on such tensors, and wait for each other
    modules.offloading.torch = stub_modules.WithoutPinning(torch)
    return modules
