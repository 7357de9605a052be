"""The wire between two engines, and the memory that it copies.

An adapter lets its engines use both; the judge lets bytes move. An engine begins a *transfer* (`begin`): copies of
bytes from addresses to addresses, which happen when the judge lets them. And it sends *messages*, which the judge
delivers, late, in any order, twice or never. The clock of both engines is `now`, in seconds.

Memory is made by `memory`. A *cell* is what one layer keeps of one position: for each head `num_ints` numbers of four
bytes. A block has the slots of its first head, then those of the next one; the blocks lie one after another. `address`
is where the first one begins, as an engine sees it. A tensor of an engine over it is
`torch.frombuffer(memory.buffer, dtype=torch.int32)`.

Where several ranks share the KV of a side, each has memory of its own, with the heads and layers that it keeps. A
number that is written becomes another one in each layer and head, so that no head can be taken for another.
"""

import ctypes
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

BYTES = 4
MOVING, DONE, FAILED = "moving", "done", "failed"


class Copy(NamedTuple):
    """So many bytes, from an address to an address."""

    source: int
    target: int
    length: int


class Message(NamedTuple):
    """A message to a side. kind: "done" says that the reader of offers has all that it wanted, or wants nothing any
    more; "beat" that it still waits; other kinds are words of the engine's. offers: the requests of PREFILL that it
    names. body: what the receiver gets. rank: of the receiver. speakers: the ranks of the sender for which it speaks;
    empty: for all of them."""

    to: int
    kind: str
    offers: tuple[int, ...]
    body: Any
    rank: int = 0
    speakers: tuple[int, ...] = ()


@dataclass
class Transfer:
    """Copies that one side began. note: a message that is sent when all have happened."""

    number: int
    starter: int
    copies: list[Copy]
    note: Message | None = None
    state: str = MOVING


class Memory:
    """The KV of one layer on one rank of a side. `numbers` has its cells, one after another.

    heads: those that it has, by their numbers in the whole layer. arrival_slots: what arrives comes in blocks of so
    many slots, and the engine puts it in order before it is read; 0: in its own blocks.
    """

    def __init__(
        self,
        side: int,
        num_blocks: int,
        block_size: int,
        num_ints: int = 1,
        *,
        rank: int = 0,
        layer: int = 0,
        heads: tuple[int, ...] = (0,),
        arrival_slots: int = 0,
    ) -> None:
        self.side, self.num_blocks, self.block_size, self.num_ints = side, num_blocks, block_size, num_ints
        self.rank, self.layer, self.heads, self.arrival_slots = rank, layer, heads, arrival_slots
        self.tags, self.num_tags = list(range(len(heads))), len(heads)  # of its heads, among those of all layers
        self.buffer = bytearray(num_blocks * block_size * len(heads) * num_ints * BYTES)
        self.address = ctypes.addressof((ctypes.c_char * len(self.buffer)).from_buffer(self.buffer))
        self.bytes = memoryview(self.buffer)
        self.numbers = self.bytes.cast("i")

    @property
    def cell_bytes(self) -> int:
        """The bytes of one head of a cell."""
        return self.num_ints * BYTES

    def address_of(self, block: int, slot: int) -> int:
        """Where the first head of a cell is, as an engine sees it."""
        return self.address + (block * self.block_size * len(self.heads) + slot) * self.cell_bytes

    def places(self, cell: int) -> range:
        """Where the heads of a cell are, counted in heads of cells. Cells are counted through all blocks."""
        num_heads = len(self.heads)
        if num_heads == 1:
            return range(cell, cell + 1)
        block, slot = divmod(cell, self.block_size)
        first = block * self.block_size * num_heads + slot
        return range(first, first + self.block_size * num_heads, self.block_size)

    def write(self, cell: int, number: int) -> None:
        """Let all heads of a cell hold a number, each in its own way."""
        for place, tag in zip(self.places(cell), self.tags, strict=False):
            for at in range(place * self.num_ints, (place + 1) * self.num_ints):
                self.numbers[at] = number * self.num_tags + tag

    def read(self, cell: int) -> int | None:
        """The number that all heads of a cell hold; None if they differ, or have that of another layer or head."""
        found = set[int | None]()
        for place, tag in zip(self.places(cell), self.tags, strict=False):
            for at in range(place * self.num_ints, (place + 1) * self.num_ints):
                number, of = divmod(self.numbers[at], self.num_tags)
                found.add(number if of == tag or not self.numbers[at] else None)
        return found.pop() if len(found) == 1 else None

    def has(self, address: int) -> bool:
        """Whether the address lies in it."""
        return self.address <= address < self.address + len(self.buffer)


