"""The tokens of a sequence in logical blocks, without any memory.

A logical block is a row of token slots. A sequence gets a new one only when its last one is full. So all but the last
are full, and logical block i begins with position i times the block size.

Source: vLLM 0.4, vllm/block.py, LogicalTokenBlock.
"""

from collections.abc import Iterator, Sequence
from typing import overload

from .errors import InvalidValueError, require_at_least

BLANK_TOKEN_ID = -1


class LogicalTokenBlock:
    """Consecutive tokens of a sequence, at most as many as the block size."""

    __slots__ = ("block_number", "block_size", "num_tokens", "token_ids")

    def __init__(self, block_number: int, block_size: int) -> None:
        require_at_least("block_number", block_number, 0)
        require_at_least("block_size", block_size, 1)
        self.block_number, self.block_size = block_number, block_size
        self.token_ids = [BLANK_TOKEN_ID] * block_size
        self.num_tokens = 0

    def is_empty(self) -> bool:
        return self.num_tokens == 0

    def is_full(self) -> bool:
        return self.num_tokens == self.block_size

    def get_num_empty_slots(self) -> int:
        return self.block_size - self.num_tokens

    def append_tokens(self, token_ids: Sequence[int]) -> None:
        """Fill the next slots. Raises InvalidValueError if there are too few."""
        if len(token_ids) > self.get_num_empty_slots():
            raise InvalidValueError(
                "number of tokens", len(token_ids), f"{self.get_num_empty_slots()} slots of the block are empty"
            )
        stop = self.num_tokens + len(token_ids)
        self.token_ids[self.num_tokens : stop] = token_ids
        self.num_tokens = stop

    def get_token_ids(self) -> list[int]:
        return self.token_ids[: self.num_tokens]

    def get_last_token_id(self) -> int:
        """The token in the last filled slot. Raises InvalidValueError if the block is empty."""
        if not self.num_tokens:
            raise InvalidValueError("number of tokens", 0, "an empty block has no last token")
        return self.token_ids[self.num_tokens - 1]


class LogicalTokenBlocks(Sequence[LogicalTokenBlock]):
    """The logical blocks of one sequence."""

    def __init__(self, block_size: int, token_ids: Sequence[int] = ()) -> None:
        require_at_least("block_size", block_size, 1)
        self.block_size = block_size
        self.num_tokens = 0
        self._blocks: list[LogicalTokenBlock] = []
        self.append_tokens(token_ids)

    def append_tokens(self, token_ids: Sequence[int]) -> None:
        """Append tokens to the last block until it is full, then to new blocks."""
        done = 0
        while done < len(token_ids):
            if not self._blocks or self._blocks[-1].is_full():
                self._blocks.append(LogicalTokenBlock(len(self._blocks), self.block_size))
            last = self._blocks[-1]
            part = token_ids[done : done + last.get_num_empty_slots()]
            last.append_tokens(part)
            done += len(part)
        self.num_tokens += done

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[LogicalTokenBlock]:
        return iter(self._blocks)

    @overload
    def __getitem__(self, index: int) -> LogicalTokenBlock: ...
    @overload
    def __getitem__(self, index: slice) -> list[LogicalTokenBlock]: ...
    def __getitem__(self, index: int | slice) -> LogicalTokenBlock | list[LogicalTokenBlock]:
        return self._blocks[index]
