"""What a block manager must offer to be judged at manager level, and what each call shows.

A subject is a manager behind an adapter. The judge owns the truth (tokens, keys, what was computed) and tells the
adapter of it; the adapter owns the engine's objects. Block ids are absolute: GPU block b is b, host block b is
`num_gpu_blocks + b`; the null block is -1. Pairs of a swap are device-relative, as the manager emitted them.

An adapter raises `Unsupported` in `open` for a configuration its manager cannot have, and `OutsideContract` from a call
that the engine's own documentation rules out. Any other exception, from any call, is a finding about the subject. A
call that the manager may refuse returns `Refused`.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum, IntEnum
from typing import Any, NamedTuple, Protocol

from kvproof.spec.text.identity import Image, Key

NULL_BLOCK = -1
FULL, WINDOW = KINDS = "full", "window"  # what layers of a KV group read back: all, or so many tokens
Pair = tuple[int, int]


class Admission(Enum):
    """What a manager answers before a call: it succeeds, not now, or never in this pool."""

    OK = "OK"
    LATER = "LATER"
    NEVER = "NEVER"


class PromptKeys(IntEnum):
    """What the prompts of a run may differ in, in addition to their tokens. Shown by its number, as in a trace file."""

    TOKENS = 1  # nothing
    ADAPTERS = 2
    ADAPTERS_AND_SALTS = 3

    __repr__ = int.__repr__
    __str__ = int.__str__


class Unsupported(Exception):
    """The subject cannot be put into this configuration."""


class OutsideContract(Exception):
    """An adapter says: this call breaks a precondition that the engine documents. No fault of the engine."""

    def __init__(self, assumption: str, sentence: str) -> None:
        super().__init__(assumption, sentence)
        self.assumption, self.sentence = assumption, sentence


@dataclass(frozen=True)
class Config:
    """One configuration of a manager. Sizes in blocks and tokens; the watermark is a fraction of the GPU blocks."""

    block_size: int = 4
    num_gpu_blocks: int = 8
    num_host_blocks: int = 0
    watermark: float = 0.0
    window: int | None = None  # tokens
    caching: bool = False
    lookahead: int = 0  # slots beyond the known tokens, contents undefined
    chunked: bool = False  # a prompt may be computed in several steps
    group_size: int = 1  # sequences of a new group
    keys: PromptKeys = PromptKeys.TOKENS
    images: bool = False
    cross: bool = False  # groups may have an encoder sequence with a cross-attention table
    kv_groups: tuple[str, ...] = ("full",)  # of layers, each with its tables; of several, those of "window" have it

    @property
    def windows(self) -> tuple[int, ...]:
        """For each KV group, how many tokens its layers read back, 0 for all; a group that is alone has the window."""
        if len(self.kv_groups) == 1:
            return (self.window or 0,)
        return tuple((self.window or 0) if kind == WINDOW else 0 for kind in self.kv_groups)

    def as_dict(self) -> dict[str, Any]:
        """The fields that differ from the default."""
        default = asdict(Config())
        return {name: value for name, value in asdict(self).items() if value != default[name]}


@dataclass(frozen=True)
class Capabilities:
    """What the subject can do. What it cannot do is unsupported, never passed."""

    has_admission_query: bool = True  # can_x must say OK before x; else x itself answers Refused
    swap: bool = False
    fork: bool = False
    window: bool = False
    caching: bool = False
    window_with_caching: bool = False
    lookahead: bool = False
    chunked: bool = False
    adapters: bool = False
    salts: bool = False
    images: bool = False
    cross: bool = False  # cross-attention tables
    reset: bool = False
    waiting_groups: bool = False  # a group may hold several sequences before it is admitted
    watermark: bool = False
    window_drop_when_refused: bool = False  # a refused append may still drop what no one can read
    ordered_steps: bool = False  # a step appends and swaps out first, then swaps in, then admits
    block_aligned_chunks: bool = False  # with caching, every chunk of a prompt but the last ends where a block ends
    evicts_lru: bool = False  # its policy: the least recently used first, among equals the longest prefix
    same_step_hits: bool = False  # a hit may name blocks computed in the very step of the reader
    async_steps: int = 0  # of a scheduler: steps that may be under way when the next one is scheduled
    aborts: bool = True  # of a scheduler: a request may be aborted at any time
    bounds_only_steps: bool = False  # of a scheduler: its limit of sequences is one of a step, not of all that run
    runs_ahead: bool = False  # of a scheduler: it launches a step before it looks at the results of the one before
    forks_itself: bool = False  # of a scheduler: of several sequences it computes one, and forks it when it sees fit
    transfers: bool = False  # of a scheduler: KV comes from elsewhere and is sent there while steps run
    steps_in_order: bool = False  # the device starts no step before the one before has ended
    kv_groups: bool = False  # several groups of layers, each with tables of its own, over one pool of GPU blocks
    dedups_after_step: bool = False  # after a step, blocks that it filled may give way to cached ones of equal content


@dataclass(frozen=True)
class Assumption:
    """A precondition of the subject that the judge keeps, printed with every verdict."""

    name: str
    sentence: str


class Refused(NamedTuple):
    """The manager did not do what it was asked, and says so."""

    reason: str = ""


class Admitted(NamedTuple):
    """A group was admitted. hit: tokens of the prompt that need not be computed."""

    hit: int = 0


class Reserved(NamedTuple):
    """Slots for more tokens were given. copies: pairs (source, target) the worker shall copy first, absolute ids."""

    copies: Sequence[Pair] = ()


class Scheduled(NamedTuple):
    """One sequence of a step: `num_tokens` tokens are computed, up to position `stop`."""

    seq: int
    num_tokens: int
    stop: int


class Observation(NamedTuple):
    """What the subject shows after a call.

    tables: for each sequence that has one (cross-attention tables under the encoder sequence), per KV group, block
    ids. free: blocks that could be taken, per device (GPU, host), as the subject counts them. reserved: ids the
    manager keeps for itself. refs: refcount of each block over both devices, reserved ones 0; None where it cannot
    be seen. free_ids: all free or evictable ids, duplicates kept; None where it cannot be seen.
    """

    tables: dict[int, list[list[int]]]
    free: tuple[int, int]
    reserved: tuple[int, ...] = ()
    refs: list[int] | None = None
    free_ids: list[int] | None = None


class ManagerSubject(Protocol):
    """A block manager behind an adapter."""

    name: str
    capabilities: Capabilities
    assumptions: tuple[Assumption, ...]

    def open(self, config: Config) -> None:
        """Make a new, idle manager. Raises Unsupported."""

    def new(self, group: int, seqs: list[int], tokens: list[int], key: Key, images: tuple[Image, ...]) -> None:
        """A group of waiting sequences with the same prompt exists."""

    def new_encoder(self, group: int, seq: int, tokens: list[int]) -> None:
        """The group, still waiting, has an encoder sequence: admission gives it a cross-attention table."""

    def grow(self, seq: int, token: int) -> None:
        """A token was sampled; it has no slot yet."""

    def hits(self, group: int) -> int:
        """Look a waiting group up: tokens of its prompt that need not be computed."""

    def forget(self, group: int) -> None:
        """The group was looked up, and not admitted."""

    def can_admit(self, group: int) -> Admission:
        """Whether `admit` would succeed."""

    def can_append(self, group: int) -> bool:
        """Whether every running sequence of the group gets a slot for one token, and its lookahead slots."""

    def can_swap_out(self, group: int) -> Admission:
        """Whether `swap_out` would succeed."""

    def can_swap_in(self, group: int) -> Admission:
        """Whether `swap_in` would succeed, and the append of the same step after it."""

    def admit(self, group: int, num_tokens: int) -> Admitted | Refused:
        """Give a waiting group its tables, for at least the first `num_tokens` tokens that are not hit."""

    def reserve(self, seq: int, num_tokens: int) -> Reserved | Refused:
        """Give a running sequence slots for its next `num_tokens` tokens."""

    def fork(self, parent: int, child: int) -> None:
        """A new running sequence of the same group shares every block of its parent."""

    def free(self, seq: int) -> None:
        """The sequence is over."""

    def preempt(self, group: int) -> None:
        """The group waits again, with its tokens and without blocks."""

    def swap_out(self, group: int) -> list[Pair]:
        """Move the group to host blocks: (GPU block, host block), device-relative."""

    def swap_in(self, group: int) -> list[Pair]:
        """Move the group to GPU blocks: (host block, GPU block), device-relative."""

    def step_scheduled(self, step: list[Scheduled], now: int) -> None:
        """What an engine tells its manager before the step is launched."""

    def step_done(self, step: list[Scheduled]) -> None:
        """The worker has executed the step."""

    def reset_cache(self) -> bool:
        """Forget the prefix cache; False if blocks are in use."""

    def observe(self) -> Observation:
        """What the manager shows. Changes nothing."""
