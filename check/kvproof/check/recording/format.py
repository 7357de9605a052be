"""What a recording holds: a header, then one line for each call, strict JSON, UTF-8, each ended by a newline.

A line says what the call was about, what it answered or raised, and what the manager shows afterwards: the tables of
the sequences it was about and the free blocks of both devices. Block ids are absolute (host block b is
`num_gpu_blocks + b`), those of a swap's pairs relative to their device, -1 is the null block. Lists that grow are told
by what is new: tokens from `start` on, a table as the entries that are `kept` and those that follow them.

Tokens are numbers of which only equality is used: the token ids, or keyed digests. Whatever else KV depends on
(adapter, salt) is told as digests; an image as a digest and where it lies.
"""

import msgspec

SCHEMA_VERSION = 1
VLLM_V0, VLLM_V1 = "vllm-v0", "vllm-v1"
IDS, DIGESTS = "ids", "digests"
ENDED, STOPPED = "recording ended", "recording stopped"


class Table(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The table of a sequence in one KV group: so many entries of before are kept, and then come these."""

    kept: int
    rest: list[int]


class Picture(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """An image in a prompt: which, and the positions it takes."""

    name: str
    start: int
    length: int


class RecordedSequence(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A sequence that a call is about.

    tokens: those from position `start` on. num_computed: tokens that the engine counts as computed; of those,
    num_in_flight are computed by steps that are not over. is_prefill: its prompt is not computed yet. adapter, extra,
    images: what its KV depends on besides tokens. tables: one for each KV group; empty if it has none, None if the line
    does not tell.
    """

    seq: int
    start: int = 0
    tokens: list[int] = []
    num_computed: int = 0
    num_in_flight: int = 0
    is_prefill: bool = False
    adapter: int = 0
    extra: str = ""
    images: list[Picture] = []
    tables: list[Table] | None = None


class Call(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """One call. n: its number, from 1 on. group: the request.

    answer: what it gave: yes or no, OK, LATER or NEVER, a number of tokens or blocks, or pairs of blocks. raised: the
    exception in its place. reserved: blocks that the manager keeps for itself. lookahead, num_tokens, num_hit,
    num_seqs: slots, tokens and sequences the call was given. status: what became of the request. besides: options that
    ask for what kvproof does not judge. refs, free_ids: of the whole pool, where the recorder was told to show them.
    """

    n: int
    call: str
    free: tuple[int, int] = (0, 0)
    group: str = ""
    seqs: list[RecordedSequence] = []
    answer: bool | int | str | list[tuple[int, int]] | None = None
    raised: str = ""
    reserved: list[int] = []
    lookahead: int = 0
    num_tokens: int = 0
    num_hit: int = 0
    num_seqs: int = 0
    status: str = ""
    unjudged: list[str] = msgspec.field(default_factory=list, name="besides")
    refs: list[int] | None = None
    free_ids: list[int] | None = None


class Header(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The first line.

    free, reserved, refs, free_ids: what the manager showed then. is_fresh: nothing was held or cached yet. watermark:
    a fraction of the GPU blocks. window: tokens. kv_groups: what the layers of each read back. tokens: ids or digests.
    """

    kvproof_recording: int
    interface: str
    manager: str
    block_size: int
    num_gpu_blocks: int
    free: tuple[int, int]
    is_fresh: bool
    num_host_blocks: int = 0
    watermark: float = 0.0
    window: int | None = None
    caching: bool = False
    kv_groups: tuple[str, ...] = ("full",)
    tokens: str = IDS
    reserved: list[int] = []
    refs: list[int] | None = None
    free_ids: list[int] | None = None
    version: str = ""
    started: str = ""

    @property
    def shows_pool(self) -> bool:
        """Whether each line has the refcounts and free ids of the whole pool."""
        return self.refs is not None
