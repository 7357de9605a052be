"""The errors of the block manager, one class for each cause.

A call that raises has changed nothing: every check comes before the first write. The values in the message are also
attributes, so that a caller does not have to parse text. Errors of arguments are also ValueErrors. Where code that is
written against V0 expects another built-in class, the error derives from that class too.
"""


class BlockManagerError(Exception):
    """Base of the errors of the block manager."""


class InvalidValueError(BlockManagerError, ValueError):
    """An argument is outside the values it may have."""

    def __init__(self, name: str, value: object, requirement: str) -> None:
        super().__init__(f"{name} is {value!r}, but {requirement}")
        self.name, self.value, self.requirement = name, value, requirement


NO_ENCODER_WITH_PREFIX_CACHE = "an encoder-decoder does not go with prefix caching"
NO_ENCODER_WITH_WINDOW = "an encoder-decoder does not go with a sliding window"


class UnsupportedError(BlockManagerError, NotImplementedError, ValueError):
    """Two features exclude each other. The message is one of the two sentences above."""


class NoFreeBlocksError(BlockManagerError, ValueError):
    """A device has fewer usable blocks than the call needs."""

    def __init__(self, num_needed: int, num_free: int, device: str) -> None:
        super().__init__(f"{num_needed} blocks needed on {device}, {num_free} free")
        self.num_needed, self.num_free, self.device = num_needed, num_free, device


class DoubleFreeError(BlockManagerError, ValueError, AssertionError):
    """A call releases a block without references: a double free. V0 has an assertion there."""

    def __init__(self, block_id: int) -> None:
        super().__init__(f"double free of block {block_id}: its refcount is 0")
        self.block_id = block_id


class UnknownBlockError(BlockManagerError, ValueError):
    """A block id, or a block, does not belong here."""

    def __init__(self, block_id: object, place: str) -> None:
        super().__init__(f"block {block_id} does not belong to {place}")
        self.block_id, self.place = block_id, place


class UnknownSequenceError(BlockManagerError, KeyError):
    """The call needs a block table, and the sequence has none."""

    def __init__(self, seq_id: int) -> None:
        super().__init__(f"sequence {seq_id} has no block table")
        self.seq_id = seq_id

    def __str__(self) -> str:
        return str(self.args[0])


class DuplicateSequenceError(BlockManagerError, ValueError):
    """The sequence has a block table already."""

    def __init__(self, seq_id: int) -> None:
        super().__init__(f"sequence {seq_id} has a block table already")
        self.seq_id = seq_id


class WrongDeviceError(BlockManagerError, ValueError):
    """The blocks of the sequence lie on the other device."""

    def __init__(self, seq_id: int, needed: str) -> None:
        super().__init__(f"the blocks of sequence {seq_id} are not on {needed}")
        self.seq_id, self.needed = seq_id, needed


class ReadOnlyError(BlockManagerError, ValueError):
    """A call would change a read-only view or the null block."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is read-only")
        self.what = what


def require_at_least(name: str, value: int, least: int) -> None:
    """Raises InvalidValueError unless `value` is an int of at least `least`; a bool is refused."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidValueError(name, value, f"it must be an integer of at least {least}")


# The KV cache engine refuses a mapping with one of these. Nothing has moved, and the message has the values.


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
