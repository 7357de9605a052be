"""What a side does for the readers of what it computed: it holds the blocks until they are done, or for a lease."""

from typing import NamedTuple

from kvproof.impl.pair.pool import Pool
from kvproof.impl.pair.transport import BEAT, DONE, UNTIL, Note, Transport


class Ticket(NamedTuple):
    """What the router carries to the reader.

    until: when the lease ends, if nobody asks for more time. generation: of the side that offers.
    """

    offer: int
    num_tokens: int
    blocks: list[int]
    block_size: int
    until: float
    generation: int


class Offers:
    """The offers of a side that are held. leases: when each ends."""

    def __init__(self, pool: Pool, transport: Transport, lease_seconds: float, generation: int = 0) -> None:
        self.pool, self.transport, self.lease_seconds = pool, transport, lease_seconds
        self.generation = generation
        self.held: dict[int, Ticket] = {}
        self.leases: dict[int, float] = {}

    def open(self, offer: int, num_tokens: int, table: list[int]) -> Ticket:
        """Hold a table for a reader."""
        until = self.transport.now() + self.lease_seconds
        size = self.pool.block_size
        self.held[offer] = Ticket(offer, num_tokens, list(table), size, until, self.generation)
        self.leases[offer] = until
        return self.held[offer]

    def collect(self, notes: list[Note]) -> None:
        """Read what readers say, and end what they have read and what is over."""
        for note in notes:
            self._hear(note)
        now = self.transport.now()
        for offer in [offer for offer, until in self.leases.items() if until <= now]:
            self._end(offer)

    def _hear(self, note: Note) -> None:
        now = self.transport.now()
        if note.kind == DONE:
            self._end(note.offer)
        elif note.kind == BEAT and self.leases.get(note.offer, now) > now:
            self.leases[note.offer] = now + self.lease_seconds
            self.transport.send(Note(UNTIL, note.offer, self.leases[note.offer]))

    def _end(self, offer: int) -> None:
        ticket = self.held.pop(offer, None)
        if ticket is not None:
            del self.leases[offer]
            self.pool.release(ticket.blocks)
