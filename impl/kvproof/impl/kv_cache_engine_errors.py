"""The errors with which the KV cache engine refuses a mapping. Nothing has moved, and the message has the values."""

from .errors import BlockManagerError, InvalidValueError, UnknownBlockError


class MappingFormError(InvalidValueError):
    """A mapping is neither an int64 tensor of shape [n, 2] nor a list of pairs of integers."""

    def __init__(self, value: object) -> None:
        super().__init__("mapping", value, "it must be int64 pairs (source block, target block)")


class BlockOutOfRangeError(UnknownBlockError):
    """A pair names a block that its pool does not have."""

    def __init__(self, block_id: int, pool: str, num_blocks: int, pair: tuple[int, int]) -> None:
        super().__init__(block_id, f"the {num_blocks} blocks of {pool}, in the pair {pair[0]} -> {pair[1]}")
        self.pool, self.num_blocks, self.pair = pool, num_blocks, pair


class DuplicateTargetError(BlockManagerError, ValueError):
    """Two pairs write one block, so its content would depend on their order."""

    def __init__(self, target: int, pool: str, sources: list[int]) -> None:
        super().__init__(f"block {target} of {pool} is the target of blocks {', '.join(map(str, sources))}")
        self.target, self.pool, self.sources = target, pool, sources


class ChainedCopyError(BlockManagerError, ValueError):
    """One list of copies both writes and reads a block; copies that run in parallel would race."""

    def __init__(self, block_id: int, pool: str, written: tuple[int, int], read: tuple[int, int]) -> None:
        super().__init__(
            f"block {block_id} of {pool} is written by the pair {written[0]} -> {written[1]} "
            f"and read by the pair {read[0]} -> {read[1]}"
        )
        self.block_id, self.pool, self.written, self.read = block_id, pool, written, read
