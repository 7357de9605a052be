"""What a reader does: it claims an offer, reads it over the wire, and counts what arrived before the lease was over."""

from collections.abc import Iterable
from dataclasses import dataclass

from kvproof.impl.pair.offers import Ticket
from kvproof.impl.pair.pool import Pool
from kvproof.impl.pair.transport import BEAT, DONE, UNTIL, Note, Place, Transport


@dataclass
class Claim:
    """A request that waits for KV. hit: positions that it has already. transfer: None if the read has not begun."""

    request: int
    ticket: Ticket
    table: list[int]
    hit: int
    transfer: int | None = None
    is_withdrawn: bool = False
    is_lost: bool = False


class Claims:
    """The claims of a side.

    until: the end of each lease that it knows, by offers. generation: of the other side, as the last handshake said;
    None if there was none, or a transfer has failed since. wants_to_connect: a handshake is to be made.
    """

    def __init__(self, pool: Pool, transport: Transport, beat_seconds: float) -> None:
        self.pool, self.transport, self.beat_seconds = pool, transport, beat_seconds
        self.open: dict[int, Claim] = {}
        self.until: dict[int, float] = {}
        self.beaten: dict[int, float] = {}
        self.generation: int | None = None
        self.wants_to_connect = False

    def is_worth(self, ticket: Ticket) -> bool:
        """Whether the lease of an offer is in force, as far as this side knows."""
        return self.transport.now() < self.until.setdefault(ticket.offer, ticket.until)

    def begin(self, request: int, ticket: Ticket, table: list[int], hit: int) -> None:
        """A request has blocks, and waits."""
        self.open[request] = Claim(request, ticket, table, hit)

    def launch(self, waiting: Iterable[Ticket]) -> None:
        """Begin the reads that wait, and ask for more time for all that is wanted."""
        for claim in self.open.values():
            if claim.transfer is None and not claim.is_lost:
                if not self.is_worth(claim.ticket) or self.generation not in (None, claim.ticket.generation):
                    claim.is_lost = True
                elif self.generation is None:
                    self.wants_to_connect = True
                else:
                    claim.transfer = self.transport.read(self._places(claim))
        self._beat([*waiting, *(claim.ticket for claim in self.open.values())])

    def _beat(self, tickets: list[Ticket]) -> None:
        now = self.transport.now()
        for ticket in tickets:
            last = self.beaten.setdefault(ticket.offer, now)
            if now - last >= self.beat_seconds:
                self.beaten[ticket.offer] = now
                self.transport.send(Note(BEAT, ticket.offer))

    def _places(self, claim: Claim) -> list[tuple[Place, Place]]:
        """Each position behind the hit: where it is, and where it goes."""
        there, here = claim.ticket.block_size, self.pool.block_size
        return [
            (
                Place(claim.ticket.blocks[position // there], position % there),
                Place(claim.table[position // here], position % here),
            )
            for position in range(claim.hit, claim.ticket.num_tokens)
        ]

    def connect(self, *, fails: bool) -> None:
        """The handshake has been made, or has failed: then what waited for it is lost."""
        self.wants_to_connect, self.generation = False, None if fails else self.transport.connect()
        for claim in self.open.values():
            claim.is_lost = claim.is_lost or (fails and claim.transfer is None)

    def collect(self, notes: list[Note]) -> tuple[list[int], list[int]]:
        """The requests whose claim has arrived, and those whose claim is lost."""
        for note in notes:
            if note.kind == UNTIL and note.offer in self.until:
                self.until[note.offer] = max(self.until[note.offer], note.until)
        received, lost = list[int](), list[int]()
        for claim in list(self.open.values()):
            if claim.transfer is None:
                if claim.is_lost:
                    lost.append(claim.request)
            elif not self.transport.is_moving(claim.transfer):
                has_failed = self.transport.has_failed(claim.transfer)
                self.generation = None if has_failed else self.generation
                is_whole = not has_failed and self.is_worth(claim.ticket)
                if claim.is_withdrawn:
                    self._end(claim)
                    self.pool.release(claim.table)
                else:
                    (received if is_whole else lost).append(claim.request)
        for request in (*received, *lost):
            self._end(self.open[request])
        return received, lost

    def withdraw(self, request: int) -> None:
        """The user has left. The blocks go when no transfer can write them any more."""
        claim = self.open[request]
        claim.is_withdrawn = True
        if claim.transfer is None:
            self._end(claim)
            self.pool.release(claim.table)

    def _end(self, claim: Claim) -> None:
        del self.open[claim.request]
        self.decline(claim.ticket)

    def decline(self, ticket: Ticket) -> None:
        """Nobody here wants what is offered any more."""
        self.until.pop(ticket.offer, None)
        self.beaten.pop(ticket.offer, None)
        self.transport.send(Note(DONE, ticket.offer))
