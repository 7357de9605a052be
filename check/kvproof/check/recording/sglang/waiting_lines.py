"""Lines whose page ids are still on the way from the device.

SGLang keeps page ids in tensors, on a server in the memory of the GPU. To read one at once would wait for everything
that the stream still has to do. So it is copied to pinned memory without waiting, and an event tells when the copy has
arrived. Until then the line waits, and so do the lines after it, because they are written in order. A tensor in main
memory is read at once.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from kvproof.check.recording.format import Header, RecordedCall

NUM_WAITING_MAX = 1_000  # lines; then the oldest is waited for
Numbers = Callable[[list[int]], list[int]]


class Copy:
    """A copy of a tensor of the device, which arrives in main memory when the stream comes to it."""

    def __init__(self, tensor: Any) -> None:
        import torch

        cuda: Any = torch.cuda
        pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        self._tensor = pinned.copy_(tensor, non_blocking=True)
        self._event = cuda.Event()
        self._event.record()

    def has_arrived(self) -> bool:
        """Whether the copy is complete."""
        return bool(self._event.query())

    def numbers(self) -> list[int]:
        """The numbers of the tensor. Waits until they have arrived."""
        self._event.synchronize()
        found: list[int] = self._tensor.tolist()
        return found


class WaitingLines:
    """Lines in order, each with the copy that it waits for, if any.

    write: writes a complete line.
    """

    def __init__(self, write: Callable[[RecordedCall | Header], None]) -> None:
        self._write = write
        self._lines: deque[tuple[RecordedCall | Header, Copy | None, Numbers | None]] = deque()
        self._copy: tuple[Copy, Numbers] | None = None  # of the line that comes next

    def __len__(self) -> int:
        return len(self._lines)

    def fill(self, line: RecordedCall, tensor: Any, step: int, pages_of: Numbers) -> None:
        """Set the slots of the line that is added next: of every `step`-th number of the tensor, what pages_of says."""
        if tensor.device.type == "cpu":
            line.slots = pages_of(tensor[::step].tolist())
        else:
            self._copy = Copy(tensor), lambda numbers: pages_of(numbers[::step])

    def add(self, line: RecordedCall | Header) -> None:
        """Write a line after those that wait, now or when their numbers have arrived."""
        copy, pages_of = self._copy or (None, None)
        self._copy = None
        if copy is None and not self._lines:
            self._write(line)
            return
        self._lines.append((line, copy, pages_of))
        while self._lines:
            first = self._lines[0][1]
            if first is not None and len(self._lines) <= NUM_WAITING_MAX and not first.has_arrived():
                return
            self._write_first()

    def write_all(self) -> None:
        """Write every line that waits."""
        while self._lines:
            self._write_first()

    def forget(self) -> None:
        """Write none of the lines that wait."""
        self._lines.clear()
        self._copy = None

    def _write_first(self) -> None:
        line, copy, pages_of = self._lines[0]
        if copy is not None and pages_of is not None and isinstance(line, RecordedCall):
            line.slots = pages_of(copy.numbers())
        self._write(line)
        self._lines.popleft()
