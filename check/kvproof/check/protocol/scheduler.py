"""What a whole scheduler must offer to be judged at loop level, and what each step shows.

A subject is a scheduler with its block manager behind an adapter. The judge owns the truth (requests, tokens, keys) and
plays the model and its worker: it executes what a step says, samples tokens, and gives them back. A step is split into
`schedule`, `launch` and `complete`, so that requests can arrive and be aborted between any two of them.

A subject may fork by itself (`ForkingSubject`), and may run ahead (`AheadSubject`).

With `async_steps`, so many steps may be launched and not complete when the next one is scheduled. They complete in the
order in which they were launched. The next step may go on with a token that a step under way samples; a sequence that
turns out to be over has then run in vain, and what is sampled of it is not given back.

Ids and observations are those of `kvproof.check.protocol.manager`. An adapter raises `Unsupported` in `open` for a
configuration that its scheduler cannot have. Any other exception, from any call, is a finding about the subject.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

from kvproof.check.protocol.manager import Assumption, Capabilities, Config, Observation, Pair
from kvproof.spec.text.identity import Image, Key

PREEMPTION_MODES = ("auto", "recompute", "swap")


@dataclass(frozen=True)
class SchedulerConfig(Config):
    """One configuration of a scheduler and its manager. `group_size` bounds the sequences of a new request."""

    max_num_batched_tokens: int = 64  # computed in one step
    max_num_seqs: int = 16  # of one step; also running at once, but for those that forked
    max_model_len: int = 64  # tokens of one sequence; the engine ends a sequence that has as many
    preemption: str = "auto"
    async_steps: int = 0  # steps that may be under way when the next one is scheduled
    transfers: bool = False  # KV may come from elsewhere, or be sent there when a request is over, while steps run

    def as_dict(self) -> dict[str, Any]:
        """The fields that differ from the default."""
        default = asdict(SchedulerConfig())
        return {name: value for name, value in asdict(self).items() if value != default[name]}


class Chunk(NamedTuple):
    """A sequence of a step: its tokens from position `start` up to `stop` are computed.

    hit: where it is admitted, the tokens found in the prefix cache, whole blocks; it may be more than `start`, because
    the last token of a prompt is always computed. Sequences of one request that are admitted together share what the
    first one computes: for the others, start is stop.
    """

    seq: int
    start: int
    stop: int
    hit: int = 0


class Load(NamedTuple):
    """A sequence got its table, and waits: the KV of positions `hit` (so far it is cached) to `stop` is coming."""

    seq: int
    hit: int
    stop: int


class Step(NamedTuple):
    """What the scheduler wants done, in this order: swap in, swap out, copies, chunks.

    Pairs of a swap are device-relative, those of a copy absolute. chunks: in the order in which sequences got their
    slots. ignored: requests that it ended because no later step could run them. failed: requests that it ended because
    it could not make room for them. loads: of sequences that wait for KV from elsewhere, and are in no chunk yet.
    """

    chunks: Sequence[Chunk] = ()
    swap_in: Sequence[Pair] = ()
    swap_out: Sequence[Pair] = ()
    copies: Sequence[Pair] = ()
    ignored: Sequence[int] = ()
    failed: Sequence[int] = ()
    loads: Sequence[Load] = ()


class SchedulerSubject(Protocol):
    """A scheduler behind an adapter."""

    name: str
    capabilities: Capabilities
    assumptions: tuple[Assumption, ...]

    def open(self, config: SchedulerConfig) -> None:
        """Make a new scheduler without requests. Raises Unsupported."""

    def add_request(
        self,
        request: int,
        seqs: list[int],
        tokens: list[int],
        key: Key,
        images: tuple[Image, ...],
        max_tokens: int,
        encoder: tuple[int, list[int]] | None,
    ) -> None:
        """A request arrives: its sequences, their common prompt, and how many tokens each shall generate."""

    def abort(self, request: int) -> None:
        """The user has left. At any time; what a step under way still uses is given up when it completes."""

    def schedule(self) -> Step:
        """Decide the next step."""

    def launch(self) -> None:
        """The step scheduled last is being executed; with `async_steps`, another may be scheduled meanwhile."""

    def complete(self, sampled: dict[int, int], forks: list[tuple[int, int]], finished: list[int]) -> None:
        """The oldest step under way is executed. First each pair of `forks` (parent, child): the child has the
        parent's tokens. Then each sequence of `sampled` gets its token. Then those that are `finished` are over."""

    def observe(self) -> Observation:
        """What the block manager shows. Changes nothing."""


class AheadSubject(SchedulerSubject, Protocol):
    """A scheduler that launches a step before it looks at the results of the one before (`runs_ahead`)."""

    def computed(self, tokens: dict[int, int]) -> None:
        """With `async_steps`, after each launch: what the step samples of each sequence, as far as anybody wants it. It
        is on the device, for the next step to go on with; the scheduler learns of it when the step completes."""


class ForkingSubject(SchedulerSubject, Protocol):
    """A scheduler that forks a request of several sequences by itself (`forks_itself`). It is given all their ids."""

    def forked(self) -> tuple[list[tuple[int, int]], list[Pair]]:
        """Since it was asked last, after each complete: pairs (parent, child), and the copies made for those children
        that have tables, absolute ids. A child is a request from now on; its id is the negative of its sequence's."""


class TransferringSubject(SchedulerSubject, Protocol):
    """A scheduler that works with transfers, which run beside the steps. What a transfer uses stays held meanwhile."""

    def elsewhere(self, request: int, num_tokens: int, is_sent: bool) -> None:
        """Of a request that is about to be added: so many tokens of its prompt have KV elsewhere, in whole blocks; and
        whether its KV shall be sent when it has ended by itself."""

    def arrived(self, sent: list[int], received: list[int]) -> None:
        """The sequences whose KV has been sent, or has come, since the last `complete`; called before the next one."""
