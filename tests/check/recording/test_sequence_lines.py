"""Raw lines about sequences are completed: tokens of a parent, digests, and blocks that count from a base."""

from kvproof.check.recording.format import DIGESTS, IDS, TRANSFORMERS, Header, KeyedDigests
from kvproof.check.recording.sequence_lines import RawSequence, SequenceCall, SequenceLines


def lines_with(tokens: str) -> SequenceLines:
    header = Header(1, TRANSFORMERS, "", 4, 8, (8, 0), True, tokens=tokens, reserved=[0])
    return SequenceLines(header, KeyedDigests(b"key"))


def tokens_of(lines: SequenceLines, *seqs: RawSequence) -> list[list[int]]:
    return [one.tokens for one in lines.completed(SequenceCall(1, "fork", seqs=list(seqs))).seqs]


def test_a_child_has_the_tokens_of_its_parent_and_goes_on_by_itself() -> None:
    lines = lines_with(IDS)
    assert tokens_of(lines, RawSequence(1, tokens=[5, 6, 7])) == [[5, 6, 7]]
    assert tokens_of(lines, RawSequence(1, start=3, tokens=[8]), RawSequence(2, parent=1)) == [[8], [5, 6, 7, 8]]
    assert tokens_of(lines, RawSequence(2, start=4, tokens=[9])) == [[9]]
    assert tokens_of(lines, RawSequence(3, parent=2), RawSequence(4, parent=1)) == [[5, 6, 7, 8, 9], [5, 6, 7, 8]]


def test_tokens_that_are_written_again_replace_those_before() -> None:
    lines = lines_with(IDS)
    tokens_of(lines, RawSequence(1, tokens=[5, 6, 7]))
    assert tokens_of(lines, RawSequence(1, tokens=[5]), RawSequence(2, parent=1)) == [[5], [5]]


def test_digests_of_a_child_are_those_of_equal_tokens() -> None:
    lines, alone = lines_with(DIGESTS), lines_with(DIGESTS)
    (first,), (parent, child) = (
        tokens_of(lines, RawSequence(1, tokens=[5, 6])),
        tokens_of(lines, RawSequence(1, start=2, tokens=[7]), RawSequence(2, parent=1)),
    )
    (rest,) = tokens_of(lines, RawSequence(2, start=3, tokens=[7]))
    (whole,) = tokens_of(alone, RawSequence(9, tokens=[5, 6, 7, 7]))
    assert child + rest == first + parent + rest == whole
    assert len(set(whole)) == 4
    assert not {5, 6, 7} & set(whole)


def test_of_a_sequence_that_is_over_nothing_is_kept() -> None:
    lines = lines_with(DIGESTS)
    tokens_of(lines, RawSequence(1, tokens=[5], is_over=True), RawSequence(2, parent=1, is_over=True))
    assert not lines._last
    assert not lines._numbers


def test_blocks_and_places_count_from_the_base() -> None:
    raw = SequenceCall(7, "step", (3, 0), seqs=[RawSequence(1, tables=[(2, [9, 12])])], base=8)
    raw.stride, raw.places = 10, [92, 120]
    line = lines_with(IDS).completed(raw)
    tables = line.seqs[0].tables
    assert tables is not None
    assert [(one.kept, one.rest) for one in tables] == [(2, [1, 4])]
    assert line.slots == [6, 16]
    assert (line.n, line.call, line.free, line.reserved) == (7, "step", (3, 0), [0])
