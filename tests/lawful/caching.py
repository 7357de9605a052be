"""Managers with a prefix cache, in which each choice that the specification leaves open is a method, and variants.

Which unused block is evicted, when a block is cached, which of two blocks with equal content is known, how much of a
cached prefix a prompt uses.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from operator import itemgetter
from typing import Any

from tests.lawful.plain import Plain

from kvproof.check import Capabilities, Config
from kvproof.check.protocol.manager import Admission, Admitted, Pair, Scheduled
from kvproof.spec.text.eviction_policy import BLOCK_LRU


class Caches(Plain):
    """A prefix cache: full blocks that a step has computed are found by their tokens."""

    capabilities = Capabilities(fork=True, caching=True)
    publishes_at_release = False

    def make(self, config: Config) -> Any:
        self.key_of: dict[int, tuple[int, ...]] = {}  # of each cached block
        self.block_of: dict[tuple[int, ...], int] = {}  # the block that is known for a content
        self.used: dict[int, int] = {}  # when each block was used last
        self.num_done: dict[int, int] = {}  # tokens of each sequence that are computed
        self.clock = 0
        return super().make(config)

    # What is open

    def victim(self, unused: list[int]) -> int:
        """Which of the unused cached blocks is evicted; the least recently used, the longest prefix first."""
        return min(unused, key=lambda block: (self.used[block], -len(self.key_of[block])))

    def is_cached(self, seq: int, index: int) -> bool:
        """Whether this full block of a sequence is cached when it is computed."""
        return True

    def takes_over(self, block: int, known: int) -> bool:
        """Whether a block is known from now on in place of one with the same content."""
        return False

    def num_found_max(self, num_blocks: int) -> int:
        """How many of the cached blocks of a prefix a prompt uses."""
        return num_blocks

    # What follows

    def unused(self) -> list[int]:
        return [block for block in self.key_of if not self.refs[block]]

    def num_free(self) -> int:
        return len(self.free_blocks) + len(self.unused())

    def free_ids(self) -> list[int] | None:
        return [*self.free_blocks, *self.unused()]

    def found(self, tokens: list[int]) -> list[int]:
        """The cached blocks with which a prompt begins; its last token is computed in any case."""
        size, blocks = self.config.block_size, list[int]()
        if not self.config.caching:
            return blocks
        for stop in range(size, len(tokens), size):
            block = self.block_of.get(tuple(tokens[:stop]))
            if block is None:
                break
            blocks.append(block)
        return blocks[: self.num_found_max(len(blocks))]

    def uncache(self, block: int) -> None:
        """The block is not cached any more."""
        key = self.key_of.pop(block)
        if self.block_of.get(key) == block:
            del self.block_of[key]

    def make_room(self) -> None:
        """Evict a block; its id is free then."""
        block = self.victim(self.unused())
        self.uncache(block)
        self.free_blocks.append(block)

    def take(self) -> int:
        if not self.free_blocks:
            self.make_room()
        return super().take()

    def give_back(self, block: int) -> None:
        if block not in self.key_of:
            super().give_back(block)

    def can_allocate(self, tokens: list[int]) -> bool | Admission:
        found = self.found(tokens)
        num_unused = self.num_free() - sum(not self.refs[block] for block in found)
        return self.wanted(len(tokens)) - len(found) <= num_unused

    def hits(self, group: int) -> int:
        return len(self.found(self.tokens[self.groups[group][0]])) * self.config.block_size

    def allocate(self, seq: int, tokens: list[int]) -> int | Admitted | None:
        found = self.found(tokens)
        for block in found:
            self.refs[block] += 1
        self.held[seq] = found + [self.take() for _ in range(self.wanted(len(tokens)) - len(found))]
        return len(found) * self.config.block_size

    def computed(self, seqs: list[int], stops: list[int]) -> None:
        self.clock += 1
        for seq, stop in zip(seqs, stops, strict=True):
            self.num_done[seq] = stop
            self.used.update(dict.fromkeys(self.held[seq], self.clock))
            if not self.publishes_at_release:
                self.publish(seq)

    def publish(self, seq: int) -> None:
        """Cache the full blocks of a sequence that are computed."""
        size = self.config.block_size
        for index in range(self.num_done.get(seq, 0) // size):
            block, key = self.held[seq][index], tuple(self.tokens[seq][: (index + 1) * size])
            if block in self.key_of or not self.is_cached(seq, index):
                continue
            known = self.block_of.get(key)
            if known is None or self.takes_over(block, known):
                self.key_of[block], self.block_of[key] = key, block
                if known is not None:
                    del self.key_of[known]
                    self.free_blocks += [known] * (not self.refs[known])

    def share(self, parent: int, child: int) -> None:
        super().share(parent, child)
        self.num_done[child] = self.num_done.get(parent, 0)

    def release(self, seq: int) -> None:
        if self.publishes_at_release and self.config.caching:
            self.publish(seq)
        self.num_done.pop(seq, None)
        super().release(seq)


class EvictsNewest(Caches):
    """The block that was used last is evicted; no policy is declared."""

    def victim(self, unused: list[int]) -> int:
        return max(unused, key=self.used.__getitem__)


class EvictsLowest(Caches):
    """The unused block with the lowest id is evicted."""

    def victim(self, unused: list[int]) -> int:
        return min(unused)


class EvictsFirstCached(Caches):
    """The block that was cached first is evicted."""

    def victim(self, unused: list[int]) -> int:
        return unused[0]


class DeclaresLru(Caches):
    """The least recently used block is evicted, and it says so."""

    capabilities = replace(Caches.capabilities, eviction=BLOCK_LRU)


class EvictsBeforeTakingFree(DeclaresLru):
    """All that a call has to evict is evicted first, and taken before the blocks that were free already."""

    def allocate(self, seq: int, tokens: list[int]) -> int | Admitted | None:
        found = self.found(tokens)
        for block in found:
            self.refs[block] += 1
        num_taken = self.wanted(len(tokens)) - len(found)
        for _ in range(num_taken - len(self.free_blocks)):
            self.make_room()
        self.held[seq] = found + [self.take() for _ in range(num_taken)]
        return len(found) * self.config.block_size


class LastTwinIsKnown(DeclaresLru):
    """Of two blocks with equal content the one that was computed last is known; the other one is free when unused."""

    def takes_over(self, block: int, known: int) -> bool:
        return True


class CachesAtOnce(Caches):
    """Full blocks are cached when they are given out: whoever hits one computes with it in the same step."""

    capabilities = replace(Caches.capabilities, same_step_hits=True)

    def allocate(self, seq: int, tokens: list[int]) -> int | Admitted | None:
        hit = super().allocate(seq, tokens)
        self.known(seq)
        return hit

    def append(self, seq: int, num_tokens: int) -> Sequence[Pair] | None:
        copies = super().append(seq, num_tokens)
        self.known(seq)
        return copies

    def known(self, seq: int) -> None:
        """Every token of the sequence is known, and will be computed in this step."""
        self.num_done[seq] = len(self.tokens[seq])
        if self.config.caching:
            self.used.update(dict.fromkeys(self.held[seq], self.clock + 1))
            self.publish(seq)


class ExchangesTwins(Caches):
    """After a step a block that was filled is exchanged for the one that is known for its content."""

    capabilities = replace(Caches.capabilities, dedups_after_step=True)

    def computed(self, seqs: list[int], stops: list[int]) -> None:
        super().computed(seqs, stops)
        size = self.config.block_size
        for seq, stop in zip(seqs, stops, strict=True):
            for index in range(stop // size):
                block, known = self.held[seq][index], self.block_of.get(tuple(self.tokens[seq][: (index + 1) * size]))
                if known is not None and known != block:
                    self.refs[known] += 1
                    self.held[seq][index] = known
                    self.used[known] = self.clock
                    self.drop(block)


class CachesPromptsOnly(Caches):
    """Blocks with tokens that were sampled are not cached."""

    def make(self, config: Config) -> Any:
        self.num_prompt: dict[int, int] = {}
        return super().make(config)

    def allocate(self, seq: int, tokens: list[int]) -> int | Admitted | None:
        self.num_prompt[seq] = len(tokens)
        return super().allocate(seq, tokens)

    def share(self, parent: int, child: int) -> None:
        self.num_prompt[child] = self.num_prompt[parent]
        super().share(parent, child)

    def is_cached(self, seq: int, index: int) -> bool:
        return (index + 1) * self.config.block_size <= self.num_prompt[seq]


class CachesFirstBlocks(Caches):
    """Only the first two blocks of a prefix are cached."""

    def is_cached(self, seq: int, index: int) -> bool:
        return index < 2


class CachesAtRelease(Caches):
    """The blocks of a sequence are cached when it is released."""

    publishes_at_release = True


class AnnouncesAtOnce(Caches):
    """Full blocks are known by their content when they are given out, and found once a step has computed them.

    What is released before is forgotten.
    """

    def make(self, config: Config) -> Any:
        self.announced: dict[int, list[tuple[int, ...]]] = {}
        return super().make(config)

    def allocate(self, seq: int, tokens: list[int]) -> int | Admitted | None:
        size = self.config.block_size
        self.announced[seq] = [tuple(tokens[:stop]) for stop in range(size, len(tokens) + 1, size)]
        return super().allocate(seq, tokens)

    def is_cached(self, seq: int, index: int) -> bool:
        announced = self.announced.get(seq, [])
        return index >= len(announced) or announced[index] == tuple(self.tokens[seq][: (index + 1) * len(announced[0])])

    def release(self, seq: int) -> None:
        self.announced.pop(seq, None)
        super().release(seq)


class DatesBeforeTheStep(DeclaresLru):
    """A step uses its blocks when it is scheduled, whether or not it fails."""

    def step_scheduled(self, step: list[Scheduled], now: int) -> None:
        self.clock += 1
        for one in step:
            self.used.update(dict.fromkeys(self.held[one.seq], self.clock))

    def computed(self, seqs: list[int], stops: list[int]) -> None:
        for seq, stop in zip(seqs, stops, strict=True):
            self.num_done[seq] = stop
            self.publish(seq)


class FindsOneBlock(Caches):
    """A prompt uses at most one cached block."""

    def num_found_max(self, num_blocks: int) -> int:
        return min(1, num_blocks)


class FindsAllButOne(Caches):
    """The last cached block that a look-up finds is computed again."""

    def num_found_max(self, num_blocks: int) -> int:
        return max(0, num_blocks - 1)


class KeepsOneFree(Caches):
    """One free block is kept by evicting ahead."""

    def release(self, seq: int) -> None:
        super().release(seq)
        if not self.free_blocks and self.unused():
            self.make_room()


class ResetsWhenIdle(Caches):
    """It forgets its cache when nothing is held."""

    def release(self, seq: int) -> None:
        super().release(seq)
        if not self.held:
            while self.unused():
                self.make_room()


class CopiesCachedBlocks(Caches):
    """Every shared block is copied before a growth, cached ones too."""

    def copied(self, seq: int, index: int) -> bool:
        return self.refs[self.held[seq][index]] > 1


class HitsWithinBlocks(Caches):
    """A prompt that parts from a cached prefix within a block gets a copy of that block, and computes its rest.

    The block is not taken before the step has run: a worker may run the copies in any order.
    """

    capabilities = replace(Caches.capabilities, hits_within_blocks=True)

    def found_within(self, tokens: list[int]) -> tuple[int, int]:
        """The cached block that goes on with the prompt after its whole blocks, and for how many tokens; 0 if none."""
        size, num_whole = self.config.block_size, len(self.found(tokens)) * self.config.block_size
        best = -1, 0
        for key, block in self.block_of.items() if self.config.caching else ():
            if len(key) == num_whole + size and list(key[:num_whole]) == tokens[:num_whole]:
                pairs = zip(key[num_whole:-1], tokens[num_whole:-1], strict=False)
                num_same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
                best = max(best, (block, num_same), key=itemgetter(1))
        return best

    def within(self, tokens: list[int]) -> tuple[int, int]:
        """The same, if all blocks that the prompt takes and this one have room."""
        source, num_tokens = self.found_within(tokens)
        return (source, num_tokens) if num_tokens and self.has_room(tokens, {source}) else (-1, 0)

    def has_room(self, tokens: list[int], kept: set[int]) -> bool:
        """Whether a prompt finds its blocks while those that it hits, and these, are kept."""
        found = self.found(tokens)
        num_kept = len([one for one in {*found, *kept} if not self.refs[one] and one not in self.sources])
        return self.wanted(len(tokens)) - len(found) <= self.num_takable() - num_kept

    def hits(self, group: int) -> int:
        return super().hits(group) + self.within(self.tokens[self.groups[group][0]])[1]

    def make(self, config: Config) -> Any:
        self.sources: set[int] = set()
        return super().make(config)

    def num_takable(self) -> int:
        return len(self.free_blocks) + len([block for block in self.unused() if block not in self.sources])

    def victim(self, unused: list[int]) -> int:
        return super().victim([block for block in unused if block not in self.sources])

    def can_allocate(self, tokens: list[int]) -> bool | Admission:
        return self.has_room(tokens, set())

    def allocate(self, seq: int, tokens: list[int]) -> int | Admitted | None:
        source, num_tokens = self.within(tokens)
        if not num_tokens:
            return super().allocate(seq, tokens)
        self.sources.add(source)
        hit = super().allocate(seq, tokens)
        assert isinstance(hit, int)
        return Admitted(hit + num_tokens, [(source, self.held[seq][hit // self.config.block_size])])

    def step_done(self, step: list[Scheduled]) -> None:
        super().step_done(step)
        self.sources.clear()
