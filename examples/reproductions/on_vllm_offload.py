"""vLLM's store of blocks in host memory (`vllm.v1.kv_offload`), 0.11.1 and later: what the scripts for it share."""

import importlib
import importlib.util
import inspect
from typing import Any

from on_any_engine import nothing, with_options


def module(package: str, name: str) -> Any:
    """A module of vLLM, or None if the release does not have it."""
    found = importlib.util.find_spec(f"{package}.{name}")
    return importlib.import_module(f"{package}.{name}") if found else None


def key(number: int) -> bytes:
    """The key of a block: a hash, and the number of its KV cache group."""
    return bytes([number] * 8) + bytes(4)


class Store:
    """A store with a policy of eviction, "lru" or "arc", which one request uses. Blocks have numbers."""

    def __init__(self, num_blocks: int, policy: str) -> None:
        sizes = {"block_size": 16, "num_blocks": num_blocks, "num_chunks": num_blocks}
        if old := module("vllm.v1.kv_offload", f"{policy}_manager"):
            kind = getattr(old, f"{policy.upper()}OffloadingManager")
            self.manager = kind(module("vllm.v1.kv_offload.backends", "cpu").CPUBackend(16, num_blocks))
        else:  # from 0.19 on, one manager has all policies
            kind = module("vllm.v1.kv_offload.cpu", "manager").CPUOffloadingManager
            self.manager = with_options(kind, **sizes, cache_policy=policy, enable_events=False)
        self.context: Any = None
        if "req_context" in inspect.signature(self.manager.prepare_store).parameters:
            base = module("vllm.v1.kv_offload", "base") or module("vllm.v1.kv_offload", "abstract")
            self.context = with_options(base.ReqContext, req_id="request")
            getattr(self.manager, "on_new_request", nothing)(self.context)

    def call(self, name: str, numbers: tuple[int, ...]) -> Any:
        """Call a method with the keys of some blocks, and with the request if it asks for it."""
        for number in numbers:
            getattr(self.context, "set_offload_key_position", nothing)(key(number), 16 * (number + 1))
        method, keys = getattr(self.manager, name), [key(number) for number in numbers]
        return method(keys, *([self.context] if "req_context" in inspect.signature(method).parameters else []))

    def begin(self, *numbers: int) -> bool:
        """Begin to store some blocks; whether the store was accepted."""
        return self.call("prepare_store", numbers) is not None

    def store(self, *numbers: int) -> bool:
        """Store some blocks; whether the store was accepted."""
        if not self.begin(*numbers):
            return False
        self.call("complete_store", numbers)
        return True

    def touch(self, *numbers: int) -> None:
        """Tell the policy that a request uses these blocks, whether they are there or not."""
        self.call("touch", numbers)

    def has(self, number: int) -> bool:
        """Whether a block is there, and written."""
        if "key" not in inspect.signature(self.manager.lookup).parameters:
            return bool(self.manager.lookup([key(number)]))
        found = self.manager.lookup(key(number), self.context)
        return found is True or getattr(found, "name", "") == "HIT"
