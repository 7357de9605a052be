"""LMCache 0.5.5: memory into which a load failed is a hit (issue 5032).

When a load from the second level fails, the prefetch controller ends the write of the key, and then deletes the key:
two calls. The store controller hears of each write that ends, and may reserve the key for reading in between. Then it
cannot be deleted, and when the reader is done it stays: what nobody has written is found by every later request.

The two calls and the reader between them are made here one after the other. Locks and memory are stand-ins without time
or bytes. Run it with the LMCache that is to be tried: exit code 1 if the fault is there. It needs no GPU.
"""

from typing import Any

from on_any_engine import StandIn, fault_if, nothing

# isort: split
from lmcache.v1.distributed import l1_manager
from lmcache.v1.distributed.error import L1Error

KEY = 7


class Lock:
    """A lock that counts, and never runs out."""

    def __init__(self, seconds: int) -> None:
        self.count = 0

    def lock(self) -> None:
        """Count one more."""
        self.count += 1

    def unlock(self) -> None:
        """Count one less."""
        self.count -= 1

    def is_locked(self) -> bool:
        """Whether anybody holds it."""
        return self.count > 0


class Memory:
    """Memory for any number of objects."""

    def __init__(self, config: Any) -> None:
        """It has no size."""

    def allocate(self, layout: Any, number: int) -> Any:
        """So many objects."""
        one = StandIn(meta=StandIn(address=0), get_size=lambda: 1, set_l1_manager=nothing)
        return L1Error.SUCCESS, [one] * number

    def free(self, objects: Any) -> Any:
        """Take objects back."""
        return L1Error.SUCCESS

    def get_backend_type(self, one: Any) -> None:
        """The medium, which nobody asks for."""


l1_manager.TTLLock, l1_manager.L1MemoryManager = Lock, Memory
memory = StandIn(devdax_path="", use_hugepages=False)
config = StandIn(gds_l1_config=None, memory_config=memory, write_ttl_seconds=600, read_ttl_seconds=300, tag="")
manager = l1_manager.L1Manager(config)
has_tags = hasattr(manager, "finish_write_and_delete")  # from 0.5.6 on
manager.reserve_write([KEY], [False], None, **({"tag": "prefetch"} if has_tags else {"mode": "new"}))
if has_tags:  # the load has failed
    manager.finish_write_and_delete([KEY], tag="prefetch")
    between = manager.reserve_read([KEY])[KEY][1]
else:
    manager.finish_write([KEY])
    between = manager.reserve_read([KEY])[KEY][1]
    print("the key is deleted:", manager.delete([KEY])[KEY] is L1Error.SUCCESS)
if between is not None:
    manager.finish_read([KEY])
is_hit = manager.reserve_read([KEY])[KEY][1] is not None
print("the key whose load failed is found:", is_hit)
fault_if(is_hit, "a request would read what nobody has written")
