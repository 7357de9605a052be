"""Managers whose blocks are right and whose answers are wrong: each is refuted by its answers, and each runs briefly.

Every manager here is the built-in one, with one call that answers something else. The tables, refcounts and lists of
free blocks stay correct, so only what is said before, or instead of, a call can refute it.
"""

from dataclasses import replace
from typing import Any

import pytest

from kvproof.check.protocol.manager import Config
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import strategy_of
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.check.subjects.builtin.pool import OwnPool

NUM_OPERATIONS = 20_000


class RemembersItsHits(BuiltIn):
    """Answers a look-up that it has answered before with the same number, as vLLM 0.6.5 to 0.9.1 do."""

    capabilities = replace(BuiltIn.capabilities, lost_hits=None)  # what it misses is not its fault here
    remembered: dict[int, int]

    def open(self, config: Config) -> None:
        self.remembered = {}
        super().open(config)

    def hits(self, group: int) -> int:
        return self.remembered.setdefault(group, super().hits(group))


class HitsOneBlockMore(BuiltIn):
    """Counts one block too many if a prompt is hit in part."""

    def hits(self, group: int) -> int:
        hit, size = super().hits(group), self.config.block_size
        (tokens, *_) = [self.tokens[seq] for seq in self.groups[group]]
        return hit + size if 0 < hit < len(tokens) - size else hit


class LosesHits(BuiltIn):
    """Finds no more than two blocks of a prefix."""

    def hits(self, group: int) -> int:
        return min(super().hits(group), 2 * self.config.block_size)


class PoolThatLosesHits(OwnPool):
    """Finds no more than one block of a prefix."""

    def find(self, pages: list[int]) -> list[int]:
        return super().find(pages)[:1]


CACHED = {"caching": True, "num_host_blocks": 0}
LIARS: list[tuple[type, str, str, dict[str, Any]]] = [
    (RemembersItsHits, "hit-computed", "no computed block holds", CACHED),
    (HitsOneBlockMore, "hit-computed", "no computed block holds", CACHED),
    (LosesHits, "hit-found", "misses at most 0 blocks", CACHED),
    (PoolThatLosesHits, "hit-found", "misses at most 0 blocks", {"caching": True}),
]


@pytest.mark.parametrize(("liar", "property", "words", "fixed"), LIARS, ids=[liar.__name__ for liar, *_ in LIARS])
def test_a_wrong_answer_is_refuted_although_no_block_is_wrong(
    liar: type, property: str, words: str, fixed: dict[str, Any]
) -> None:
    subject = liar()
    done = walk(strategy_of(subject), subject, 1, max_operations=NUM_OPERATIONS, seconds=60, fixed=fixed)
    assert done.finding is not None
    assert done.finding.property == property
    assert words in done.finding.text
