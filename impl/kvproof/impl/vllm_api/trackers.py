"""Trackers of sequences: how much of each is in the prefix cache, and when it was used last.

Source: vLLM 0.9, vllm/core/block/prefix_caching_block.py, ComputedBlocksTracker and LastAccessBlocksTracker.
"""

from collections.abc import Hashable
from typing import Protocol

from ..errors import UnknownSequenceError, require_at_least
from ..sequence import SequenceLike
from .prefix_caching import PrefixCachingBlock


class FindsPrefix(Protocol):
    """The call of an allocator that a look-up needs."""

    def find_cached_blocks_prefix(self, block_hashes: list[Hashable]) -> list[Hashable]: ...


class RecordsAccess(Protocol):
    """The call of an allocator that recording an access needs."""

    def mark_blocks_as_accessed(self, block_ids: list[int], now: float) -> None: ...


class ComputedBlocksTracker:
    """Keeps the content hashes of the full blocks of each sequence, and how many of its tokens were found."""

    def __init__(self, allocator: FindsPrefix, block_size: int, enable_caching: bool) -> None:
        require_at_least("block_size", block_size, 1)
        self._allocator, self._block_size, self._enable_caching = allocator, block_size, enable_caching
        self._hashes: dict[int, list[Hashable]] = {}
        self._num_cached_tokens: dict[int, int] = {}

    def get_num_cached_tokens(self, seq: SequenceLike) -> int:
        """Number of tokens in leading cached blocks. The first answer is repeated while the sequence is in prefill."""
        if not self._enable_caching:
            return 0
        seq_id = seq.seq_id
        if seq_id in self._num_cached_tokens and seq.is_prefill():
            return self._num_cached_tokens[seq_id]
        num_found = len(self._allocator.find_cached_blocks_prefix(self._hashes_of(seq)))
        self._num_cached_tokens[seq_id] = num_found * self._block_size
        return self._num_cached_tokens[seq_id]

    def remove_seq(self, seq_id: int) -> None:
        """Forget a sequence; does nothing if it is not known."""
        self._hashes.pop(seq_id, None)
        self._num_cached_tokens.pop(seq_id, None)

    def _hashes_of(self, seq: SequenceLike) -> list[Hashable]:
        hashes = self._hashes.setdefault(seq.seq_id, [])
        tokens, size = seq.get_token_ids(), self._block_size
        for low in range(len(hashes) * size, len(tokens) - size + 1, size):
            before = hashes[-1] if hashes else None
            hashes.append(
                PrefixCachingBlock.hash_block_tokens(not hashes, before, tokens[low : low + size], seq.extra_hash())
            )
        return hashes


class LastAccessBlocksTracker:
    """Keeps one time of last access per sequence, and writes it to its blocks only when they are about to be freed."""

    def __init__(self, allocator: RecordsAccess) -> None:
        self._allocator = allocator
        self._last_access: dict[int, float | None] = {}

    def add_seq(self, seq_id: int) -> None:
        """Begin to track a sequence."""
        self._last_access[seq_id] = None

    def remove_seq(self, seq_id: int) -> None:
        """Stop tracking a sequence. Raises UnknownSequenceError."""
        if seq_id not in self._last_access:
            raise UnknownSequenceError(seq_id)
        del self._last_access[seq_id]

    def update_last_access(self, seq_id: int, time: float) -> None:
        """Record that the sequence was used at `time`. Raises UnknownSequenceError."""
        if seq_id not in self._last_access:
            raise UnknownSequenceError(seq_id)
        self._last_access[seq_id] = time

    def update_seq_blocks_last_access(self, seq_id: int, block_ids: list[int]) -> None:
        """Write the time of last access, if there is one, to these blocks. Raises UnknownSequenceError."""
        if seq_id not in self._last_access:
            raise UnknownSequenceError(seq_id)
        time = self._last_access[seq_id]
        if time is not None:
            self._allocator.mark_blocks_as_accessed(block_ids, time)
