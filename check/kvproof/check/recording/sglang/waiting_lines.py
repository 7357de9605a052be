"""Lines whose page ids are still on the way from the device.

SGLang keeps page ids in tensors, on a server in the memory of the GPU. To read one at once would wait for everything
that the stream still has to do. So it is copied to pinned memory without waiting, and an event tells when the copy has
arrived. Until then the line waits, and so do the lines after it, because they are written in order. A tensor in main
memory is read at once.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kvproof.check.recording.handover import Line
from kvproof.check.recording.ring import Buffer
from kvproof.check.recording.sglang.raw_lines import RadixCall

NUM_WAITING_MAX = 1_000  # lines; then the oldest is waited for
NUM_IN_LINE_MAX = 64  # numbers that are cheaper to write into the line than beside it
ALL = slice(None)


class WaitingCopy:
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

    def tensor(self) -> Any:
        """The copy in main memory. Waits until it has arrived."""
        self._event.synchronize()
        return self._tensor


class WaitingLines:
    """Lines in order, each with the copy that it waits for, if any.

    write: writes a line with its buffers. The buffers of a line that waits are copies.
    """

    def __init__(self, write: Callable[[Line, Sequence[Buffer]], object]) -> None:
        self._write = write
        self._lines: deque[tuple[Line, list[Buffer], WaitingCopy | None]] = deque()
        self._buffers = list[Buffer]()  # of the line that comes next
        self._copy: WaitingCopy | None = None  # likewise

    def __len__(self) -> int:
        return len(self._lines)

    def add_tokens(self, line: RadixCall, tokens: memoryview) -> None:
        """Give the line that is added next the tokens of a prompt."""
        line.num_bytes = len(tokens)
        self._buffers.append(tokens)

    def fill(self, line: RadixCall, tensor: Any, what: str, part: slice = ALL) -> None:
        """Give the line that is added next a part of the numbers of the tensor, and what these numbers are."""
        line.what = what
        if tensor.is_cpu:
            _add_numbers(line, self._buffers, tensor, part)
        else:
            self._copy = WaitingCopy(tensor[part])

    def add(self, line: Line) -> None:
        """Write a line after those that wait, now or when their numbers have arrived."""
        copy, buffers = self._copy, self._buffers
        if copy is None and not self._lines:
            self._write(line, buffers)
            if buffers:
                buffers.clear()
            return
        self._copy, self._buffers = None, []
        if isinstance(line, RadixCall) and line.tokens is not None:
            line.tokens = line.tokens[:]  # those of the server, which may change them before this line is written
        self._lines.append((line, [bytes(buffer) for buffer in buffers], copy))
        while self._lines:
            first = self._lines[0][2]
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
        self._buffers.clear()
        self._copy = None

    def _write_first(self) -> None:
        line, buffers, copy = self._lines[0]
        if copy is not None and isinstance(line, RadixCall):
            _add_numbers(line, buffers, copy.tensor(), ALL)
        self._write(line, buffers)
        self._lines.popleft()


def _add_numbers(line: RadixCall, buffers: list[Buffer], tensor: Any, part: slice) -> None:
    """Give the line a part of the numbers of a tensor in main memory; if they are many, in a buffer."""
    if part is ALL and tensor.numel() <= NUM_IN_LINE_MAX:
        line.numbers = tensor.tolist()
        return
    numbers = tensor.numpy()[part]
    if len(numbers) <= NUM_IN_LINE_MAX:
        line.numbers = numbers.tolist()
        return
    line.form = numbers.dtype.char
    buffers.append(memoryview(numbers).cast("B") if numbers.flags.c_contiguous else numbers.tobytes())
