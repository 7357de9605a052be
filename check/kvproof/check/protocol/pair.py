"""The protocol of a pair of engines: one computes prompts, the other one generates, and KV goes over a wire in between.

A *side* is an engine with a pool of blocks: PREFILL computes the prompt of a request and then *offers* its KV; DECODE
*claims* it for a request of its own, and generates. Both may have requests that concern nobody else. The judge plays
the users, the router that pairs an offer with a request, the model, the network, the clock and what engines do in the
background. An adapter derives from `PairAdapter`, makes a `Wire` (`protocol.wire`) with the memory of both sides in
`open`, and lets its engines copy and send over it; the judge says when bytes move and what a cell holds.

Steps. A step of a side is `schedule`, `launch` (the workers begin: transfers are started here) and `complete` (first
the side learns what its worker reports, then it gets the tokens). Between launch and complete the judge executes the
step in the memory: it reads every position before a chunk, which must be the KV of the request's own tokens, and writes
those of the chunk. One step of a side is under way at a time; requests come and are aborted between any two calls.

A pair with `claims_first` gets a request on both sides at once: DECODE may claim before there is an offer, and PREFILL
may wait for that before it computes. With `sends_token`, DECODE has the first token of a request together with its KV.

Offers. A request of PREFILL with `is_offered` generates one token. When it has ended by itself, it has an `Offer` or
none. Its blocks stay in its table (`observe`) for as long as they are held for a reader; so do those of an aborted
request of DECODE into which a transfer may still write. A table that is gone says that its blocks are given back.

Numbers. Requests are numbers, different on both sides. Errors are as in `protocol.manager`. An adapter reports what the
engines did, and decides nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

from kvproof.check.protocol.adapter_check import RequiredCalls, calls_of
from kvproof.check.protocol.capabilities import PairCan
from kvproof.check.protocol.features import Setting, smaller_sizes
from kvproof.check.protocol.manager import Assumption, Config, Observation
from kvproof.check.protocol.scheduler import Chunk
from kvproof.check.protocol.wire import Copy, Wire

PREFILL, DECODE = SIDES = 0, 1
SIDE_NAMES = "prefill", "decode"
CALM, SLOW, LOSSY, DEADLY = WEATHERS = "calm", "slow", "lossy", "deadly"


@dataclass(frozen=True)
class PairConfig(Config):
    """One configuration of a pair. `block_size` and `num_gpu_blocks` are those of PREFILL.

    weather: what may happen beyond a calm day, on which all arrives and no lease runs out. On a slow one leases may run
    out; on a lossy one, moreover, transfers and jobs may fail and messages may be lost or doubled; on a deadly one,
    moreover, a side may die, and starts again with nothing.
    """

    weather: str = CALM  # calm, slow, lossy or deadly, as above
    decode_block_size: int = 0  # slots of a block of DECODE; 0: as many as of PREFILL
    decode_blocks: int = 0  # blocks of DECODE; 0: as many as of PREFILL
    prefill_ranks: int = 1  # devices that share the KV of PREFILL, each with some of the heads
    decode_ranks: int = 1  # and of DECODE
    num_heads: int = 1  # of the KV of a layer; 0: it has none, and each rank keeps all of it
    load_failures: str = ""  # what becomes of a request whose claim is lost, by the engine's name; empty: its default
    max_model_len: int = 24  # tokens of one request at most
    max_num_batched_tokens: int = 64  # tokens computed in one step of a side

    def num_blocks(self, side: int) -> int:
        """The blocks of a side."""
        return self.decode_blocks or self.num_gpu_blocks if side == DECODE else self.num_gpu_blocks

    def slots(self, side: int) -> int:
        """The token slots of a block of a side."""
        return self.decode_block_size or self.block_size if side == DECODE else self.block_size

    def num_ranks(self, side: int) -> int:
        """The ranks of a side."""
        return self.decode_ranks if side == DECODE else self.prefill_ranks

    @property
    def shares_heads(self) -> bool:
        """Whether the ranks of each side can share the heads: each has as many, or each head as many ranks."""
        heads = max(1, self.num_heads)
        return all(heads % ranks == 0 or ranks % heads == 0 for ranks in (self.prefill_ranks, self.decode_ranks))

    def heads(self, side: int, rank: int) -> tuple[int, ...]:
        """The heads that a rank of a side keeps: as many as each other one; one, if there are more ranks than heads."""
        num, ranks = max(1, self.num_heads), self.num_ranks(side)
        first = rank * num // ranks
        return tuple(range(first, first + max(1, num // ranks)))

    def has_weather(self, weather: str) -> bool:
        """Whether what happens in this weather may happen."""
        return WEATHERS.index(self.weather) >= WEATHERS.index(weather)

    def as_dict(self) -> dict[str, Any]:
        """The fields that differ from their defaults, by name."""
        default = asdict(PairConfig())
        return {name: value for name, value in asdict(self).items() if value != default[name]}


def _fewer_ranks(number: int) -> list[int]:
    """Numbers of ranks that share what so many can share."""
    return [fewer for fewer in range(1, number) if number % fewer == 0]


PAIR_SETTINGS = (
    Setting("weather", lambda config: WEATHERS[: WEATHERS.index(config.weather)], rank=WEATHERS.index),
    Setting("decode_block_size", lambda config: (0,), least=0),
    Setting("decode_blocks", lambda config: (0, *smaller_sizes(1, config.decode_blocks)), least=0),
    Setting("prefill_ranks", lambda config: _fewer_ranks(config.prefill_ranks), least=1),
    Setting("decode_ranks", lambda config: _fewer_ranks(config.decode_ranks), least=1),
    Setting("num_heads", lambda config: (1, 2) if config.num_heads > 2 else (1,), least=0),
    Setting("load_failures", lambda config: ("",), rank=lambda policy: policy != ""),
    Setting("max_model_len", lambda config: smaller_sizes(2, config.max_model_len), least=2),
)


class Offer(NamedTuple):
    """What a request of PREFILL left for a reader, as its engine reports it to the router.

    num_tokens: the positions whose KV there is. blocks: those that have it, in the order of positions. until: the time
    of the wire's clock at which it is given up; None if it has no end.
    """

    num_tokens: int
    blocks: list[int]
    until: float | None = None


class PairLoad(NamedTuple):
    """A request of DECODE got its table, and waits for KV. Its first `hit` positions are its own; the others up to
    `stop - 1` are claimed from the offer."""

    request: int
    hit: int
    stop: int


class Reported(NamedTuple):
    """What a side learnt from its worker: before it completed a step, or before it decided one.

    received: requests whose claim has arrived, so that what was claimed counts as computed. lost: those whose claim was
    lost, whether the rest is computed or the request ended. failed: requests that it ended with an error.
    """

    received: Sequence[int] = ()
    lost: Sequence[int] = ()
    failed: Sequence[int] = ()


class PairStep(NamedTuple):
    """What a side does next. chunks: see `protocol.scheduler`; `seq` is the request. loads: the claims that begin.

    reported: what it learnt before, if it asks its worker when it decides, not when it completes a step.
    """

    chunks: Sequence[Chunk]
    loads: Sequence[PairLoad] = ()
    reported: Reported = Reported()


class Sent(NamedTuple):
    """A message on the wire; see `protocol.wire.Message`."""

    number: int
    to: int
    kind: str
    offers: Sequence[int]
    rank: int = 0
    speakers: Sequence[int] = ()


class Layer(NamedTuple):
    """The memory of one layer on one rank of a side; see `protocol.wire.Memory`. cell_bytes: of one head of a cell."""

    side: int
    cell_bytes: int
    rank: int = 0
    layer: int = 0
    heads: Sequence[int] = (0,)
    arrival_slots: int = 0


class Piece(NamedTuple):
    """A copy of a transfer: so many bytes. source, target: a side, the place among its own `layers`, and the first byte
    there; the side is -1 if no memory has the address."""

    source: tuple[int, int, int]
    target: tuple[int, int, int]
    length: int


class OnWire(NamedTuple):
    """What is on the wire. begun: the numbers of new transfers, each with its copies. messages: those under way."""

    begun: Sequence[tuple[int, Sequence[Piece]]]
    messages: Sequence[Sent]


class PairSubject(Protocol):
    """A pair of engines behind an adapter."""

    name: str
    assumptions: tuple[Assumption, ...]

    @property
    def capabilities(self) -> PairCan:
        """What it declares that it can do."""

    def open(self, config: PairConfig) -> None:
        """Make two new engines without requests and a new `wire` with their memory. Raises Unsupported."""

    def add_request(
        self, side: int, request: int, tokens: list[int], max_tokens: int, is_offered: bool, offer: int | None
    ) -> None:
        """A request arrives at a side, and generates `max_tokens` tokens.

        is_offered: its KV is offered when it has ended; only at PREFILL. offer: the number of the request of PREFILL
        with the same tokens whose offer the router gave it, only at DECODE; that offer may be over by now.
        """

    def abort(self, side: int, request: int) -> None:
        """The user has left. This can happen at any time while the request is not over."""

    def schedule(self, side: int) -> PairStep:
        """Decide the next step of a side."""

    def launch(self, side: int) -> None:
        """The worker of a side begins the step that was scheduled: it learns of offers and claims, and may copy."""

    def complete(self, side: int, sampled: dict[int, int]) -> Reported:
        """The step is executed: the side learns what its worker reports, then each request gets its token."""

    def offer_of(self, request: int) -> Offer | None:
        """What the request of PREFILL offers. Asked once, after the step in which it has ended by itself."""

    def deadlines(self) -> Mapping[int, float | list[float | None]]:
        """When the offers that are held end now, by their requests; those without an end are left out.

        If the ranks of PREFILL do not agree, the time of each rank; None if it says nothing now.
        """

    def jobs(self) -> list[str]:
        """What the engines would do in the background now, in the order in which it was begun: names for reports."""

    def work(self, job: int, fails: bool) -> None:
        """Do the job at this place of `jobs`, or let it fail, and forget it."""

    def kept(self, side: int) -> dict[str, list[str]]:
        """The records of requests on a side, in scheduler and worker: for each that is not empty, what is in it."""

    def observe(self) -> tuple[Observation, Observation]:
        """The pools of both sides. `tables` has the blocks of each request that holds some. Changes nothing."""

    def layers(self) -> list[Layer]:
        """The memory of both sides, a layer of a rank each. `PairAdapter` has the rest."""

    def on_wire(self, after: int) -> OnWire:
        """What is on the wire, with the transfers whose numbers are above this one."""

    def move(self, transfer: int, num_copies: int | None) -> None:
        """A transfer moves its bytes: all of them, or only so many copies, and then it has failed."""

    def deliver(self, message: int, again: bool) -> None:
        """A message arrives, and is sent once more if it arrives again."""

    def lose(self, message: int) -> None:
        """A message is lost."""

    def tick(self, seconds: int) -> None:
        """Time passes for both sides."""

    def read_cells(self, side: int, cells: list[int]) -> list[int | None]:
        """What cells hold in every layer and head, counted through all blocks; None if not the same everywhere."""

    def write_cells(self, side: int, cells: list[int], numbers: list[int]) -> None:
        """Let cells hold these numbers in every layer."""

    def wipe(self, side: int) -> None:
        """A side is gone: its memory, and what was sent to it."""


class MortalPairSubject(PairSubject, Protocol):
    """A pair whose sides may die (`dies`)."""

    def die(self, side: int) -> None:
        """The engine of a side is gone with all that it had, and a new one begins with the same memory."""


class PairAdapter:
    """A base for adapters of pairs: what the judge does to the wire and the memory."""

    assumptions: tuple[Assumption, ...] = ()
    wire: Wire

    def layers(self) -> list[Layer]:
        """The memory of both sides."""
        return [
            Layer(one.side, one.cell_bytes, one.rank, one.layer, one.heads, one.arrival_slots)
            for one in self.wire.memories
        ]

    def on_wire(self, after: int) -> OnWire:
        """What is on the wire."""
        wire = self.wire
        begun = [
            (number, [self._piece(copy) for copy in wire.transfers[number].copies])
            for number in range(after + 1, wire.num_begun + 1)
        ]
        sent = [
            Sent(number, one.to, one.kind, one.offers, one.rank, one.speakers) for number, one in wire.messages.items()
        ]
        return OnWire(begun, sent)

    def _piece(self, copy: Copy) -> Piece:
        return Piece(self.wire.place_of(copy.source), self.wire.place_of(copy.target), copy.length)

    def move(self, transfer: int, num_copies: int | None) -> None:
        """A transfer moves its bytes."""
        self.wire.land(transfer, num_copies)

    def deliver(self, message: int, again: bool) -> None:
        """A message arrives."""
        one = self.wire.deliver(message)
        if again:
            self.wire.send(one)

    def lose(self, message: int) -> None:
        """A message is lost."""
        del self.wire.messages[message]

    def tick(self, seconds: int) -> None:
        """Time passes."""
        self.wire.now += seconds

    def read_cells(self, side: int, cells: list[int]) -> list[int | None]:
        """What cells hold in every layer."""
        layers = [memory for memory in self.wire.memories if memory.side == side]
        found = []
        for cell in cells:
            numbers = {memory.read(cell) for memory in layers}
            found.append(numbers.pop() if len(numbers) == 1 else None)
        return found

    def write_cells(self, side: int, cells: list[int], numbers: list[int]) -> None:
        """Let cells hold these numbers in every layer."""
        for memory in self.wire.memories:
            if memory.side == side:
                for cell, number in zip(cells, numbers, strict=True):
                    memory.write(cell, number)

    def wipe(self, side: int) -> None:
        """A side is gone."""
        self.wire.wipe(side)


PAIR_CALLS = RequiredCalls(
    "pair of engines",
    calls_of(PairSubject),
    declared=(("dies", "has sides that may die", calls_of(MortalPairSubject)),),
    marks=("offer_of", "deadlines", "kept"),
)
