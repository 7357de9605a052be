"""A small right manager of several KV groups, and its adapter. Faults of it are in `catalogue/walks/hybrid.toml`."""

from itertools import product
from math import lcm
from typing import Any

from kvproof.check import Capabilities, Config, ManagerAdapter
from kvproof.check.protocol.manager import NULL_BLOCK, Scheduled

LENGTH_MAX = 1 << 20  # tokens of a sequence


class NoRoom(Exception):
    """There are too few free blocks."""


class HybridManager:
    """Tables of each sequence, one for each KV group, over one pool.

    sizes: tokens of a block of each group. windows: as in `Config.windows`. states: the groups of which a block holds
    the state after a prefix, so that a step leaves one block for all that it computes.
    """

    def __init__(
        self, num_blocks: int, sizes: tuple[int, ...], windows: tuple[int, ...], caching: bool, states: set[int]
    ) -> None:
        self.sizes, self.windows, self.caching, self.states = sizes, windows, caching, states
        self.common = lcm(*sizes)
        self.refs = [0] * num_blocks
        self.free_ids = list(range(num_blocks))  # the next to be taken first, cached or not
        self.tables: dict[int, list[list[int]]] = {}
        self.num_done: dict[int, int] = {}
        self.cached: dict[Any, int] = {}
        self.key_of: dict[int, Any] = {}

    def key(self, group: int, tokens: list[int], index: int) -> Any:
        return group, tuple(tokens[: (index + 1) * self.sizes[group]])

    def first_read(self, group: int, num_done: int) -> int:
        window, size = self.windows[group], self.sizes[group]
        if window < 0:
            return num_done // -window * -window // size
        return max(0, num_done - window + 1) // size if window else 0

    def num_found(self, tokens: list[int]) -> int:
        """Tokens of the longest prefix that every group has, as far back as it reads; a token is left to compute."""
        for num in range((len(tokens) - 1) // self.common * self.common, 0, -self.common):
            if all(
                self.key(group, tokens, index) in self.cached
                for group, size in enumerate(self.sizes)
                for index in range(self.first_read(group, num), num // size)
            ):
                return num
        return 0

    def ends(self, num_tokens: int) -> list[int]:
        """How many entries the table of each group has for so many tokens."""
        return [-(-num_tokens // size) for size in self.sizes]

    def allocate(self, seq: int, tokens: list[int]) -> int:
        num_found = self.num_found(tokens) if self.caching else 0
        tables, ends = [], self.ends(len(tokens))
        for group, size in enumerate(self.sizes):
            first = self.first_read(group, num_found)
            found = [self.cached.get(self.key(group, tokens, index)) for index in range(first, num_found // size)]
            tables.append([NULL_BLOCK] * first + [block for block in found if block is not None])
        self.pass_over(tables, ends)
        num_new = sum(end - len(table) for end, table in zip(ends, tables, strict=True))
        if num_new + sum(block in self.free_ids for table in tables for block in table) > len(self.free_ids):
            raise NoRoom
        for do, (end, table) in product((self.touch, self.fill), zip(ends, tables, strict=True)):
            do(table, end)
        self.tables[seq], self.num_done[seq] = tables, num_found
        return num_found

    def pass_over(self, tables: list[list[int]], ends: list[int]) -> None:
        """A step leaves its last state only."""
        for group in self.states:
            tables[group] += [NULL_BLOCK] * (ends[group] - 1 - len(tables[group]))

    def touch(self, table: list[int], end: int) -> None:
        for block in table:
            if block != NULL_BLOCK:
                self.refs[block] += 1
                if block in self.free_ids:
                    self.free_ids.remove(block)

    def fill(self, table: list[int], end: int) -> None:
        while len(table) < end:
            block = self.free_ids.pop(0)
            self.cached.pop(self.key_of.pop(block, None), None)
            self.refs[block] = 1
            table.append(block)

    def append(self, seq: int, num_tokens: int) -> None:
        tables, num_done = self.tables[seq], self.num_done[seq]
        for group, table in enumerate(tables):
            for index in range(self.first_read(group, num_done)):
                self.drop(table[index])
                table[index] = NULL_BLOCK
        ends = [max(len(table), end) for table, end in zip(tables, self.ends(num_done + num_tokens), strict=True)]
        if sum(end - len(table) for end, table in zip(ends, tables, strict=True)) > len(self.free_ids):
            raise NoRoom
        self.pass_over(tables, ends)
        for end, table in zip(ends, tables, strict=True):
            self.fill(table, end)

    def computed(self, seq: int, tokens: list[int], stop: int) -> None:
        self.num_done[seq] = stop
        for group, table in enumerate(self.tables[seq]):
            for index, block in enumerate(table[: stop // self.sizes[group]]):
                key = self.key(group, tokens, index)
                if block != NULL_BLOCK and self.caching and key not in self.cached and block not in self.key_of:
                    self.cached[key], self.key_of[block] = block, key

    def free(self, seq: int) -> None:
        for table in self.tables.pop(seq):
            for block in table:
                self.drop(block)

    def moved(self, table: list[int]) -> list[int]:
        """The table, with another block in the place of each."""
        new = [self.free_ids.pop(0) if self.free_ids else block for block in table]
        for old, block in zip(table, new, strict=True):
            self.refs[block] += block != old
            self.drop(old if block != old else NULL_BLOCK)
        return new

    def drop(self, block: int) -> None:
        if block != NULL_BLOCK:
            self.refs[block] -= 1
            if not self.refs[block]:
                self.free_ids.append(block)


class Adapter(ManagerAdapter):
    """The manager, as kvproof asks for it."""

    name = "hybrid"
    capabilities = Capabilities(
        has_admission_query=False,
        window=True,
        caching=True,
        window_with_caching=True,
        local_attention=True,
        chunked=True,
        kv_groups=True,
        block_sizes=True,
        states=True,
        window_drop_when_refused=True,
    )
    refusals = (NoRoom,)
    manager: HybridManager

    def make(self, config: Config) -> HybridManager:
        in_place = {group for group, layout in enumerate(config.layouts) if layout.is_in_place}
        sizes = tuple(LENGTH_MAX if group in in_place else size for group, size in enumerate(config.block_sizes))
        states = {group for group, layout in enumerate(config.layouts) if layout.is_state}
        return HybridManager(config.num_gpu_blocks, sizes, config.windows, config.caching, states - in_place)

    def hits(self, group: int) -> int:
        return self.manager.num_found(self.tokens[self.groups[group][0]])

    def allocate(self, seq: int, tokens: list[int]) -> int:
        return self.manager.allocate(seq, tokens)

    def append(self, seq: int, num_tokens: int) -> None:
        self.manager.append(seq, num_tokens)

    def release(self, seq: int) -> None:
        self.manager.free(seq)

    def step_done(self, step: list[Scheduled]) -> None:
        for one in step:
            self.manager.computed(one.seq, self.tokens[one.seq], one.stop)

    def tables(self) -> dict[int, list[list[int]]]:
        return self.manager.tables

    def num_free(self) -> int:
        return len(self.manager.free_ids)

    def refcounts(self) -> list[int]:
        return self.manager.refs
