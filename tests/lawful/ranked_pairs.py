"""Pairs of which several ranks share the KV of a side: they differ in who reads and tells. And broken neighbours."""

from collections import defaultdict
from dataclasses import replace

from tests.lawful.pairs import Changed

from kvproof.check.protocol.pair import DECODE, PREFILL, SIDES, PairConfig
from kvproof.check.protocol.wire import FAILED, MOVING, Copy, Memory, Message, Wire
from kvproof.check.subjects.builtin.pair import REFUSED, OwnPair, SideOfWire
from kvproof.impl.pair.offers import Ticket
from kvproof.impl.pair.transport import DONE, Note, Place

NUM_LAYERS = 2


def address_of(memory: Memory, place: Place, head: int) -> int:
    """Where a head of a cell is."""
    cell = place.block * memory.block_size + place.slot
    return memory.address + memory.places(cell)[memory.heads.index(head)] * memory.cell_bytes


class RankedSide(SideOfWire):
    """A side that reads by a transfer for each two ranks, and says once for all ranks that it is done."""

    def __init__(self, wire: Wire, side: int, generations: list[int]) -> None:
        super().__init__(wire, side, generations)
        self.parts: dict[int, list[int]] = {}  # of each read, its transfers

    def of(self, side: int) -> list[Memory]:
        return [one for one in self.wire.memories if one.side == side]

    def keepers(self, keepers: list[Memory], reader: int) -> list[Memory]:
        """From which of those that keep the same head a rank reads."""
        return keepers[:1]

    def source_head(self, head: int, memory: Memory) -> int:
        return head

    def wanted(self) -> list[tuple[Memory, Memory, int]]:
        """Each head of each layer and rank here, with the memory of the other side that it is read from."""
        return [
            (there, here, head)
            for here in self.of(self.side)
            for head in here.heads
            for there in self.keepers(
                [one for one in self.of(1 - self.side) if one.layer == here.layer and head in one.heads], here.rank
            )
        ]

    def read(self, places: list[tuple[Place, Place]]) -> int:
        if self.known != self.generations[1 - self.side]:
            return REFUSED
        copies = defaultdict[tuple[int, int], list[Copy]](list)
        for there, here, head in self.wanted():
            for source, target in places:
                addresses = address_of(there, source, self.source_head(head, there)), address_of(here, target, head)
                copies[there.rank, here.rank].append(Copy(*addresses, there.cell_bytes))
        numbers = [self.wire.begin(self.side, found) for found in copies.values()]
        self.parts[numbers[0]] = numbers
        return numbers[0]

    def is_moving(self, transfer: int) -> bool:
        return any(self.wire.state(one) == MOVING for one in self.parts.get(transfer, ()))

    def has_failed(self, transfer: int) -> bool:
        return transfer == REFUSED or any(self.wire.state(one) == FAILED for one in self.parts[transfer])


class Ranked(Changed):
    """kvproof's pair with several ranks on each side."""

    capabilities = replace(OwnPair.capabilities, ranks=(1, 2, 4))
    MySide: type[SideOfWire] = RankedSide

    def open(self, config: PairConfig) -> None:
        self.wire = Wire()
        for side in SIDES:
            for rank in range(config.num_ranks(side)):
                for layer in range(NUM_LAYERS):
                    self.wire.memory(
                        side,
                        config.num_blocks(side),
                        config.slots(side),
                        rank=rank,
                        layer=layer,
                        heads=config.heads(side, rank),
                    )
        self.config, self.generations = config, [0, 0]
        self.tickets: dict[int, Ticket] = {}
        self.engines = [self._engine(config, side) for side in SIDES]


# Lawful -----------------------------------------------------------------------------------------------------------


class ReadsTheLastKeeper(Ranked):
    """Of several ranks that keep the same, it reads the last one."""

    class MySide(RankedSide):
        def keepers(self, keepers: list[Memory], reader: int) -> list[Memory]:
            return keepers[-1:]


class ReadsEachKeeper(Ranked):
    """Of several ranks that keep the same, it reads all: the same is written several times."""

    class MySide(RankedSide):
        def keepers(self, keepers: list[Memory], reader: int) -> list[Memory]:
            return keepers


class EachRankTells(Ranked):
    """Each rank of DECODE tells each rank of PREFILL from which it may read; PREFILL waits for all."""

    class MySide(RankedSide):
        def pairs(self) -> set[tuple[int, int]]:
            """The ranks of PREFILL and DECODE that have something in common."""
            return {
                (one.rank, other.rank)
                for one in self.of(PREFILL)
                for other in self.of(DECODE)
                if set(one.heads) & set(other.heads)
            }

        def send(self, note: Note) -> None:
            if note.kind != DONE:
                super().send(note)
                return
            for there, here in sorted(self.pairs()):
                body = note, (there, here)
                self.wire.send(Message(1 - self.side, note.kind, (note.offer,), body, there, (here,)))

        def take(self) -> list[Note]:
            found, self.told = list[Note](), getattr(self, "told", defaultdict[int, set[tuple[int, int]]](set))
            for rank in range(1 + max(one.rank for one in self.of(self.side))):
                for body in self.wire.take(self.side, rank):
                    if isinstance(body, Note):
                        found.append(body)
                        continue
                    note, pair = body
                    self.told[note.offer].add(pair)
                    if self.is_enough(self.told[note.offer]):
                        found.append(note)
            return found

        def is_enough(self, told: set[tuple[int, int]]) -> bool:
            return told == self.pairs()


LAWFUL = [Ranked, ReadsTheLastKeeper, ReadsEachKeeper, EachRankTells]


# Broken -----------------------------------------------------------------------------------------------------------


class TakesAnotherHead(Ranked):
    """It reads the last head that a rank has in place of the first one."""

    class MySide(RankedSide):
        def source_head(self, head: int, memory: Memory) -> int:
            return memory.heads[-1]


class LeavesOutARank(Ranked):
    """The last rank reads nothing."""

    class MySide(RankedSide):
        def wanted(self) -> list[tuple[Memory, Memory, int]]:
            last = max(one.rank for one in self.of(self.side))
            return [one for one in super().wanted() if not last or one[1].rank < last]


class CountsTheFirstPart(Ranked):
    """It takes a claim for arrived when its first part is."""

    class MySide(RankedSide):
        def is_moving(self, transfer: int) -> bool:
            return self.wire.state(self.parts[transfer][0]) == MOVING if transfer in self.parts else False


class CountsTheFirstWriter(Ranked):
    """It takes a claim for arrived when one of those that write the same is done."""

    class MySide(RankedSide):
        def keepers(self, keepers: list[Memory], reader: int) -> list[Memory]:
            return keepers

        def is_moving(self, transfer: int) -> bool:
            num = len({(there.layer, here.rank) for there, here, _ in self.wanted()}) // NUM_LAYERS
            parts = self.parts.get(transfer, [])
            return sum(self.wire.state(one) != MOVING for one in parts) < min(num, len(parts))


class WaitsForOneRank(EachRankTells):
    """It gives an offer back when the first rank has said that it is done."""

    class MySide(EachRankTells.MySide):
        def is_enough(self, told: set[tuple[int, int]]) -> bool:
            return bool(told)


BROKEN = [
    (TakesAnotherHead, "arrived-whole"),
    (LeavesOutARank, "hit-written"),
    (CountsTheFirstPart, "hit-written"),
    (CountsTheFirstWriter, "hit-written"),
    (WaitsForOneRank, "pin-own"),
]
