"""What the judge of pairs keeps of each request, offer and claim."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kvproof.check.protocol.pair import Piece


@dataclass
class Request:
    """A request of one side.

    identities: of each position that has a token. num_prompt: tokens of the prompt. num_computed: positions whose KV
    the side has written. offer: the request of PREFILL whose offer it got. is_offered: it makes an offer when it ends.
    made_offer: it has. is_routed: that was given to DECODE.
    """

    number: int
    side: int
    tokens: list[int]
    identities: list[int]
    num_prompt: int
    max_tokens: int
    offer: int | None = None
    is_offered: bool = False
    made_offer: bool = False
    is_routed: bool = False
    is_over: bool = False
    num_computed: int = 0

    @property
    def num_generated(self) -> int:
        """The tokens that it has generated."""
        return len(self.tokens) - self.num_prompt


@dataclass
class OpenOffer:
    """An offer whose blocks are held. pins: of each unit, and each rank of DECODE that may read it, the newest last.

    Of each rank of PREFILL: owners: who has its pins; until: the end of the newest ones; deadlines: what it says now,
    which may be later than `until`, as a pin is renewed when its time is over.
    """

    request: int
    owners: list[int]
    blocks: list[int]
    pins: dict[tuple[int, int], list[int]]
    until: list[int]
    deadlines: list[int]

    @property
    def first_deadline(self) -> int:
        """When the first rank gives it up; -1 if none does."""
        return min((one for one in self.deadlines if one >= 0), default=-1)

    @property
    def last_deadline(self) -> int:
        """When the last rank gives it up; -1 if one never does."""
        return -1 if -1 in self.deadlines else max(self.deadlines)


@dataclass
class Claim:
    """A claim whose blocks are reserved. writes: the pin of each unit. stop: the positions that it wants end there.

    is_withdrawn: its request was aborted. lost_source: a transfer for it began when its offer was over. is_void: one
    that repeats another one was under way then. writers: of each unit that is or will be written, the rank of PREFILL.
    """

    request: int
    offer: int
    owner: int
    hit: int
    stop: int
    blocks: list[int]
    writes: dict[int, int]
    is_withdrawn: bool = False
    lost_source: bool = False
    is_void: bool = False
    writers: dict[int, int] = field(default_factory=dict)


@dataclass
class Flights:
    """A transfer under way: its copies, and what it moves in the specification.

    repeated: what it writes as another rank of PREFILL, which keeps the same, has done or does: the offer that it
    reads, the unit of PREFILL, and that of DECODE.
    """

    pieces: Sequence[Piece]
    flights: list[int] = field(default_factory=list)
    repeated: list[tuple[int, int, int]] = field(default_factory=list)
