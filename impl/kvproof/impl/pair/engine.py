"""A scheduler with its pool of blocks: one side of a pair.

First come, first served. A request gets blocks for its whole prompt, and one more when it needs it; if there is none,
the request that runs last gives its blocks back and starts again. A request with a ticket waits for the KV of its
prompt, and then computes the last token again, as its output is wanted.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kvproof.impl.pair.claims import Claims
from kvproof.impl.pair.offers import Offers, Ticket
from kvproof.impl.pair.pool import Pool
from kvproof.impl.pair.transport import Transport


@dataclass
class PairRequest:
    """A request. num_computed: positions whose KV is in its table. ticket: what it may claim; None if nothing."""

    number: int
    tokens: list[int]
    max_tokens: int
    is_offered: bool = False
    ticket: Ticket | None = None
    table: list[int] = field(default_factory=list)
    num_computed: int = 0
    num_generated: int = 0


class Part(NamedTuple):
    """Positions of a request, from a start on: computed in a step, or waited for. hit: those that were cached."""

    request: int
    start: int
    stop: int
    hit: int = 0


class Engine:
    """One side."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        transport: Transport,
        *,
        caching: bool = True,
        num_tokens_max: int = 64,
        lease_seconds: float = 30.0,
        generation: int = 0,
    ) -> None:
        self.pool = Pool(num_blocks, block_size, caching=caching)
        self.num_tokens_max, self.transport = num_tokens_max, transport
        self.offers = Offers(self.pool, transport, lease_seconds, generation)
        self.claims = Claims(self.pool, transport, lease_seconds / 3)
        self.waiting: deque[PairRequest] = deque()
        self.loading: dict[int, PairRequest] = {}
        self.running: list[PairRequest] = []
        self.tickets: dict[int, Ticket] = {}  # of requests that have ended, until they are taken
        self.parts: list[Part] = []  # of the step under way

    # Requests ------------------------------------------------------------------------------------------------------

    def add(self, request: PairRequest) -> None:
        """A request arrives."""
        self.waiting.append(request)

    def abort(self, number: int) -> None:
        """The user has left; no step is under way."""
        for request in [one for one in self.waiting if one.number == number]:
            self.waiting.remove(request)
            self._decline(request)
        for request in [one for one in self.running if one.number == number]:
            self.running.remove(request)
            self.pool.release(request.table)
        if self.loading.pop(number, None) is not None:
            self.claims.withdraw(number)

    def _decline(self, request: PairRequest) -> None:
        if request.ticket is not None:
            self.claims.decline(request.ticket)
            request.ticket = None

    # Steps ---------------------------------------------------------------------------------------------------------

    def schedule(self) -> tuple[list[Part], list[Part]]:
        """What the next step computes, and what is waited for from now on."""
        self.parts, num_running = [], len(self.running)
        for request in list(self.running):
            self._grow(request)
        loads = [] if len(self.running) < num_running else self._admit()
        return self.parts, loads

    def _grow(self, request: PairRequest) -> None:
        if request not in self.running:
            return  # it gave its blocks to one before it
        number = self.pool.num_for(len(request.tokens)) - len(request.table)
        while number > self.pool.num_free:
            last = self.running.pop()
            self.pool.release(last.table)
            last.table, last.num_computed = [], 0
            self.waiting.appendleft(last)
            if last is request:
                return
        request.table += self.pool.take(number)
        self.parts.append(Part(request.number, request.num_computed, len(request.tokens)))

    def _admit(self) -> list[Part]:
        loads = []
        num_left = self.num_tokens_max - sum(part.stop - part.start for part in self.parts)
        while self.waiting:
            request = self.waiting[0]
            if request.ticket is not None and not self.claims.is_worth(request.ticket):
                self._decline(request)
            found = self.pool.find(request.tokens)
            number = self.pool.num_for(len(request.tokens)) - len(found)
            hit, stop = len(found) * self.pool.block_size, len(request.tokens)
            num_needed = 0 if request.ticket else stop - hit
            if number > self.pool.num_free - self.pool.num_unheld(found) or num_needed > num_left:
                break
            self.waiting.popleft()
            self.pool.hold(found)
            request.table = found + self.pool.take(number)
            if request.ticket is not None:
                self.loading[request.number] = request
                self.claims.begin(request.number, request.ticket, request.table, hit)
                loads.append(Part(request.number, hit, stop, hit))
            else:
                num_left -= num_needed
                self.running.append(request)
                request.num_computed = hit
                self.parts.append(Part(request.number, hit, stop, hit))
        return loads

    def launch(self) -> None:
        """The step begins, and so do transfers."""
        self.claims.launch(request.ticket for request in self.waiting if request.ticket is not None)

    def complete(self, sampled: Mapping[int, int]) -> tuple[list[int], list[int]]:
        """The step is executed: hear of transfers, then take the tokens. Returns whose KV arrived, and whose not."""
        notes = self.transport.take()
        self.offers.collect(notes)
        received, lost = self.claims.collect(notes)
        stops = {part.request: part.stop for part in self.parts}
        for request in [one for one in self.running if one.number in stops]:
            request.num_computed = stops[request.number]
            self.pool.remember(request.tokens[: request.num_computed], request.table)
            if request.number in sampled:
                request.tokens.append(sampled[request.number])
                request.num_generated += 1
            if request.num_generated >= request.max_tokens:
                self._finish(request)
        self.parts = []
        for number in received:
            request = self.loading.pop(number)
            request.ticket, request.num_computed = None, len(request.tokens) - 1
            self.running.append(request)
        for number in lost:
            request = self.loading.pop(number)
            self.pool.release(request.table)
            request.ticket, request.table = None, []
            self.waiting.appendleft(request)
        return received, lost

    def _finish(self, request: PairRequest) -> None:
        self.running.remove(request)
        if request.is_offered:
            self.tickets[request.number] = self.offers.open(request.number, request.num_computed, request.table)
        else:
            self.pool.release(request.table)

    # For observers -------------------------------------------------------------------------------------------------

    def tables(self) -> dict[int, list[int]]:
        """The blocks that each request holds, also one that is over."""
        held = {request.number: request.table for request in (*self.running, *self.loading.values())}
        held |= {offer: ticket.blocks for offer, ticket in self.offers.held.items()}
        return held | {claim.request: claim.table for claim in self.claims.open.values()}
