"""Managers whose blocks are right and whose answers are wrong: each is refuted by its answers, and each runs briefly.

Every manager here is the built-in one, with one call that answers something else. The tables, refcounts and lists of
free blocks stay correct, so only what is said before, or instead of, a call can refute it.
"""

from dataclasses import replace
from typing import Any

import pytest

from kvproof.check.protocol.manager import Admission, Config
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import strategy_of
from kvproof.check.subjects.builtin.generation1 import Generation1
from kvproof.check.subjects.builtin.manager import ANSWERS, BuiltIn
from kvproof.check.subjects.builtin.pool import OwnPool
from kvproof.check.subjects.builtin.scheduler import BuiltInScheduler
from kvproof.impl import BlockManager
from kvproof.impl.scheduler import Scheduler
from kvproof.impl.scheduler_queues import ArrivalQueue
from kvproof.spec.text.eviction_policy import SEQUENCE_LRU

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


class LosesHitsWhileItRuns(BuiltIn):
    """Finds nothing of a sequence whose prompt is computed."""

    def hits(self, group: int) -> int:
        return super().hits(group) if self.fakes[group].members[0].is_prefill() else 0


class SwapsIntoTheWatermark(BuiltIn):
    """Says OK to a swap-in that takes blocks of the watermark."""

    def can_swap_in(self, group: int) -> Admission:
        manager = self.manager
        kept, manager.watermark_blocks = manager.watermark_blocks, 0
        answer = super().can_swap_in(group)
        manager.watermark_blocks = kept
        return answer


class LosesHits(BuiltIn):
    """Finds no more than two blocks of a prefix."""

    def hits(self, group: int) -> int:
        return min(super().hits(group), 2 * self.config.block_size)


class PoolThatLosesHits(OwnPool):
    """Finds no more than one block of a prefix."""

    def find(self, pages: list[int]) -> list[int]:
        return super().find(pages)[:1]


class RefusesTheLastBlock(BuiltIn):
    """Says no to an append that would take the last free block."""

    def can_append(self, group: int) -> bool:
        return self.manager.get_num_free_gpu_blocks() > 1 and super().can_append(group)


class RefusesToSwapOut(BuiltIn):
    """Says no to a swap-out that would fill the host."""

    def can_swap_out(self, group: int) -> Admission:
        answer = super().can_swap_out(group)
        return answer if self.manager.get_num_free_cpu_blocks() > 3 else Admission.LATER


class RefusesToSwapIn(BuiltIn):
    """Says no to a swap-in while anything runs."""

    def can_swap_in(self, group: int) -> Admission:
        answer = super().can_swap_in(group)
        is_idle = self.manager.get_num_free_gpu_blocks() == self.config.num_gpu_blocks
        return answer if is_idle or answer is not Admission.OK else Admission.LATER


class HoldsMoreBack(BuiltIn):
    """Holds one block more back from an admission than the watermark."""

    def can_admit(self, group: int) -> Admission:
        answer = super().can_admit(group)
        needed = -(-len(self.tokens[self.groups[group][0]]) // self.config.block_size)
        is_idle = self.manager.get_num_free_gpu_blocks() == self.config.num_gpu_blocks
        is_last = self.manager.get_num_free_gpu_blocks() == needed
        return Admission.LATER if is_last and not is_idle and answer is Admission.OK else answer


class ForgetsTheLookahead(BuiltIn):
    """Asks for an admission without the lookahead slots."""

    def can_admit(self, group: int) -> Admission:
        return ANSWERS[self.manager.can_allocate(self.fakes[group], 0)]


class NeverAPromptLongerThanThePool(Generation1):
    """Says NEVER to a prompt that is longer than the pool, although a ring holds it."""

    def can_admit(self, group: int) -> Admission:
        needed = -(-len(self.tokens[self.groups[group][0]]) // self.config.block_size)
        return Admission.NEVER if needed > self.config.num_gpu_blocks else super().can_admit(group)


class LargerRing(Generation1):
    """Has one block more in its ring than the window needs."""

    capabilities = replace(Generation1.capabilities, refusal_slack=None)  # it needs more blocks than it should

    def make(self, config: Config) -> Any:
        window = None if config.window is None else config.window + config.block_size
        return super().make(replace(config, window=window))


class ShowsAnotherTable(BlockManager):
    """Shows the worker the first block of a table in the place of its second."""

    def get_block_table(self, seq: Any) -> list[int]:
        table = list(super().get_block_table(seq))
        return table if len(table) < 2 else [table[0], table[0], *table[2:]]


class MisleadsTheWorker(BuiltIn):
    """The manager that shows another table."""

    def __init__(self) -> None:
        super().__init__(ShowsAnotherTable)


class HiddenWhileOthersWait(ArrivalQueue):
    """A queue of swapped groups that looks empty while any group waits."""

    waiting: ArrivalQueue

    def __len__(self) -> int:
        return 0 if len(self.waiting) else super().__len__()


class NewPromptsFirst(Scheduler):
    """Brings a swapped group back only when no new prompt waits."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.swapped = HiddenWhileOthersWait()
        self.swapped.waiting = self.waiting


class StarvesSwappedGroups(BuiltInScheduler):
    """The scheduler that serves new prompts first."""

    def __init__(self) -> None:
        super().__init__(NewPromptsFirst)


class EvictsByUse(BuiltIn):
    """Declares the order of release, and evicts by use."""

    capabilities = replace(BuiltIn.capabilities, eviction=SEQUENCE_LRU)


CACHED = {"caching": True, "num_host_blocks": 0}
SWAPPED = {"num_host_blocks": 6}
RING = {"window": 3, "block_size": 2, "chunked": False, "num_host_blocks": 0}
LIARS: list[tuple[type, str, str, dict[str, Any]]] = [
    (RemembersItsHits, "hit-computed", "no computed block holds", CACHED),
    (HitsOneBlockMore, "hit-computed", "no computed block holds", CACHED),
    (LosesHits, "hit-found", "misses at most 0 blocks", CACHED),
    (LosesHitsWhileItRuns, "hit-found", "misses at most 0 blocks", CACHED),
    (SwapsIntoTheWatermark, "admission-sound", "held back by the watermark", SWAPPED | {"watermark": 0.3}),
    (RefusesTheLastBlock, "admission-exact", "can_append", {}),
    (RefusesToSwapOut, "admission-exact", "can_swap_out", SWAPPED),
    (RefusesToSwapIn, "admission-exact", "can_swap_in", SWAPPED | {"window": None}),
    (HoldsMoreBack, "admission-exact", "can_admit", {}),
    (ForgetsTheLookahead, "admission-sound", "can_admit", {"lookahead": 5, "caching": False, "window": None}),
    (NeverAPromptLongerThanThePool, "admission-final", "says NEVER", RING),
    (LargerRing, "window-kept", "holds", RING | {"num_gpu_blocks": 12, "watermark": 0.0}),
    (
        StarvesSwappedGroups,
        "arrival-order",
        "which ranks before it and is swapped",
        {"num_host_blocks": 12, "preemption": "swap"},
    ),
    (EvictsByUse, "eviction-order", "was evicted", CACHED),
    (MisleadsTheWorker, "no-use-after-free", "the block taken is free", {}),
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