@dataclass
class Wire:
    """What two engines share. inboxes: what was delivered to each rank of a side, and was not taken yet."""

    now: float = 0.0
    memories: list[Memory] = field(default_factory=list)
    transfers: dict[int, Transfer] = field(default_factory=dict)
    messages: dict[int, Message] = field(default_factory=dict)
    inboxes: defaultdict[tuple[int, int], list[Any]] = field(default_factory=lambda: defaultdict(list))
    num_begun: int = 0
    num_sent: int = 0

    # For engines ---------------------------------------------------------------------------------------------------

    def memory(
        self,
        side: int,
        num_blocks: int,
        block_size: int,
        num_ints: int = 1,
        *,
        rank: int = 0,
        layer: int | None = None,
        heads: tuple[int, ...] = (0,),
        arrival_slots: int = 0,
    ) -> Memory:
        """The memory of one more layer of a rank of a side; by default the next layer. See `Memory`."""
        if layer is None:
            layer = sum(1 for one in self.memories if (one.side, one.rank) == (side, rank))
        self.memories.append(
            Memory(
                side,
                num_blocks,
                block_size,
                num_ints,
                rank=rank,
                layer=layer,
                heads=heads,
                arrival_slots=arrival_slots,
            )
        )
        self._tag()
        return self.memories[-1]

    def _tag(self) -> None:
        """Number all heads of all layers, the same on both sides."""
        kinds = sorted({(one.layer, head) for one in self.memories for head in one.heads})
        for one in self.memories:
            one.tags, one.num_tags = [kinds.index((one.layer, head)) for head in one.heads], len(kinds)

    def begin(self, starter: int, copies: list[Copy], note: Message | None = None) -> int:
        """A side begins a transfer; its number."""
        self.num_begun += 1
        self.transfers[self.num_begun] = Transfer(self.num_begun, starter, copies, note)
        return self.num_begun

    def state(self, number: int) -> str:
        """How far a transfer is: MOVING, DONE or FAILED."""
        return self.transfers[number].state

    def send(self, message: Message) -> None:
        """Send a message."""
        self.num_sent += 1
        self.messages[self.num_sent] = message

    def take(self, side: int, rank: int = 0) -> list[Any]:
        """The bodies of what was delivered to a rank of a side since the last call."""
        return self.inboxes.pop((side, rank), [])

    # For the judge -------------------------------------------------------------------------------------------------

    def land(self, number: int, num_copies: int | None = None) -> None:
        """The bytes of a transfer move: all of them, or only so many copies, and then it has failed."""
        one = self.transfers[number]
        for copy in one.copies[:num_copies]:
            source, target = self.at(copy.source), self.at(copy.target)
            start, to = copy.source - source.address, copy.target - target.address
            target.bytes[to : to + copy.length] = source.bytes[start : start + copy.length]
        one.state = DONE if num_copies is None else FAILED
        if one.note is not None and num_copies is None:
            self.send(one.note)

    def deliver(self, number: int) -> Message:
        """A message arrives."""
        message = self.messages.pop(number)
        self.inboxes[message.to, message.rank].append(message.body)
        return message

    def wipe(self, side: int) -> None:
        """A side is gone: its transfers have failed, its memory is empty, and what was sent to it is lost."""
        for one in self.transfers.values():
            if one.state == MOVING:
                one.state = FAILED
        for memory in self.memories:
            if memory.side == side:
                memory.buffer[:] = bytes(len(memory.buffer))
        self.inboxes = defaultdict(list, {to: bodies for to, bodies in self.inboxes.items() if to[0] != side})
        self.messages = {number: one for number, one in self.messages.items() if one.to != side}

    def place_of(self, address: int) -> tuple[int, int, int]:
        """The side, the layer and the byte of its memory at an address; the side is -1 if no memory has it."""
        num_before = [0, 0]
        for memory in self.memories:
            if memory.has(address):
                return memory.side, num_before[memory.side], address - memory.address
            num_before[memory.side] += 1
        return -1, 0, 0

    def at(self, address: int) -> Memory:
        """The memory that has an address. Raises LookupError."""
        for memory in self.memories:
            if memory.has(address):
                return memory
        raise LookupError(f"no memory has the address {address}")
