"""Memory that a server shares with the process beside it that writes its recording.

The server puts messages into it and never waits; the other process takes them out in order. Neither sees a message that
is not whole: the server first copies the message, and then moves the word `HEAD`, which says where the next one begins.
The other process moves `TAIL` past what it has taken. Both words count bytes from the beginning and never go back; a
message lies at the count modulo the size of the ring. When nothing waits, the server moves both words so that the next
message goes to the front again. So a server that is followed uses the first `HOT_BYTES` only, which its caches hold.

On a processor that may reorder writes, what comes before a lock is released is seen before what comes after it is taken
again. So the server releases and takes a lock between the message and the word, and the reader does the same between
the word and the message.
"""

import mmap
import os
import tempfile
from collections.abc import Sequence
from threading import Lock

CONTROL_BYTES = 4_096  # the words, and two texts
HEAD, TAIL, HAS_FAILED = range(3)  # words of 8 bytes
FROM_SERVER, FROM_WRITER = slice(1_024, 2_048), slice(2_048, 3_072)  # why a side ends the recording
WORD_BYTES = 8
RING_BYTES = 256 << 20
HOT_BYTES = 256 << 10  # a cache of a core holds them
READY_BYTES = 32 << 20
LENGTH_BITS = 32  # of a message; the length of its first part follows
SKIP = (1 << LENGTH_BITS) - 1  # in place of a length: the next message is at the front
Buffer = bytes | bytearray | memoryview  # of bytes


class RingFull(OSError):
    """The reader is so far behind that there is no room for a message."""


def shared_file(num_bytes: int) -> int:
    """The descriptor of memory that has no name, with room for the words, the texts and so many bytes of messages."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("kvproof")
    else:
        with tempfile.TemporaryFile() as unnamed:
            file = os.dup(unnamed.fileno())
    os.truncate(file, CONTROL_BYTES + num_bytes)
    return file


class Ring:
    """What both sides have: the memory, its words and its texts."""

    def __init__(self, file: int) -> None:
        self._memory = mmap.mmap(file, 0)
        self._view = memoryview(self._memory)
        self._words = self._view.cast("Q")
        self.num_bytes = len(self._memory) - CONTROL_BYTES
        self._fence = Lock()
        self._fence.acquire()

    def close(self) -> None:
        """Release the memory of this side."""
        self._words.release()
        self._view.release()
        self._memory.close()

    def num_unread(self) -> int:
        """Bytes of messages that are not taken out yet."""
        return max(0, self._words[HEAD] - self._words[TAIL])

    def has_failed(self) -> bool:
        """Whether the writer of the recording has said why it ends."""
        return bool(self._words[HAS_FAILED])

    def say(self, place: slice, text: str) -> None:
        """Leave a text for the other side."""
        data = text.encode()[: place.stop - place.start - 1]
        self._view[place.start : place.start + len(data)] = data
        if place is FROM_WRITER:
            self._order()
            self._words[HAS_FAILED] = 1

    def said(self, place: slice) -> str:
        """The text that the other side has left."""
        return bytes(self._view[place]).rstrip(b"\0").decode(errors="ignore")

    def _order(self) -> None:
        self._fence.release()
        self._fence.acquire()


class RingWriter(Ring):
    """The side of the server."""

    def __init__(self, file: int) -> None:
        super().__init__(file)
        ready = min(READY_BYTES, self.num_bytes)
        self._view[CONTROL_BYTES : CONTROL_BYTES + ready] = bytes(ready)  # so that no call has to wait for pages
        self._head = 0

    def put(self, first: Buffer, others: Sequence[Buffer] = ()) -> int:
        """Add a message of several parts, each of which is copied. Returns `HAS_FAILED`. Raises RingFull.

        One thread at a time may call this.
        """
        length, words, memory = len(first), self._words, self._memory
        for part in others:
            length += len(part)
        if length > self.num_bytes // 2:
            raise RingFull
        num_bytes = (length + 2 * WORD_BYTES - 1) & -WORD_BYTES
        head, tail = self._head, words[TAIL]
        at = head % self.num_bytes
        num_left = self.num_bytes - at
        is_followed = head == tail and at > HOT_BYTES
        if is_followed or num_left < num_bytes:
            if not is_followed and head + num_left + num_bytes - tail > self.num_bytes:
                raise RingFull
            words[(CONTROL_BYTES + at) // WORD_BYTES] = SKIP
            head += num_left
            at = 0
            if is_followed:  # nothing is left to take, so the reader does not move this word
                self._order()
                words[TAIL] = head
        elif head + num_bytes - tail > self.num_bytes:
            raise RingFull
        at += CONTROL_BYTES
        words[at // WORD_BYTES] = length | len(first) << LENGTH_BITS
        at += WORD_BYTES
        memory[at : at + len(first)] = first
        if others:
            at += len(first)
            for part in others:
                memory[at : at + len(part)] = part
                at += len(part)
        self._fence.release()
        self._fence.acquire()
        self._head = words[HEAD] = head + num_bytes
        return words[HAS_FAILED]


class RingReader(Ring):
    """The side of the process that writes the recording."""

    def take(self) -> tuple[bytes, bytes] | None:
        """The next message, which is taken out: its first part, and the others as one. None if there is none."""
        words = self._words
        tail, head = words[TAIL], words[HEAD]
        self._order()
        if tail >= head:
            return None
        at = tail % self.num_bytes
        if words[(CONTROL_BYTES + at) // WORD_BYTES] == SKIP:
            tail += self.num_bytes - at
            at = 0
        at += CONTROL_BYTES
        length, length_first = words[at // WORD_BYTES] & SKIP, words[at // WORD_BYTES] >> LENGTH_BITS
        data = bytes(self._view[at + WORD_BYTES : at + WORD_BYTES + length])
        self._order()
        words[TAIL] = tail + WORD_BYTES + (length + WORD_BYTES - 1) // WORD_BYTES * WORD_BYTES
        return data[:length_first], data[length_first:]
