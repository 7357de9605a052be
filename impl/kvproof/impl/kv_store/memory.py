"""The bytes of the slots of host memory: a plain buffer, or planes of tensors that a device copies to and from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch


class SlotMemory(Protocol):
    """The bytes of so many slots of one size."""

    num_slots: int
    slot_bytes: int

    def read(self, slot: int) -> bytes: ...

    def write(self, slot: int, data: bytes) -> None: ...


class Buffer:
    """The slots of one buffer."""

    def __init__(self, num_slots: int, slot_bytes: int) -> None:
        self.num_slots, self.slot_bytes = num_slots, slot_bytes
        self._bytes = bytearray(num_slots * slot_bytes)

    def read(self, slot: int) -> bytes:
        """The bytes of a slot."""
        begin = slot * self.slot_bytes
        return bytes(self._bytes[begin : begin + self.slot_bytes])

    def write(self, slot: int, data: bytes) -> None:
        """Write all bytes of a slot."""
        begin = slot * self.slot_bytes
        self._bytes[begin : begin + self.slot_bytes] = data


class Planes:
    """The slots of planes, tensors `[slots, words]` in main memory: a slot is a row of each, one after another.

    The planes of a KV cache engine's CPU pool are such memory. A copy to or from a slot must have ended before its
    bytes are read or written here.
    """

    def __init__(self, planes: Sequence[torch.Tensor]) -> None:
        self.planes = list(planes)
        self.num_slots = planes[0].shape[0]
        self._sizes = [plane.shape[1] * plane.itemsize for plane in planes]
        self.slot_bytes = sum(self._sizes)

    def read(self, slot: int) -> bytes:
        """The bytes of a slot."""
        import torch

        return b"".join(plane[slot].view(torch.uint8).numpy().tobytes() for plane in self.planes)

    def write(self, slot: int, data: bytes) -> None:
        """Write all bytes of a slot."""
        import torch

        rest = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        for plane, part in zip(self.planes, torch.split(rest, self._sizes), strict=True):
            plane[slot].view(torch.uint8).copy_(part)
