"""The protocol of a block manager: the calls that it must offer to be judged, and what each call returns.

A *subject* is a manager behind an adapter. The judge owns the expected state: which sequences exist, their tokens and
keys, and what was computed. It passes all of this to the adapter. The adapter owns the engine's objects, hands each
call on to them, and decides nothing.

Numbers. Groups and sequences are numbers that the judge chooses. Block ids are absolute: GPU block b is b, host block b
is `num_gpu_blocks + b`, and the null block (a table entry without a block) is -1. Only the pairs of a swap are relative
to their device, because that is how managers emit them. Lengths and positions are in tokens, sizes of pools in blocks.

Large pools. A subject of any level may also have `observe_part(seqs)`: an `Observation` with the tables of these
sequences only, the counts of free blocks and the reserved blocks, without refcounts and free ids. The judge of a large
pool asks for this after most calls, and for a complete observation at intervals. Without `observe_part` it asks for
complete ones, which takes longer the more blocks there are.

Common blocks. A subject that declares `common_blocks` has a call of this name: given running sequences, it returns the
ids of the computed blocks with which all their tables begin.

Named prefixes. A subject that declares `prefixes` has a call `new_prefix(group, num_tokens)`: the waiting group names
the first tokens of its prompt as a prefix. The first group with this prefix, that is with these tokens, key and images,
allocates its full blocks, and they stay allocated when the group is over. Later groups share them, and an admission
reports them as its hit once a step has computed them.

KV from elsewhere. A subject that declares `loads` has a call `new_elsewhere(group, num_tokens)`: of the first tokens of
the waiting group there is KV elsewhere. An admission reports what is loaded behind its hit (`Admitted.loaded`); the
worker writes it with the step. With `Config.loads` 1 the same step computes the next tokens; with 2 it computes nothing
of this sequence, and nobody may hit what is loaded before `step_done`.

Events. A subject that declares `block_events` has the calls `block_events` and `block_names` (`protocol.block_events`).

Own memory. A subject that declares `records_kept` also has `num_records()`: how many records the manager keeps now
(`protocol.records` counts them for any object).

Errors. `open` raises `Unsupported` for a configuration that the manager cannot have. Any other call than an observation
may raise `OutsideContract` if the engine's documentation rules that call out (`protocol.outside_contract`). A call that
the manager may refuse returns `Refused`. Any other exception, from any call, is a finding about the subject.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum, IntEnum
from math import lcm
from typing import Any, NamedTuple, Protocol

from kvproof.check.protocol.capabilities import Capabilities as Capabilities  # adapters may import it from here
from kvproof.check.protocol.capabilities import ManagerCan
from kvproof.spec.text.identity import Image, Key
from kvproof.spec.text.kv_groups import STATE_WINDOW, Layout

NULL_BLOCK = -1
# What the layers of a KV group attend to: every token, the last ones, those of the same chunk; or they have a state
FULL, WINDOW, LOCAL, STATE = KINDS = "full", "window", "local", "state"
Pair = tuple[int, int]  # source block, target block


class Admission(Enum):
    """The answer of a manager that is asked before a call: the call would succeed, not now, or never in this pool."""

    OK = "OK"
    LATER = "LATER"
    NEVER = "NEVER"

    def __repr__(self) -> str:
        return self.value  # messages print answers, and those that contain them


class PromptKeys(IntEnum):
    """What the prompts of a run may differ in, in addition to their tokens. Shown by its number, as in a trace file."""

    TOKENS = 1  # nothing
    ADAPTERS = 2
    ADAPTERS_AND_SALTS = 3

    __repr__ = int.__repr__
    __str__ = int.__str__


class Unsupported(Exception):
    """The subject cannot be opened in this configuration. The run is skipped; nothing is refuted."""


class OutsideContract(Exception):
    """The call breaks a precondition that the engine documents, so that its result is no fault of the engine.

    assumption: the name of the precondition, one of `assumptions`. sentence: what it says, for the report.
    """

    def __init__(self, assumption: str, sentence: str) -> None:
        super().__init__(assumption, sentence)
        self.assumption, self.sentence = assumption, sentence


@dataclass(frozen=True)
class Config:
    """One configuration of a manager.

    The default of each field switches its feature off; `protocol.features` has a row for each.
    """

    block_size: int = 4  # tokens; with KV groups of different sizes, their least common multiple
    num_gpu_blocks: int = 8  # blocks of the GPU
    num_host_blocks: int = 0  # blocks of the host; 0: nothing is swapped
    watermark: float = 0.0  # fraction of the GPU blocks that an admission must leave free
    window: int | None = None  # tokens that a sequence attends to; None: all
    caching: bool = False  # the prefix cache is on
    lookahead: int = 0  # slots reserved beyond the known tokens; their contents are undefined
    chunked: bool = False  # a prompt may be computed in several steps
    group_size: int = 1  # sequences of a new group
    keys: PromptKeys = PromptKeys.TOKENS  # what prompts may differ in: tokens, adapters, salts
    images: bool = False  # prompts may have images
    cross: bool = False  # groups may have an encoder sequence, with a cross-attention table
    kv_groups: tuple[str, ...] = (FULL,)  # for each group of layers with its own tables, its kind, or kind:block size
    drafting: bool = False  # with a draft model: of the blocks found in the cache, the last is computed again
    local_chunk: int | None = None  # tokens of a chunk of local attention: a token attends to its own chunk
    hash_seed: int = 0  # what hashes of contents begin with; the answers must not depend on it
    prefixes: bool = False  # groups may name a prefix of their prompt, whose blocks the manager keeps for later groups
    retention: int | None = None  # how often what only windows and states read stays cached, in tokens; None: always
    embeddings: bool = False  # prompts may be embeddings, for which an image that covers the prompt stands
    ranks: int = 1  # devices that share the tokens of each block: it has a page on each (context parallelism)
    events: int = 0  # what is reported of the prefix cache: 0 nothing, 1 its changes, 2 also the blocks that are hit
    loads: int = 0  # of KV from elsewhere: 0 none, 1 within the step that computes the next tokens, 2 in a step before

    @property
    def windows(self) -> tuple[int, ...]:
        """For each KV group, how far back its layers attend, as `spec.text.state.first_read` takes it.

        That is the number of tokens of a window, 0 for all tokens, and -c for chunks of c tokens. A state has a window
        of two tokens. A single group has the window or the chunks, if any.
        """
        if len(self.kv_groups) == 1 and not self.has_states:
            return (self.window or -(self.local_chunk or 0),)
        reach = {FULL: 0, WINDOW: self.window or 0, LOCAL: -(self.local_chunk or 0), STATE: STATE_WINDOW}
        return tuple(reach[kind] for kind in self.kinds)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each KV group."""
        return tuple(entry.partition(":")[0] for entry in self.kv_groups)

    @property
    def block_sizes(self) -> tuple[int, ...]:
        """The tokens of a block of each KV group. Raises ValueError if a size is no number."""
        return tuple(size_of(entry) or self.block_size for entry in self.kv_groups)

    @property
    def has_states(self) -> bool:
        """Whether a KV group has states."""
        return any(entry.startswith(STATE) for entry in self.kv_groups)

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """How tokens lie in the blocks of each KV group."""
        return tuple(
            Layout(self.block_size, size, kind == STATE, kind == STATE and not self.caching)
            for kind, size in zip(self.kinds, self.block_sizes, strict=True)
        )

    @property
    def forgets(self) -> bool:
        """Whether not all that only windows and states read has to stay cached (`spec.text.retention`)."""
        return self.caching and self.retention is not None and any(window > 0 for window in self.windows)

    @property
    def leaves_entries(self) -> bool:
        """Whether sequences give up blocks that their later tokens do not read."""
        return self.window is not None or self.local_chunk is not None or (self.caching and self.has_states)

    def as_dict(self) -> dict[str, Any]:
        """The fields that differ from their defaults, by name."""
        default = asdict(Config())
        return {name: value for name, value in asdict(self).items() if value != default[name]}


