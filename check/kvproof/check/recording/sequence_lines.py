"""Raw lines about sequences, of vLLM V1 and of transformers: tokens as they are, in place of digests.

The tokens of a prompt are handed over once. A child of a fork names its parent in place of the parent's tokens, which
are kept here for as long as the parent is known.
"""

from array import array

import msgspec
from msgspec import field

from kvproof.check.recording.format import (
    DIGESTS,
    POSITIVE,
    TRANSFORMERS,
    Header,
    KeyedDigests,
    Picture,
    RecordedCall,
    RecordedSequence,
    Table,
)
from kvproof.check.recording.handover import RawCall, RawLines

NO_PARENT = 0  # sequences count from 1


class RawSequence(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """A sequence of a line, with the fields of a `RecordedSequence`.

    parent: the sequence whose tokens it has before those that are named. is_over: no later line is about it.
    """

    seq: int
    num_computed: int = 0
    tables: list[tuple[int, list[int]]] | None = None
    start: int = 0
    tokens: list[int] = []
    is_over: bool = False
    num_in_flight: int = 0
    parent: int = NO_PARENT
    adapter: int = 0
    extra: str = ""
    images: list[tuple[str, int, int]] = []


class SequenceCall(RawCall, array_like=True, omit_defaults=True, gc=False):
    """A line with its sequences, and the arguments of the call.

    base: is subtracted from the blocks of tables and places. places: where a step writes, as offsets of the tensor of
    the cache, in which a block has `stride` of them.
    """

    seqs: list[RawSequence] = field(default_factory=list)
    num_tokens: int = 0
    base: int = 0
    stride: int = 1
    places: list[int] = field(default_factory=list)
    num_hit: int = 0
    lookahead: int = 0
    status: str = ""
    unjudged: list[str] = field(default_factory=list)


class SequenceLines(RawLines):
    """Makes digests of tokens, if they are asked for, and gives the tokens of its parent to a child."""

    kind = SequenceCall

    def __init__(self, header: Header, digests: KeyedDigests) -> None:
        super().__init__(header, digests)
        self._has_digests = header.tokens == DIGESTS
        self._last: dict[int, bytes] = {}  # of a sequence: the digest of its last token
        self._numbers: dict[int, array[int]] = {}  # of a sequence that may fork: its tokens, as they are written
        self._may_fork = header.interface == TRANSFORMERS

    def completed(self, raw: SequenceCall, data: bytes = b"") -> RecordedCall:
        """The line with the tokens of its sequences."""
        line = super().completed(raw)
        line.seqs = [self._sequence(one, raw.base) for one in raw.seqs]
        line.num_tokens, line.num_hit, line.lookahead = raw.num_tokens, raw.num_hit, raw.lookahead
        line.status, line.unjudged = raw.status, raw.unjudged
        base, size, stride = raw.base, self.header.block_size, raw.stride
        line.slots = [(place // stride - base) * size + place % stride for place in raw.places]
        for one in raw.seqs:
            if one.is_over:
                self._last.pop(one.seq, None)
                self._numbers.pop(one.seq, None)
        return line

    def _sequence(self, raw: RawSequence, base: int) -> RecordedSequence:
        done = RecordedSequence(
            raw.seq,
            raw.start,
            num_computed=raw.num_computed,
            num_in_flight=raw.num_in_flight,
            adapter=raw.adapter,
            extra=raw.extra,
            images=[Picture(*one) for one in raw.images],
            tables=None if raw.tables is None else [_table(*one, base) for one in raw.tables],
        )
        if raw.parent != NO_PARENT:
            self._numbers[raw.seq] = self._numbers[raw.parent][:]
            if self._has_digests:
                self._last[raw.seq] = self._last[raw.parent]
            done.tokens = self._numbers[raw.seq].tolist()
        elif raw.tokens:
            done.tokens = self._digests_of(raw) if self._has_digests else raw.tokens
            if self._may_fork:
                known = self._numbers.setdefault(raw.seq, array("q"))
                known[raw.start :] = array("q", done.tokens)
        return done

    def _digests_of(self, raw: RawSequence) -> list[int]:
        last, digest, numbers = self._last[raw.seq] if raw.start else b"", self.digests.of, []
        for token in raw.tokens:
            last = digest(last + b"%d" % token)
            numbers.append(int.from_bytes(last, "big") & POSITIVE)
        self._last[raw.seq] = last
        return numbers


def _table(num_kept: int, blocks: list[int], base: int) -> Table:
    return Table(num_kept, [block - base for block in blocks] if base else blocks)
