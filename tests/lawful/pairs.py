"""Pairs of engines that differ in what they hold, read and say; and broken neighbours. All are changes of kvproof's."""

from dataclasses import replace
from typing import Any

from kvproof.check.protocol.pair import DECODE, PREFILL, PairConfig
from kvproof.check.protocol.wire import DONE as ARRIVED
from kvproof.check.protocol.wire import FAILED, MOVING, Copy, Wire
from kvproof.check.subjects.builtin.pair import OwnPair, SideOfWire
from kvproof.impl.pair import Engine
from kvproof.impl.pair.claims import Claim, Claims
from kvproof.impl.pair.offers import Offers, Ticket
from kvproof.impl.pair.pool import Pool
from kvproof.impl.pair.transport import DONE, Note, Place


class Changed(OwnPair):
    """kvproof's pair, of which some parts are of another class."""

    MyOffers: type[Offers] = Offers
    MyClaims: type[Claims] = Claims
    MyPool: type[Pool] = Pool
    MyEngine: type[Engine] = Engine
    MySide: type[SideOfWire] = SideOfWire
    MyWire: type[Wire] = Wire

    def open(self, config: PairConfig) -> None:
        super().open(config)
        if self.MyWire is not Wire:
            memories = self.wire.memories
            self.wire = self.MyWire(memories=memories)
            self.engines = [self._engine(config, side) for side in (PREFILL, DECODE)]

    def _engine(self, config: PairConfig, side: int) -> Engine:
        engine = self.MyEngine(
            config.num_blocks(side),
            config.slots(side),
            transport := self.MySide(self.wire, side, self.generations),
            caching=config.caching,
        )
        engine.pool = self.MyPool(config.num_blocks(side), config.slots(side), caching=config.caching)
        engine.offers = self.MyOffers(engine.pool, transport, 30.0, self.generations[side])
        engine.claims = self.MyClaims(engine.pool, transport, 10.0)
        return engine


# Lawful -----------------------------------------------------------------------------------------------------------


class NeverBeats(Changed):
    """Its reader never asks for more time."""

    class MyClaims(Claims):
        def _beat(self, tickets: list[Ticket]) -> None:
            pass


class ReadsByCell(Changed):
    """It copies each position for itself, the last one first."""

    class MySide(SideOfWire):
        def read(self, places: list[tuple[Place, Place]]) -> int:
            copies = [
                Copy(there.address_of(*source), here.address_of(*target), there.cell_bytes)
                for there, here in self.layers()
                for source, target in reversed(places)
            ]
            return self.wire.begin(self.side, copies)


class ForgetsItsCache(Changed):
    """It has a prefix cache, and finds only the first block."""

    class MyPool(Pool):
        def find(self, tokens: Any) -> list[int]:
            return super().find(tokens)[:1]


class SaysDoneTwice(Changed):
    """Each message is sent twice."""

    class MySide(SideOfWire):
        def send(self, note: Note) -> None:
            super().send(note)
            super().send(note)


class ReleasesLate(Changed):
    """What is read stays held until the lease is over."""

    class MyOffers(Offers):
        def _hear(self, note: Note) -> None:
            if note.kind != DONE:
                super()._hear(note)


class HoldsForEver(Changed):
    """Its offers have no end: a reader ends them, and no message is lost."""

    capabilities = replace(OwnPair.capabilities, lease_seconds=0, ends_leases=False, weathers=("calm",), rest_seconds=0)


class HasNoCache(Changed):
    """Neither side has a prefix cache."""

    capabilities = replace(OwnPair.capabilities, caching=False)


LAWFUL = [OwnPair, NeverBeats, ReadsByCell, ForgetsItsCache, SaysDoneTwice, ReleasesLate, HasNoCache]


# Broken -----------------------------------------------------------------------------------------------------------


class TrustsWhatIsLate(Changed):
    """Its reader counts what arrives when the lease is over."""

    class MyClaims(Claims):
        def is_worth(self, ticket: Ticket) -> bool:
            self.until.setdefault(ticket.offer, ticket.until)
            return True


class TrustsAnAddress(Changed):
    """It reads from the side that has the address of the one it knew."""

    class MySide(SideOfWire):
        def read(self, places: list[tuple[Place, Place]]) -> int:
            self.known = self.generations[1 - self.side]
            return super().read(places)


class WaitsBehindALiveOne(Changed):
    """A lease that is over is ended only if those before it are over too."""

    class MyOffers(Offers):
        def collect(self, notes: list[Note]) -> None:
            for note in notes:
                self._hear(note)
            for offer, until in list(self.leases.items()):
                if until > self.transport.now():
                    break
                self._end(offer)


class FreesTheTarget(Changed):
    """An aborted request gives its blocks back while a transfer writes them."""

    class MyClaims(Claims):
        def withdraw(self, request: int) -> None:
            claim = self.open[request]
            self._end(claim)
            self.pool.release(claim.table)


class FreesTheSource(Changed):
    """It gives back what a reader asked for more time for."""

    class MyOffers(Offers):
        def _hear(self, note: Note) -> None:
            self._end(note.offer)


class SaysDoneAtOnce(Changed):
    """Its reader says that it is done when it begins."""

    class MyClaims(Claims):
        def launch(self, waiting: Any) -> None:
            begun = [claim for claim in self.open.values() if claim.transfer is not None]
            super().launch(waiting)
            for claim in self.open.values():
                if claim.transfer is not None and claim not in begun:
                    self.transport.send(Note(DONE, claim.ticket.offer))