def size_of(entry: str) -> int:
    """The block size that an entry of `kv_groups` names, such as full:16; 0 if it names none. Raises ValueError."""
    _, colon, size = entry.partition(":")
    if colon and not (size.isdecimal() and int(size)):
        raise ValueError(f"a block size is a number of tokens, as in full:16; {entry} was given")
    return int(size) if colon else 0


def fault_of_kv_groups(config: Config) -> str:
    """What is wrong with the KV groups of a configuration; empty if nothing is."""
    if not config.kv_groups or not set(config.kinds) <= set(KINDS):
        return f"kv_groups are of {' or '.join(KINDS)}; {', '.join(config.kv_groups)} was given"
    try:
        sizes = config.block_sizes
    except ValueError as error:
        return str(error)
    if lcm(*sizes) != config.block_size:
        return (
            "block_size is the least common multiple of the sizes of the KV groups, "
            f"{', '.join(map(str, sizes))}; {config.block_size} was given"
        )
    if (config.has_states or ":" in "".join(config.kv_groups)) and config.cross:
        return "an encoder and KV groups with states or sizes are not judged together"
    return ""


def common_block_size(kv_groups: Iterable[str], block_size: int) -> int:
    """The block size of a configuration with these KV groups: the least common multiple of the sizes that they name.

    block_size: the answer if they name none. Raises ValueError if a size is no number.
    """
    sizes = [size_of(entry) for entry in kv_groups if ":" in entry]
    return lcm(*sizes) if sizes else block_size


@dataclass(frozen=True)
class Assumption:
    """A precondition of the subject that the judge respects. It is printed with every verdict."""

    name: str
    sentence: str


class Refused(NamedTuple):
    """The manager did not do what it was asked to do. Its observable state must be as before."""

    reason: str = ""


