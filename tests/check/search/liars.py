"""Subjects that are right in small worlds, and wrong from some size on or for large numbers only.

Each is the built-in manager, pool or scheduler with one fault. Name one to `kvproof hunt` to see it refuted:
`kvproof hunt --subject tests/check/search/liars.py:slots_8`.
"""

from collections.abc import Hashable
from dataclasses import replace
from functools import partial, reduce
from typing import Any

from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.subjects.builtin.manager import BuiltIn, FakeSequence, new_manager
from kvproof.check.subjects.builtin.pool import OwnPool
from kvproof.check.subjects.builtin.scheduler import BuiltInScheduler
from kvproof.impl import BlockManager
from kvproof.impl.scheduler import Scheduler

# What a block holds ---------------------------------------------------------------------------------------------------


class Confusing(BuiltIn):
    """A manager that sees other tokens, adapters or images than it is given."""

    sequence: Any = FakeSequence

    def _fake(self, seq: int) -> FakeSequence:
        fake: FakeSequence = self.sequence(
            seq, self.tokens[seq], self.keys[seq], self.images[seq], self.config.block_size
        )
        self.seqs[seq] = fake
        return fake


class LooksAtSlots(FakeSequence):
    """Of a block with so many slots or more, the last slot does not count."""

    num_slots = 8

    def get_token_ids(self) -> list[int]:
        size = self.block_size
        if size < self.num_slots:
            return self.tokens
        return [0 if index % size == size - 1 else token for index, token in enumerate(self.tokens)]


class LooksAtEntries(FakeSequence):
    """Tokens in table entries from the 17th on do not count."""

    def get_token_ids(self) -> list[int]:
        num_tokens = 16 * self.block_size
        return self.tokens[:num_tokens] + [0] * (len(self.tokens) - num_tokens)


class LooksAtTwoBits(FakeSequence):
    """Of a token, two bits count."""

    def get_token_ids(self) -> list[int]:
        return [token & 3 for token in self.tokens]


class AdapterModulo(FakeSequence):
    """Adapters whose ids are equal modulo some number are one."""

    modulus = 256

    def extra_hash(self) -> Hashable:
        return self.key.adapter_id % self.modulus, bool(self.key.adapter_id), self.key.salt


class ImagesSideBySide(FakeSequence):
    """Of images that touch each other, the order and the sizes do not count."""

    def block_extra(self, index: int) -> Hashable:
        first, last = index * self.block_size, (index + 1) * self.block_size
        mine = [i for i in self.images if i.start < last and first < i.start + i.length]
        return (mine[0].start - first, frozenset(image.name for image in mine)) if mine else None


class JoinsDigits(FakeSequence):
    """The tokens of a block count as the text of their digits, so 1 and 11 are as 11 and 1."""

    def get_token_ids(self) -> list[int]:
        size, seen = self.block_size, list[int]()
        for first in range(0, len(self.tokens), size):
            block = self.tokens[first : first + size]
            is_full = len(block) == size
            seen += [*[0] * (size - 1), int("".join(map(str, (1, *block))))] if is_full else block
        return seen


class IgnoresCase(FakeSequence):
    """Salts that differ in their case only are one."""

    def extra_hash(self) -> Hashable:
        return self.key.adapter_id, None if self.key.salt is None else self.key.salt.lower()


class SortsSalts(FakeSequence):
    """Salts with the same characters in another order are one, as for a sum of them."""

    def extra_hash(self) -> Hashable:
        return self.key.adapter_id, None if self.key.salt is None else "".join(sorted(self.key.salt))


class JoinsKeys(FakeSequence):
    """The salt and the id of the adapter count as one text, so salt 1 with adapter 2 is as salt 12 without one."""

    def extra_hash(self) -> Hashable:
        return (self.key.salt or "") + str(self.key.adapter_id or "")


class JoinsNames(FakeSequence):
    """The name and the id of the adapter count as one text, so X with id 11 is as X1 with id 1."""

    def extra_hash(self) -> Hashable:
        return f"{self.key.adapter_name}{self.key.adapter_id}", self.key.salt


class Multiplies(FakeSequence):
    """A block counts by a hash that is multiplied by a base before each token, and nothing compares the tokens."""

    base = 131

    def get_token_ids(self) -> list[int]:
        size, seen = self.block_size, list[int]()
        for first in range(0, len(self.tokens), size):
            block = self.tokens[first : first + size]
            hashed = reduce(lambda before, token: before * self.base + token, block)
            seen += [*[0] * (size - 1), hashed] if len(block) == size else block
        return seen


def confusing(sequence: type[FakeSequence], **fields: int) -> Confusing:
    """A manager that looks at its sequences in such a way."""
    found = Confusing()
    found.sequence = type(sequence.__name__, (sequence,), fields)
    return found


