"""The blocks of a side, and its prefix cache: full blocks of computed prompts, under all tokens up to their end."""

from collections import deque
from collections.abc import Iterable, Sequence

Prefix = tuple[int, ...]


class Pool:
    """Blocks with references. A free block keeps its content in the cache until it is taken; the oldest is first."""

    def __init__(self, num_blocks: int, block_size: int, *, caching: bool) -> None:
        self.block_size, self.caching = block_size, caching
        self.refcounts = [0] * num_blocks
        self.free = deque(range(num_blocks))
        self.cached: dict[Prefix, int] = {}
        self.content_of: dict[int, Prefix] = {}

    @property
    def num_free(self) -> int:
        """Blocks that can be taken."""
        return len(self.free)

    def num_for(self, num_tokens: int) -> int:
        """Blocks for so many tokens."""
        return -(-num_tokens // self.block_size)

    def find(self, tokens: Sequence[int]) -> list[int]:
        """The blocks of the longest cached prefix, which leaves at least one token."""
        found = []
        for stop in range(self.block_size, len(tokens), self.block_size):
            block = self.cached.get(tuple(tokens[:stop]))
            if block is None:
                break
            found.append(block)
        return found

    def num_unheld(self, blocks: Iterable[int]) -> int:
        """How many of these blocks nobody holds."""
        return sum(not self.refcounts[block] for block in blocks)

    def hold(self, blocks: Iterable[int]) -> None:
        """One more holder for each of these blocks."""
        for block in blocks:
            if not self.refcounts[block]:
                self.free.remove(block)
            self.refcounts[block] += 1

    def take(self, number: int) -> list[int]:
        """Blocks without content."""
        taken = [self.free.popleft() for _ in range(number)]
        for block in taken:
            self.refcounts[block] = 1
            if (content := self.content_of.pop(block, None)) is not None:
                del self.cached[content]
        return taken

    def release(self, blocks: Iterable[int]) -> None:
        """One holder less for each of these blocks."""
        for block in reversed(list(blocks)):
            self.refcounts[block] -= 1
            if not self.refcounts[block]:
                self.free.append(block)

    def remember(self, tokens: Sequence[int], table: Sequence[int]) -> None:
        """These tokens are computed in the blocks of a table."""
        if not self.caching:
            return
        for place in range(len(tokens) // self.block_size):
            content, block = tuple(tokens[: (place + 1) * self.block_size]), table[place]
            if content not in self.cached and block not in self.content_of:
                self.cached[content], self.content_of[block] = block, content
