"""A pair whose claims come first, as SGLang's: DECODE reserves blocks, PREFILL computes, writes, and sends a token.

Small and right; what is wrong in a neighbour is a method of it.
"""

from collections.abc import Collection, Iterator

from kvproof.check.protocol.capabilities import PairCan
from kvproof.check.protocol.manager import Observation
from kvproof.check.protocol.pair import (
    DECODE,
    PREFILL,
    SIDES,
    Offer,
    PairAdapter,
    PairConfig,
    PairLoad,
    PairStep,
    Reported,
)
from kvproof.check.protocol.scheduler import Chunk
from kvproof.check.protocol.wire import FAILED, MOVING, Copy, Message, Wire

TARGETS, GONE, STOPPED, WRITTEN, LOST = "targets", "gone", "stopped", "written", "lost"

WAIT_SECONDS = 100  # in which DECODE must say where the KV of a request goes


class PushingPair(PairAdapter):
    """Two engines, first come, first served, without a prefix cache.

    rooms: of each request of DECODE, that of PREFILL. targets: of each request of PREFILL, where its KV goes.
    """

    name = "pushing pair"
    capabilities = PairCan(
        pushes=True,
        withdraws=True,
        claims_first=True,
        sends_token=True,
        local=False,
        loses=False,
        doubles=False,
        rest_seconds=2 * WAIT_SECONDS,
    )

    def open(self, config: PairConfig) -> None:
        self.wire, self.config = Wire(), config
        self.memories = [self.wire.memory(side, config.num_blocks(side), config.slots(side)) for side in SIDES]
        self.free = [list(range(config.num_blocks(side))) for side in SIDES]
        self.tables: tuple[dict[int, list[int]], ...] = {}, {}
        self.waiting: tuple[list[int], ...] = [], []
        self.lengths, self.max_tokens = dict[int, int](), dict[int, int]()
        self.rooms, self.targets, self.moving = dict[int, int](), dict[int, list[int]](), dict[int, int]()
        self.gone, self.running, self.step, self.loading = set[int](), list[int](), list[int](), set[int]()
        self.came = dict[int, float]()
        self.failed: tuple[list[int], ...] = [], []

    def add_request(
        self, side: int, request: int, tokens: list[int], max_tokens: int, is_offered: bool, offer: int | None
    ) -> None:
        self.lengths[request], self.max_tokens[request] = len(tokens), max_tokens
        self.came[request] = self.wire.now
        self.waiting[side].append(request)
        if offer is not None:
            self.rooms[request] = offer

    def abort(self, side: int, request: int) -> None:
        if side == PREFILL:
            self.waiting[side].remove(request)
            self.lost(request)
        elif request in self.running:
            self.running.remove(request)
            self.release(side, request)
        elif request in self.loading:
            self.withdraw(request)
        else:
            self.waiting[side].remove(request)
            self.say(PREFILL, GONE, self.rooms[request])

    # What neighbours do otherwise -------------------------------------------------------------------------------------

    def withdraw(self, request: int) -> None:
        """The blocks of a claim go when PREFILL says that nothing moves."""
        self.gone.add(request)
        self.say(PREFILL, GONE, self.rooms[request])

    def give_up(self, offer: int) -> None:
        """Nobody wants what is offered: it goes when nothing moves."""
        if offer not in self.moving:
            self.stop(offer)

    def copies(self, offer: int) -> Iterator[Copy]:
        """Each block goes where it belongs."""
        there, here = self.memories
        for source, target in zip(self.tables[PREFILL][offer], self.targets[offer], strict=False):
            length = here.cell_bytes * self.config.slots(DECODE)
            yield Copy(there.address_of(source, 0), here.address_of(target, 0), length)

    # Steps ----------------------------------------------------------------------------------------------------------

    def schedule(self, side: int) -> PairStep:
        received, loads = self.hear(side), list[PairLoad]()
        if side == PREFILL:
            for request in [one for one in self.waiting[side] if self.wire.now - self.came[one] >= WAIT_SECONDS]:
                self.waiting[side].remove(request)
                self.failed[side].append(request)
                self.lost(request)
            self.step = [one for one in self.waiting[side] if one in self.targets and self.take(side, one, 1)]
            self.waiting[side][:] = [one for one in self.waiting[side] if one not in self.step]
            chunks = [Chunk(one, 0, self.lengths[one], 0) for one in self.step]
            return PairStep(chunks, (), Reported((), (), self.ended(side)))
        for request in list(self.waiting[side]):
            if self.take(side, request, self.max_tokens[request]):
                self.waiting[side].remove(request)
                self.loading.add(request)
                loads.append(PairLoad(request, 0, self.lengths[request]))
                self.wire.send(Message(PREFILL, TARGETS, (self.rooms[request],), (TARGETS, request)))
        chunks = [Chunk(one, self.lengths[one] - 1, self.lengths[one], 0) for one in self.running]
        return PairStep(chunks, loads, Reported(received, (), self.ended(side)))

    def launch(self, side: int) -> None:
        """Nothing is begun here."""

    def complete(self, side: int, sampled: dict[int, int]) -> Reported:
        if side == DECODE:
            for request in [one for one in self.running if one in sampled]:
                self.lengths[request] += 1
                self.max_tokens[request] -= 1
                self.end_if_over(request)
            return Reported()
        for request in self.step:
            if request in self.targets:
                self.moving[request] = self.wire.begin(side, list(self.copies(request)))
        for request, transfer in list(self.moving.items()):
            if self.wire.state(transfer) != MOVING:
                has_failed = self.wire.state(transfer) == FAILED
                del self.moving[request]
                self.say(DECODE, LOST if has_failed else WRITTEN, request)
                self.stop(request)
        self.step = []
        return Reported((), (), self.ended(side))

    def hear(self, side: int) -> list[int]:
        """The requests whose KV has arrived, with the first token."""
        received = []
        for kind, number in self.wire.take(side):
            if kind == TARGETS and self.rooms[number] in self.waiting[PREFILL]:
                self.targets[self.rooms[number]] = self.tables[DECODE].get(number, [])
            elif kind == TARGETS:
                self.say(DECODE, LOST, self.rooms[number])
            elif kind == GONE and number in self.waiting[PREFILL]:
                self.waiting[PREFILL].remove(number)
                self.failed[PREFILL].append(number)
                self.stop(number)
            elif kind == GONE:
                self.give_up(number)
            elif side == DECODE:
                received += self.hear_of(kind, number)
        return received

    def hear_of(self, kind: str, offer: int) -> list[int]:
        """What PREFILL says of a request that it was given."""
        request = next((one for one, room in self.rooms.items() if room == offer), None)
        if request is None or request not in self.loading:
            if request in self.waiting[DECODE] and kind == LOST:
                self.waiting[DECODE].remove(request)
                self.failed[DECODE].append(request)
            return []
        self.loading.remove(request)
        if request in self.gone or kind != WRITTEN:
            if request not in self.gone:
                self.failed[DECODE].append(request)
            self.release(DECODE, request)
            return []
        self.lengths[request] += 1
        self.max_tokens[request] -= 1
        self.running.append(request)
        self.end_if_over(request)
        return [request]

    def end_if_over(self, request: int) -> None:
        if not self.max_tokens[request]:
            self.running.remove(request)
            self.release(DECODE, request)

    # Blocks and messages ----------------------------------------------------------------------------------------------

    def take(self, side: int, request: int, num_new: int) -> bool:
        number = -(-(self.lengths[request] + num_new) // self.config.slots(side))
        if number > len(self.free[side]):
            return False
        self.tables[side][request] = [self.free[side].pop() for _ in range(number)]
        return True

    def release(self, side: int, request: int) -> None:
        self.free[side] += self.tables[side].pop(request, [])

    def say(self, to: int, kind: str, offer: int) -> None:
        self.wire.send(Message(to, kind, (offer,), (kind, offer)))

    def lost(self, request: int) -> None:
        self.say(DECODE, LOST, request)
        self.targets.pop(request, None)

    def stop(self, offer: int) -> None:
        """Nothing of an offer moves any more."""
        self.release(PREFILL, offer)
        self.targets.pop(offer, None)
        self.say(DECODE, STOPPED, offer)

    def ended(self, side: int) -> list[int]:
        """The requests that have ended with an error since the last call."""
        failed, self.failed[side][:] = list(self.failed[side]), []
        return failed

    # What it shows ----------------------------------------------------------------------------------------------------

    def offer_of(self, request: int) -> Offer | None:
        table = self.tables[PREFILL].get(request)
        slots = self.config.slots(PREFILL)
        number = self.lengths[request]
        return None if table is None else Offer(number, table[: -(-number // slots)])

    def deadlines(self) -> dict[int, float]:
        return {}

    def jobs(self) -> list[str]:
        return []

    def work(self, job: int, fails: bool) -> None:
        """It does nothing in the background."""

    def kept(self, side: int) -> dict[str, list[str]]:
        found: dict[str, Collection[int]]
        found = {"targets": self.targets, "moving": self.moving} if side == PREFILL else {"loading": self.loading}
        return {name: [str(one) for one in record] for name, record in found.items() if record}

    def observe(self) -> tuple[Observation, Observation]:
        prefill, decode = (
            Observation({one: [list(table)] for one, table in self.tables[side].items()}, (len(self.free[side]), 0))
            for side in SIDES
        )
        return prefill, decode


class GivesTargetsBackAtOnce(PushingPair):
    """DECODE gives the blocks of a request back when its user leaves."""

    def withdraw(self, request: int) -> None:
        super().withdraw(request)
        self.release(DECODE, request)


class GivesSourcesBackAtOnce(PushingPair):
    """PREFILL gives blocks back when nobody wants them, though they are read."""

    def give_up(self, offer: int) -> None:
        self.release(PREFILL, offer)


class WritesBackwards(PushingPair):
    """PREFILL writes the blocks of a prompt in the reverse order."""

    def copies(self, offer: int) -> Iterator[Copy]:
        self.targets[offer] = self.targets[offer][: -(-self.lengths[offer] // self.config.slots(DECODE))][::-1]
        return super().copies(offer)


BROKEN = [
    (GivesTargetsBackAtOnce, "in-flight-held"),
    (GivesSourcesBackAtOnce, "source-held"),
    (WritesBackwards, "arrived-whole"),
]
