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
    """An offer whose blocks are held. pins: of each unit, those of the offer, the newest last. until: of the newest.

    deadline: what the side says now; it may be later than `until`, as a pin is renewed when its time is over.
    """

    request: int
    owner: int
    blocks: list[int]
    pins: dict[int, list[int]]
    until: int
    deadline: int


@dataclass
class Claim:
    """A claim whose blocks are reserved. writes: the pin of each unit. stop: the positions that it wants end there.

    is_withdrawn: its request was aborted. lost_source: a transfer for it began when its offer was over.
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


@dataclass
class Flights:
    """A transfer under way: its copies, and what it moves in the specification."""

    pieces: Sequence[Piece]
    flights: list[int] = field(default_factory=list)