class Admitted(NamedTuple):
    """A group was admitted. hit: tokens of its prompt found in the prefix cache, which need not be computed.

    copies: as in `Reserved`; of a hit that ends within a block, the pair that copies this block is one of them. loaded:
    tokens behind the hit whose KV is loaded from elsewhere.
    """

    hit: int = 0
    copies: Sequence[Pair] = ()
    loaded: int = 0


class Reserved(NamedTuple):
    """Slots were reserved. copies: (source, target) pairs that the worker must copy before it writes, absolute ids."""

    copies: Sequence[Pair] = ()


class Scheduled(NamedTuple):
    """One sequence of a step. `num_tokens` tokens are computed; `stop` is the position after the last of them.

    What is loaded from elsewhere stands in the step as if it was computed, before what is computed behind it.
    """

    seq: int
    num_tokens: int
    stop: int


class Observation(NamedTuple):
    """The state that a subject shows after a call.

    tables: for each sequence that has blocks, one table per KV group, of absolute block ids; a cross-attention table
    stands under the number of the encoder sequence. free: the number of blocks that could be taken on each device (GPU,
    host), as the subject counts them. reserved: ids of blocks that the manager keeps for itself. refs: the refcount of
    each block, GPU blocks first, then host blocks, 0 for reserved ones; None if the manager does not show refcounts.
    free_ids: the ids of all free and evictable blocks, duplicates included, in any order; None if the manager does not
    show them. kept: ids of blocks that left the table of a live sequence, and that the manager does not give to others
    yet, such as those of a prefix that is locked as a whole (`keeps_behind_window`).
    """

    tables: dict[int, list[list[int]]]
    free: tuple[int, int]
    reserved: tuple[int, ...] = ()
    refs: list[int] | None = None
    free_ids: list[int] | None = None
    kept: tuple[int, ...] = ()


class ManagerSubject(Protocol):
    """A block manager behind an adapter.

    A group waits, then runs, may be swapped out and back, or preempted (it then waits again), until its sequences are
    freed. The judge never makes a call that needs a capability which the subject does not declare.
    """

    name: str
    assumptions: tuple[Assumption, ...]

    @property
    def capabilities(self) -> ManagerCan:
        """What it declares that it can do."""

    def open(self, config: Config) -> None:
        """Make a new, idle manager, and forget the old one. Raises Unsupported."""

    def new(self, group: int, seqs: list[int], tokens: list[int], key: Key, images: tuple[Image, ...]) -> None:
        """A group arrives and waits. All its sequences have the prompt `tokens`, and the same key and images."""

    def new_encoder(self, group: int, seq: int, tokens: list[int]) -> None:
        """The waiting group also has an encoder sequence, which gets a cross-attention table when it is admitted."""

    def grow(self, seq: int, token: int) -> None:
        """The model sampled a token for the sequence. The token has no slot yet."""

    def hits(self, group: int) -> int:
        """Look a waiting group up in the prefix cache, and return the tokens of its prompt that need no computation."""

    def forget(self, group: int) -> None:
        """The group was looked up, and was not admitted. Drop what the look-up kept."""

    def can_admit(self, group: int) -> bool | Admission:
        """Whether `admit` would succeed now."""

    def can_append(self, group: int) -> bool | Admission:
        """Whether each running sequence of the group would get a slot for one token, and its lookahead slots."""

    def can_swap_out(self, group: int) -> bool | Admission:
        """Whether `swap_out` would succeed now."""

    def can_swap_in(self, group: int) -> bool | Admission:
        """Whether `swap_in` would succeed now, and the append of the same step after it."""

    def admit(self, group: int, num_tokens: int) -> Admitted | Refused:
        """Give a waiting group its tables, at least for the first `num_tokens` tokens that are not hit."""

    def reserve(self, seq: int, num_tokens: int) -> Reserved | Refused:
        """Give a running sequence slots for its next `num_tokens` tokens."""

    def fork(self, parent: int, child: int) -> None:
        """Start the running sequence `child` in the group of `parent`. It shares every block of its parent."""

    def free(self, seq: int) -> None:
        """The sequence is over, waiting or running. Release its blocks."""

    def preempt(self, group: int) -> None:
        """Release the blocks of a running group. It waits again, and keeps its tokens.

        A swapped group keeps the table of its encoder on the host until it is admitted again, or is over.
        """

    def swap_out(self, group: int) -> list[Pair]:
        """Move a running group to host blocks. Returns (GPU block, host block) pairs, each relative to its device.

        The pairs may be in any order.
        """

    def swap_in(self, group: int) -> list[Pair]:
        """Move a swapped group to GPU blocks. Returns (host block, GPU block) pairs, each relative to its device.

        The pairs may be in any order.
        """

    def step_scheduled(self, step: list[Scheduled], now: int) -> None:
        """The step is about to be launched. now: seconds since the start of the run."""

    def step_done(self, step: list[Scheduled]) -> None:
        """The worker has executed the step."""

    def reset_cache(self) -> bool:
        """Forget the prefix cache. Returns False, and forgets nothing, if blocks are in use."""

    def observe(self) -> Observation:
        """The current state. Changes nothing, and returns copies."""