slots_8 = partial(confusing, LooksAtSlots, num_slots=8)
slots_16 = partial(confusing, LooksAtSlots, num_slots=16)
slots_64 = partial(confusing, LooksAtSlots, num_slots=64)
entry_17 = partial(confusing, LooksAtEntries)
two_bits = partial(confusing, LooksAtTwoBits)
adapter_modulo_256 = partial(confusing, AdapterModulo, modulus=256)
adapter_modulo_4 = partial(confusing, AdapterModulo, modulus=4)
images_side_by_side = partial(confusing, ImagesSideBySide)

joined_keys = partial(confusing, JoinsKeys)
joined_names = partial(confusing, JoinsNames)
multiplied_by_131 = partial(confusing, Multiplies)
multiplied_by_1000003 = partial(confusing, Multiplies, base=1_000_003)
added = partial(confusing, Multiplies, base=1)
joined_digits = partial(confusing, JoinsDigits)
salts_without_case = partial(confusing, IgnoresCase)
salts_sorted = partial(confusing, SortsSalts)

# What a configuration says --------------------------------------------------------------------------------------------


class CutsWindows(BuiltIn):
    """Windows of more than four blocks are as if they had four."""

    def make(self, config: Config) -> Any:
        num_tokens = 4 * config.block_size
        is_cut = config.window is not None and config.window > num_tokens
        return super().make(replace(config, window=num_tokens) if is_cut else config)


class IgnoresSmallWatermarks(BuiltIn):
    """A watermark below 0.1 is none."""

    def make(self, config: Config) -> Any:
        return super().make(replace(config, watermark=0.0) if config.watermark < 0.1 else config)


class CountsFourHolders(BlockManager):
    """A manager whose refcounts end at four."""

    def fork(self, parent_seq: Any, child_seq: Any) -> None:
        super().fork(parent_seq, child_seq)
        for block in self.get_block_table(parent_seq):
            self.refcounts[block] = min(4, self.refcounts[block])


holders_5 = partial(BuiltIn, CountsFourHolders)

# Which blocks are free ------------------------------------------------------------------------------------------------


class Leaking(BlockManager):
    """A manager that loses a free block: after one free in so many, or when a block with a large id becomes free."""

    one_in = 0
    first_lost = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.num_frees = 0

    def free(self, seq: Any) -> None:
        is_held = seq.seq_id in self.tables
        super().free(seq)
        self.num_frees += is_held
        free_ids = self._gpu.free_ids
        if self.one_in and is_held and self.num_frees % self.one_in == 0 and free_ids:
            free_ids.pop()
        if self.first_lost and free_ids and free_ids[0] >= self.first_lost:
            free_ids.popleft()


def leaking(**fields: int) -> BuiltIn:
    """The manager as a subject."""
    return BuiltIn(type("Leaking", (Leaking,), fields))


block_17 = partial(leaking, first_lost=16)
block_300 = partial(leaking, first_lost=299)
frees_500 = partial(leaking, one_in=500)
frees_3000 = partial(leaking, one_in=3_000)

# The other levels -----------------------------------------------------------------------------------------------------


class LeakingPool(OwnPool):
    """A pool that loses a block: after one free in 500, or a block whose id is 299 or more."""

    capabilities = Capabilities(**vars(OwnPool.capabilities))
    one_in = 0
    first_lost = 0

    def open(self, config: Any) -> None:
        super().open(config)
        self.num_frees = 0

    def free(self, blocks: list[int]) -> None:
        super().free(blocks)
        self.num_frees += 1
        free_ids = self.blocks.free_ids
        if self.one_in and self.num_frees % self.one_in == 0 and free_ids:
            free_ids.pop()
        if self.first_lost and free_ids and free_ids[0] >= self.first_lost:
            free_ids.popleft()


def leaking_pool(**fields: int) -> LeakingPool:
    """The pool as a subject."""
    found: LeakingPool = type("LeakingPool", (LeakingPool,), fields)()
    return found


pool_block_300 = partial(leaking_pool, first_lost=299)
pool_frees_500 = partial(leaking_pool, one_in=500)


class LeakingScheduler(BuiltInScheduler):
    """A scheduler whose manager loses blocks."""

    fields: dict[str, int]

    def make(self, config: SchedulerConfig) -> Any:
        scheduler: Scheduler = super().make(config)
        self.manager = new_manager(type("Leaking", (Leaking,), self.fields), config)
        scheduler.block_manager = self.manager
        return scheduler


def leaking_scheduler(**fields: int) -> LeakingScheduler:
    """The scheduler as a subject."""
    found = LeakingScheduler()
    found.fields = fields
    return found


scheduler_block_17 = partial(leaking_scheduler, first_lost=16)
scheduler_block_300 = partial(leaking_scheduler, first_lost=299)
scheduler_frees_500 = partial(leaking_scheduler, one_in=500)
