"""The format of a recording: a header, then one line for each call; strict JSON, UTF-8, each line ends with a newline.

A line has the arguments of the call, its answer or exception, and the state of the manager after it: the tables of the
sequences that the call concerns, and the free blocks of both devices. Block ids are absolute (host block b is
`num_gpu_blocks + b`), except in the pairs of a swap, where each id counts on its own device; -1 is the null block.
Only changes are stored: tokens from position `start` on, and of a table the number of `kept` entries and the entries
that follow them.

Numbers have bounds, so that a small file cannot ask for much memory or time.

Tokens are numbers that are only compared for equality: token ids, or keyed digests. Everything else that KV depends on
(adapter, salt) is stored as a digest, an image as a digest with its position. A keyed digest shows what is equal, and
nothing else.
"""

import hashlib
from typing import Annotated, Any

import msgspec

SCHEMA_VERSION = 1
NUM_TOKENS_MAX = 10_000_000  # of a sequence
NUM_SEQS_MAX = 10_000  # of a request
LINE_BYTES_MAX = 1 << 25
Position = Annotated[int, msgspec.Meta(ge=0, le=NUM_TOKENS_MAX)]
Moment = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
VLLM_V0, VLLM_V1 = "vllm-v0", "vllm-v1"
TRANSFORMERS = "transformers"
VLLM_OFFLOAD, LMCACHE_L1, SGLANG = "vllm-offload", "lmcache-l1", "sglang"  # judged as stores: a block is a slot
STORES = (VLLM_OFFLOAD, LMCACHE_L1, SGLANG)
INTERFACES = (VLLM_V0, VLLM_V1, TRANSFORMERS, *STORES)
IDS, DIGESTS = "ids", "digests"
ENDED, STOPPED = "recording ended", "recording stopped"

DIGEST_BYTES = 8
POSITIVE = (1 << 63) - 1


class Table(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The table of a sequence in one KV group. kept: number of entries kept from the last line. rest: entries after."""

    kept: Position
    rest: list[int]


class Picture(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """An image in a prompt: its digest, and the positions that it occupies."""

    name: str
    start: Position
    length: Position


class RecordedSequence(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A sequence that a call concerns.

    tokens: those from position `start` on. num_computed: tokens that the engine counts as computed; num_in_flight of
    them belong to steps that have not ended. is_prefill: the prompt is not completely computed. adapter, extra, images:
    what its KV depends on in addition to tokens. tables: one for each KV group; empty if the sequence has no blocks,
    None if the line does not contain them.
    """

    seq: int
    start: Position = 0
    tokens: list[int] = []
    num_computed: Position = 0
    num_in_flight: Position = 0
    is_prefill: bool = False
    adapter: int = 0
    extra: str = ""
    images: list[Picture] = []
    tables: list[Table] | None = None


class RecordedCall(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """One call. n: its number, from 1. group: the request.

    answer: the result: a bool; OK, LATER or NEVER; a number of tokens or blocks; or pairs of blocks. raised: the
    exception, if the call raised one. reserved: blocks that the manager keeps for itself. lookahead, num_tokens,
    num_hit, num_seqs: arguments of the call: slots, tokens, sequences. status: the new status of the request. unjudged
    (`besides` in the file): options for features that kvproof does not judge. refs, free_ids: of the whole pool, if the
    recorder was asked to store them.

    Of transformers: slots: where a step writes its first token, and the first one of each further page.

    Of a store: keys: the digests of the keys that the call names. found: the answer of a look-up for each key. slots:
    the slot of each key that is loaded, or of each key in `taken`, which are those that are stored. evicted: the keys
    that the call evicted. entries: if the recorder was asked to store them, the key, the slot and the count of each
    entry; the count is -1 while it is written, else the number of loads.

    Of LMCache also: taken: the keys for which the call succeeded. at: when the call began and ended, in microseconds
    since the recording began. group: the tag of the writer. num_seqs: the locks that are taken or given back for each
    key. answer: whether there was memory, or whether keys are deleted by force.

    Of SGLang: keys: of a node of the tree, the key of its last page. slots: the pages, counted from 0. group: the call
    of the tree that gives pages back. num_hit: of a look-up, the pages found; of an insert, the first pages that the
    line does not name. lookahead: the first pages that the request has from the tree. num_tokens: of an insert, those
    that were there; of an allocation, those asked for. answer: of an allocation, whether there were pages; of pages
    given back, whether they are free at once.
    """

    n: int
    call: str
    free: tuple[int, int] = (0, 0)
    group: str = ""
    seqs: list[RecordedSequence] = []
    answer: bool | int | str | list[tuple[int, int]] | None = None
    raised: str = ""
    reserved: list[int] = []
    lookahead: Position = 0
    num_tokens: Position = 0
    num_hit: Position = 0
    num_seqs: Annotated[int, msgspec.Meta(ge=0, le=NUM_SEQS_MAX)] = 0
    status: str = ""
    keys: list[int] = []
    slots: list[int] = []
    taken: list[int] = []
    evicted: list[int] = []
    found: list[str] = []
    at: tuple[Moment, Moment] = (0, 0)
    entries: list[tuple[int, int, int]] | None = None
    unjudged: list[str] = msgspec.field(default_factory=list, name="besides")
    refs: list[int] | None = None
    free_ids: list[int] | None = None


class Header(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The first line of a recording.

    free, reserved, refs, free_ids: the state of the manager at the start. is_fresh: no block was held or cached yet.
    watermark: a fraction of the GPU blocks. window, local_chunk: in tokens. kv_groups: the kind of attention of each
    group. tokens: how tokens are stored, IDS or DIGESTS. refuses_exactly: a store refuses only if it must.
    lease_us: for how long a write and a read of LMCache are in force, in microseconds.
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
    local_chunk: int | None = None
    caching: bool = False
    kv_groups: tuple[str, ...] = ("full",)
    tokens: str = IDS
    reserved: list[int] = []
    refs: list[int] | None = None
    free_ids: list[int] | None = None
    version: str = ""
    started: str = ""
    refuses_exactly: bool = True
    lease_us: tuple[Moment, Moment] = (0, 0)

    @property
    def shows_pool(self) -> bool:
        """Whether each line contains the refcounts and free ids of the whole pool."""
        return self.refs is not None


class KeyedDigests:
    """Digests with one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key[:64]

    def of(self, data: bytes) -> bytes:
        """The digest of some bytes."""
        return hashlib.blake2b(data, digest_size=DIGEST_BYTES, key=self._key).digest()

    def number(self, data: bytes) -> int:
        """The digest as a number from 0 on."""
        return int.from_bytes(self.of(data), "big") & POSITIVE

    def text(self, value: Any) -> str:
        """The digest of a value. Digests are equal if and only if the values are; None has an empty digest."""
        return "" if value is None else self.of(repr(value).encode()).hex()
