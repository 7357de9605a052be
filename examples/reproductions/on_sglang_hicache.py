"""What scripts for SGLang's HiCache share: the controller of a small host, whose copies are over at once."""

from collections import namedtuple
from typing import Any

import torch
from on_any_engine import StandIn, nothing

Ack = namedtuple("Ack", ("start_event", "finish_event", "node_ids"))
DONE = StandIn(query=lambda: True, synchronize=nothing)


class SmallHost:
    """The controller of a host with so many slots."""

    write_policy = "write_through"
    mem_pool_device_allocator = StandIn(free=nothing)
    reset = staticmethod(nothing)  # there is nothing under way
    evict_device = staticmethod(len)  # the device has these tokens no longer

    def __init__(self, num_slots: int) -> None:
        self.free, self.ack_write_queue = list(range(num_slots)), list[Any]()

    def write(self, device_indices: Any, node_id: int, **more: Any) -> Any:
        """Slots for these tokens; None if they are too few."""
        if len(device_indices) > len(self.free):
            return None
        self.ack_write_queue.append(Ack(DONE, DONE, [node_id]))
        return torch.tensor([self.free.pop(0) for _ in device_indices])

    def evict_host(self, slots: Any) -> int:
        """Take slots back."""
        self.free += slots.tolist()
        return len(slots)