class CountsWhatFailed(Changed):
    """A transfer that has failed counts as one that has brought everything."""

    class MySide(SideOfWire):
        def has_failed(self, transfer: int) -> bool:
            return False


class DoesNotWait(Changed):
    """It counts what it has begun to read."""

    class MySide(SideOfWire):
        def is_moving(self, transfer: int) -> bool:
            return False


class JoinsTheWrongEnds(Changed):
    """Behind a hit, it reads from the beginning of what is offered."""

    class MyClaims(Claims):
        def _places(self, claim: Claim) -> list[tuple[Place, Place]]:
            whole = super()._places(Claim(claim.request, claim.ticket, claim.table, 0))
            return [(whole[place][0], whole[place + claim.hit][1]) for place in range(len(whole) - claim.hit)]


class LeavesOutTheLast(Changed):
    """The last position of what is offered is not read."""

    class MyClaims(Claims):
        def _places(self, claim: Claim) -> list[tuple[Place, Place]]:
            places = super()._places(claim)
            return places[:-1] if len(places) > 1 else places


class ReadsOneLayer(Changed):
    """The second layer is forgotten."""

    class MySide(SideOfWire):
        def read(self, places: list[tuple[Place, Place]]) -> int:
            number = super().read(places)
            copies = self.wire.transfers[number].copies
            del copies[len(copies) // 2 :]
            return number


class CachesWhatIsOnItsWay(Changed):
    """What is claimed can be found before it has arrived."""

    class MyEngine(Engine):
        def _admit(self) -> Any:
            loads = super()._admit()
            for request in self.loading.values():
                self.pool.remember(request.tokens, request.table)
            return loads


class KeepsARecord(Changed):
    """A request that is aborted before it was scheduled leaves a record."""

    class MyEngine(Engine):
        def _decline(self, request: Any) -> None:
            if request.ticket is not None:
                super()._decline(request)
                self.claims.beaten[request.number] = 0.0


class WaitsForWhatFailed(Changed):
    """A transfer that has failed is waited for."""

    class MySide(SideOfWire):
        def is_moving(self, transfer: int) -> bool:
            return self.wire.state(transfer) != ARRIVED


class EndsAtAnUnknownNotice(Changed):
    """A message about an offer that is over ends its engine."""

    class MyOffers(Offers):
        def _end(self, offer: int) -> None:
            self.leases[offer]
            super()._end(offer)


class LosesABlock(Changed):
    """Each offer that is over takes a block with it."""

    class MyOffers(Offers):
        def _end(self, offer: int) -> None:
            if offer in self.held:
                self.pool.refcounts[self.held[offer].blocks[-1]] += 1
            super()._end(offer)


class OffersTooMuch(Changed):
    """It offers a position that is not computed."""

    class MyOffers(Offers):
        def open(self, offer: int, num_tokens: int, table: list[int]) -> Ticket:
            return super().open(offer, num_tokens + 1, table)


class LyingWire(Changed):
    """Its wire says that a transfer is done that has not moved."""

    class MyWire(Wire):
        def state(self, number: int) -> str:
            found = super().state(number)
            return ARRIVED if found == MOVING else found


class WireThatMovesHalf(Changed):
    """Its wire moves half of a transfer, and says that it is done."""

    class MyWire(Wire):
        def land(self, number: int, num_copies: int | None = None) -> None:
            one = self.transfers[number]
            super().land(number, len(one.copies) // 2 if num_copies is None else num_copies)
            one.state = FAILED if num_copies is not None else ARRIVED


class WireToTheWrongPlace(Changed):
    """Its wire takes each copy a position too early."""

    class MyWire(Wire):
        def land(self, number: int, num_copies: int | None = None) -> None:
            one = self.transfers[number]
            right, size = one.copies, self.memories[-1].cell_bytes
            wrong = [copy._replace(source=self._before(copy.source, size)) for copy in right]
            one.copies = wrong
            super().land(number, num_copies)
            one.copies = right

        def _before(self, address: int, size: int) -> int:
            memory = self.at(address)
            return max(memory.address, address - size)


BROKEN = [
    (TrustsWhatIsLate, "void-told"),
    # TrustsAnAddress: in tests/check/oracle/pair/test_judge.py
    (WaitsBehindALiveOne, "lease-ends"),
    (FreesTheTarget, "in-flight-held"),
    (FreesTheSource, "pin-own"),
    (SaysDoneAtOnce, "source-held"),
    (CountsWhatFailed, "hit-written"),
    (DoesNotWait, "hit-written"),
    (JoinsTheWrongEnds, "arrived-whole"),
    (LeavesOutTheLast, "hit-written"),
    (ReadsOneLayer, "arrived-whole"),
    (CachesWhatIsOnItsWay, "hit-computed"),
    (KeepsARecord, "no-leak-at-rest"),
    (WaitsForWhatFailed, "progress"),
    (EndsAtAnUnknownNotice, "total-calls"),
    (LosesABlock, "conservation"),
    (OffersTooMuch, "hit-written"),
    (LyingWire, "hit-written"),
    (WireThatMovesHalf, "arrived-whole"),
    (WireToTheWrongPlace, "arrived-whole"),
]
