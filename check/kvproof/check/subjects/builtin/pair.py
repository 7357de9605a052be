"""kvproof's own pair of engines, as a subject of pair level."""

from collections.abc import Collection

from kvproof.check.protocol.capabilities import PairCan
from kvproof.check.protocol.manager import Assumption, Observation
from kvproof.check.protocol.pair import (
    DECODE,
    PREFILL,
    SIDES,
    WEATHERS,
    Offer,
    PairAdapter,
    PairConfig,
    PairLoad,
    PairStep,
    Reported,
)
from kvproof.check.protocol.scheduler import Chunk
from kvproof.check.protocol.wire import FAILED, MOVING, Copy, Memory, Message, Wire
from kvproof.impl.pair import Engine, PairRequest, Ticket, Transport
from kvproof.impl.pair.transport import Note, Place

LEASE_SECONDS = 30
REFUSED = -1  # a transfer to a side that is another one than was known
NUM_LAYERS = 2


class SideOfWire(Transport):
    """The wire, as one side uses it."""

    def __init__(self, wire: Wire, side: int, generations: list[int]) -> None:
        self.wire, self.side, self.generations = wire, side, generations
        self.known = -1

    def now(self) -> float:
        return self.wire.now

    def layers(self) -> list[tuple[Memory, Memory]]:
        """The memory of each layer on the other side, and here."""
        there, here = ([one for one in self.wire.memories if one.side == side] for side in (1 - self.side, self.side))
        return list(zip(there, here, strict=True))

    def connect(self) -> int:
        self.known = self.generations[1 - self.side]
        return self.known

    def read(self, places: list[tuple[Place, Place]]) -> int:
        if self.known != self.generations[1 - self.side]:
            return REFUSED
        copies = list[Copy]()
        for there, here in self.layers():
            for source, target in places:
                addresses = there.address_of(*source), here.address_of(*target)
                last = copies[-1] if copies else None
                if last is not None and (last.source + last.length, last.target + last.length) == addresses:
                    copies[-1] = last._replace(length=last.length + there.cell_bytes)
                else:
                    copies.append(Copy(*addresses, there.cell_bytes))
        return self.wire.begin(self.side, copies)

    def is_moving(self, transfer: int) -> bool:
        return transfer != REFUSED and self.wire.state(transfer) == MOVING

    def has_failed(self, transfer: int) -> bool:
        return transfer == REFUSED or self.wire.state(transfer) == FAILED

    def send(self, note: Note) -> None:
        self.wire.send(Message(1 - self.side, note.kind, (note.offer,), note))

    def take(self) -> list[Note]:
        return self.wire.take(self.side)


class OwnPair(PairAdapter):
    """`kvproof.impl.pair` behind the protocol."""

    name = "kvproof-pair"
    capabilities = PairCan(
        caching=True,
        block_sizes=True,
        dies=True,
        weathers=WEATHERS,
        lease_seconds=LEASE_SECONDS,
        ends_leases=True,
        rest_seconds=2 * LEASE_SECONDS,
    )
    assumptions: tuple[Assumption, ...] = (
        Assumption("aborts-between-steps", "A request is aborted while its side has no step under way."),
        Assumption("one-reader", "The router gives an offer to one request."),
        Assumption("one-clock", "Both sides read the same clock."),
        Assumption("failed-is-fenced", "A transfer that has failed writes nothing any more."),
    )

    def open(self, config: PairConfig) -> None:
        self.wire = Wire()
        for side in SIDES:
            for _ in range(NUM_LAYERS):
                self.wire.memory(side, config.num_blocks(side), config.slots(side))
        self.config, self.generations = config, [0, 0]
        self.tickets: dict[int, Ticket] = {}
        self.engines = [self._engine(config, side) for side in SIDES]

    def die(self, side: int) -> None:
        self.generations[side] += 1
        self.engines[side] = self._engine(self.config, side)

    def _engine(self, config: PairConfig, side: int) -> Engine:
        return Engine(
            config.num_blocks(side),
            config.slots(side),
            SideOfWire(self.wire, side, self.generations),
            caching=config.caching,
            num_tokens_max=config.max_num_batched_tokens,
            lease_seconds=LEASE_SECONDS,
            generation=self.generations[side],
        )

    def add_request(
        self, side: int, request: int, tokens: list[int], max_tokens: int, is_offered: bool, offer: int | None
    ) -> None:
        ticket = None if offer is None else self.tickets.pop(offer)
        self.engines[side].add(PairRequest(request, tokens, max_tokens, is_offered, ticket))

    def abort(self, side: int, request: int) -> None:
        self.engines[side].abort(request)

    def schedule(self, side: int) -> PairStep:
        parts, loads = self.engines[side].schedule()
        return PairStep(
            [Chunk(one.request, one.start, one.stop, one.hit) for one in parts],
            [PairLoad(one.request, one.start, one.stop) for one in loads],
        )

    def launch(self, side: int) -> None:
        self.engines[side].launch()

    def complete(self, side: int, sampled: dict[int, int]) -> Reported:
        return Reported(*self.engines[side].complete(sampled))

    def offer_of(self, request: int) -> Offer | None:
        ticket = self.tickets[request] = self.engines[PREFILL].tickets.pop(request)
        return Offer(ticket.num_tokens, ticket.blocks, ticket.until)

    def deadlines(self) -> dict[int, float]:
        return dict(self.engines[PREFILL].offers.leases)

    def jobs(self) -> list[str]:
        return ["handshake"] if self.engines[DECODE].claims.wants_to_connect else []

    def work(self, job: int, fails: bool) -> None:
        self.engines[DECODE].claims.connect(fails=fails)

    def kept(self, side: int) -> dict[str, list[str]]:
        engine = self.engines[side]
        records: dict[str, Collection[int]] = {
            "offers": engine.offers.held,
            "leases": engine.offers.leases,
            "claims": engine.claims.open,
            "known leases": engine.claims.until,
            "beats": engine.claims.beaten,
        }
        return {name: [str(one) for one in record] for name, record in records.items() if record}

    def observe(self) -> tuple[Observation, Observation]:
        prefill, decode = (
            Observation(
                {request: [list(table)] for request, table in engine.tables().items()},
                (engine.pool.num_free, 0),
                refs=list(engine.pool.refcounts),
                free_ids=list(engine.pool.free),
            )
            for engine in self.engines
        )
        return prefill, decode
