"""Groups to give to a manager, in one line."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import pytest

from kvproof.impl import Sequence, SequenceGroup, SequenceStatus

MakeGroup = Callable[..., SequenceGroup]


@pytest.fixture
def make_group() -> MakeGroup:
    """`make_group(tokens)`: a waiting group; sequence ids count up from 0."""
    next_id = iter(range(10_000))

    def make(
        tokens: list[int],
        num_seqs: int = 1,
        extra: Hashable = None,
        encoder: list[int] | None = None,
        request_id: str | None = None,
    ) -> SequenceGroup:
        seqs = [Sequence(next(next_id), tokens, 4, extra) for _ in range(num_seqs)]
        encoder_seq = None if encoder is None else Sequence(next(next_id), encoder, 4)
        return SequenceGroup(request_id or f"request-{seqs[0].seq_id}", seqs, encoder_seq)

    return make


@pytest.fixture
def run() -> Callable[[SequenceGroup], SequenceGroup]:
    """Set a group's sequences running, with everything computed that is known."""

    def start(group: SequenceGroup) -> SequenceGroup:
        for seq in group.seqs:
            seq.status = SequenceStatus.RUNNING
            seq.data.update_num_computed_tokens(seq.data.get_num_uncomputed_tokens())
        return group

    return start
