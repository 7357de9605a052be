"""The operations of pairs of engines: what users, the router, the model, the network and the clock do to them."""

from collections.abc import Iterator
from typing import ClassVar

from msgspec import UNSET, UnsetType

from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.operations import (
    Count,
    Ids,
    Positive,
    TypedOperation,
    one_or_one_less,
    simpler_tokens,
    smaller_numbers,
    tokens_text,
)
from kvproof.check.protocol.pair import DEADLY, LOSSY, SIDE_NAMES, PairConfig


class PairOperation(TypedOperation, frozen=True):
    """What users, the router, the model, the network and the clock do to a pair."""


class OfSide(PairOperation, frozen=True):
    """Something that happens on a side."""

    side: Count

    def text(self, config: Config) -> str:
        return f"{self.name()}({SIDE_NAMES[self.side % 2]})"


class OfPrompt(PairOperation, frozen=True):
    """A request comes."""

    request: int
    tokens: Ids
    max_tokens: Positive

    def simpler(self) -> Iterator["OfPrompt"]:
        yield from (self.changed(tokens=tokens) for tokens in simpler_tokens(self.tokens))
        yield from (self.changed(max_tokens=number) for number in smaller_numbers(self.max_tokens))


class Prompt(PairOperation, tag="prompt", frozen=True):
    """A request comes to PREFILL, whose KV is for DECODE."""

    request: int
    tokens: Ids

    def simpler(self) -> Iterator["Prompt"]:
        yield from (self.changed(tokens=tokens) for tokens in simpler_tokens(self.tokens))

    def text(self, config: Config) -> str:
        return f"prompt(request {self.request}, {tokens_text(self.tokens)})"


class Route(PairOperation, tag="route", frozen=True):
    """The router sends the request to DECODE under another number, with its offer."""

    offer: int
    request: int
    max_tokens: Positive

    def simpler(self) -> Iterator["Route"]:
        yield from (self.changed(max_tokens=number) for number in smaller_numbers(self.max_tokens))


class Local(OfPrompt, tag="local", frozen=True):
    """A request comes to a side, and concerns nobody else."""

    is_optional: ClassVar[bool] = True
    side: Count = 0

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return can.local

    def text(self, config: Config) -> str:
        tokens = tokens_text(self.tokens)
        return f"local({SIDE_NAMES[self.side % 2]}, request {self.request}, {tokens}, {self.max_tokens} to generate)"


class Quit(PairOperation, tag="quit", frozen=True):
    """The user of a request leaves."""

    is_optional: ClassVar[bool] = True
    request: int


class Schedule(OfSide, tag="schedule_side", frozen=True):
    """A side decides its next step."""


class Launch(OfSide, tag="launch_side", frozen=True):
    """Its worker begins the step, and the model executes it."""


class Complete(OfSide, tag="complete_side", frozen=True):
    """The side gets what its worker reports, and the tokens."""


class Arrive(PairOperation, tag="arrive", frozen=True):
    """A transfer has moved its bytes; or, on a lossy day, only the first `num_copies` of its copies, and has failed."""

    transfer: int
    num_copies: Count | UnsetType = UNSET

    def simpler(self) -> Iterator["Arrive"]:
        if self.num_copies is not UNSET:
            yield Arrive(self.transfer)
            yield from (Arrive(self.transfer, number) for number in (0,) if number < self.num_copies)

    def text(self, config: Config) -> str:
        failed = "" if self.num_copies is UNSET else f" fails after {self.num_copies} copies"
        return f"arrive(transfer {self.transfer}{failed})"


class Deliver(PairOperation, tag="deliver", frozen=True):
    """The network delivers a message."""

    message: int


class Repeat(PairOperation, tag="repeat", frozen=True):
    """The network delivers a message, and will deliver it once more."""

    is_optional: ClassVar[bool] = True
    message: int

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return can.doubles and isinstance(config, PairConfig) and config.has_weather(LOSSY)


class Lose(Repeat, tag="lose", frozen=True):
    """The network loses a message."""

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return can.loses and isinstance(config, PairConfig) and config.has_weather(LOSSY)


class Work(PairOperation, tag="work", frozen=True):
    """An engine does what it has to do in the background: the job at this place."""

    job: Count


class WorkInVain(Work, tag="work_in_vain", frozen=True):
    """And that fails."""

    is_optional: ClassVar[bool] = True

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return isinstance(config, PairConfig) and config.has_weather(LOSSY)


class Pass(PairOperation, tag="pass", frozen=True):
    """Time passes."""

    is_optional: ClassVar[bool] = True
    seconds: Positive

    def simpler(self) -> Iterator["Pass"]:
        yield from (self.changed(seconds=seconds) for seconds in one_or_one_less(self.seconds))


class Die(OfSide, tag="die", frozen=True):
    """An engine dies, and another one takes its place."""

    is_optional: ClassVar[bool] = True

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return can.dies and isinstance(config, PairConfig) and config.has_weather(DEADLY)


class Rest(PairOperation, tag="rest", frozen=True):
    """From now on the network is fair and nobody comes or leaves: all requests end, and nothing is left of them."""

    is_optional: ClassVar[bool] = True
