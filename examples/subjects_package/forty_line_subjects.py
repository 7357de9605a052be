"""A subject of a package: a manager that gives each sequence its own blocks, and its adapter."""

from kvproof.check import Config, ManagerAdapter, ManagerCan


class BlockManager:
    """Blocks that no two sequences share."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.free_blocks = list(range(num_blocks))
        self.tables: dict[int, list[int]] = {}
        self.num_tokens: dict[int, int] = {}

    def can_grow(self, seq: int, num_tokens: int) -> bool:
        """Whether the sequence gets slots for so many more tokens."""
        return self._num_missing(seq, num_tokens) <= len(self.free_blocks)

    def grow(self, seq: int, num_tokens: int) -> None:
        """Give the sequence slots for so many more tokens."""
        missing = self._num_missing(seq, num_tokens)
        self.tables.setdefault(seq, []).extend(self.free_blocks.pop() for _ in range(missing))
        self.num_tokens[seq] = self.num_tokens.get(seq, 0) + num_tokens

    def free(self, seq: int) -> None:
        """Take the blocks of the sequence back."""
        self.free_blocks += self.tables.pop(seq)
        del self.num_tokens[seq]

    def _num_missing(self, seq: int, num_tokens: int) -> int:
        after = self.num_tokens.get(seq, 0) + num_tokens
        return -(-after // self.block_size) - len(self.tables.get(seq, ()))


class Adapter(ManagerAdapter):
    """The manager, behind kvproof's protocol."""

    name = "forty-lines-of-a-package"
    capabilities = ManagerCan()
    manager: BlockManager

    def make(self, config: Config) -> BlockManager:
        return BlockManager(config.num_gpu_blocks, config.block_size)

    def can_allocate(self, tokens: list[int]) -> bool:
        return len(tokens) <= len(self.manager.free_blocks) * self.manager.block_size

    def allocate(self, seq: int, tokens: list[int]) -> None:
        self.manager.grow(seq, len(tokens))

    def can_append(self, group: int) -> bool:
        return all(self.manager.can_grow(seq, 1) for seq in self.groups[group])

    def append(self, seq: int, num_tokens: int) -> None:
        self.manager.grow(seq, num_tokens)

    def release(self, seq: int) -> None:
        self.manager.free(seq)

    def tables(self) -> dict[int, list[int]]:
        return self.manager.tables

    def num_free(self) -> int:
        return len(self.manager.free_blocks)
