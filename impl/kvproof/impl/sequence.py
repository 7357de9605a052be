"""Sequences and groups, and the part of them that the block manager reads.

The manager reads a sequence only through the names in `SequenceLike` and a group only through those in `GroupLike`; any
object that has them works. The classes below are a simple implementation.

The identity of a block is its tokens, all blocks before it, `extra_hash()` of the sequence (any hashable, compared by
equality: an adapter, a salt) and the result of the optional method `block_extra(index)` of the sequence for this block
(any hashable, None for nothing: an image and its position inside the block).

Source: vLLM 0.9, vllm/sequence.py.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterator
from collections.abc import Sequence as AbstractSequence
from typing import Protocol, overload

from .errors import InvalidValueError, require_at_least

BLANK_TOKEN_ID = -1


class LogicalTokenBlock:
    """Consecutive tokens of a sequence, at most as many as the block size: a row of token slots, without any memory.

    Source: vLLM 0.4, vllm/block.py, LogicalTokenBlock.
    """

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

    def append_tokens(self, token_ids: AbstractSequence[int]) -> None:
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


class LogicalTokenBlocks(AbstractSequence[LogicalTokenBlock]):
    """The logical blocks of one sequence.

    It gets a new one only when its last one is full. So all but the last are full, and logical block i begins with
    position i times the block size.
    """

    def __init__(self, block_size: int, token_ids: AbstractSequence[int] = ()) -> None:
        require_at_least("block_size", block_size, 1)
        self.block_size = block_size
        self.num_tokens = 0
        self._blocks: list[LogicalTokenBlock] = []
        self.append_tokens(token_ids)

    def append_tokens(self, token_ids: AbstractSequence[int]) -> None:
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


class SequenceStatus(enum.IntEnum):
    """The status of a sequence; every value above SWAPPED is finished."""

    WAITING = 0
    RUNNING = 1
    SWAPPED = 2
    FINISHED_STOPPED = 3
    FINISHED_LENGTH_CAPPED = 4
    FINISHED_ABORTED = 5
    FINISHED_IGNORED = 6

    @staticmethod
    def is_finished(status: SequenceStatus) -> bool:
        return status > SequenceStatus.SWAPPED


class DataLike(Protocol):
    """The part of a sequence's data that the manager reads."""

    def get_num_computed_tokens(self) -> int: ...


class SequenceLike(Protocol):
    """The part of a sequence that the manager reads. It neither changes nor keeps the token list."""

    @property
    def seq_id(self) -> int: ...
    @property
    def status(self) -> int: ...
    @property
    def data(self) -> DataLike: ...
    def get_token_ids(self) -> list[int]: ...
    def extra_hash(self) -> Hashable: ...
    def is_prefill(self) -> bool: ...


class GroupLike(Protocol):
    """The part of a group that the manager reads."""

    @property
    def request_id(self) -> str: ...
    def get_seqs(self, status: SequenceStatus | None = None) -> AbstractSequence[SequenceLike]: ...
    def is_encoder_decoder(self) -> bool: ...
    def get_encoder_seq(self) -> SequenceLike | None: ...


class SequenceData:
    """The tokens of one sequence, and for how many of them KV is computed."""

    __slots__ = ("_num_computed_tokens", "_num_prompt_tokens", "_token_ids")

    def __init__(self, prompt_token_ids: AbstractSequence[int], output_token_ids: AbstractSequence[int] = ()) -> None:
        self._token_ids = [*prompt_token_ids, *output_token_ids]
        self._num_prompt_tokens = len(prompt_token_ids)
        self._num_computed_tokens = 0

    @property
    def prompt_token_ids(self) -> tuple[int, ...]:
        return tuple(self._token_ids[: self._num_prompt_tokens])

    @property
    def output_token_ids(self) -> tuple[int, ...]:
        """The tokens generated so far."""
        return tuple(self._token_ids[self._num_prompt_tokens :])

    def get_token_ids(self) -> list[int]:
        """All tokens. It is the live list: read only."""
        return self._token_ids

    def get_len(self) -> int:
        return len(self._token_ids)

    def get_prompt_len(self) -> int:
        return self._num_prompt_tokens

    def get_num_computed_tokens(self) -> int:
        """Number of tokens whose KV is in the cache."""
        return self._num_computed_tokens

    def get_num_uncomputed_tokens(self) -> int:
        """Number of tokens whose KV is not computed yet."""
        return len(self._token_ids) - self._num_computed_tokens

    def append_token_id(self, token_id: int) -> None:
        self._token_ids.append(token_id)

    def update_num_computed_tokens(self, num_new_computed_tokens: int) -> None:
        """Add the number of tokens that a step has computed. Raises InvalidValueError if the sum is out of range."""
        computed = self._num_computed_tokens + num_new_computed_tokens
        if not 0 <= computed <= len(self._token_ids):
            raise InvalidValueError("computed tokens", computed, f"the sequence has {len(self._token_ids)} tokens")
        self._num_computed_tokens = computed

    def reset_state_for_recompute(self) -> None:
        """Forget that anything is computed, and keep the tokens."""
        self._num_computed_tokens = 0

    def copy(self) -> SequenceData:
        other = SequenceData(self._token_ids[: self._num_prompt_tokens], self._token_ids[self._num_prompt_tokens :])
        other._num_computed_tokens = self._num_computed_tokens
        return other


class Sequence:
    """One sequence of tokens. `extra` is what its KV depends on in addition to tokens, None for nothing."""

    def __init__(
        self, seq_id: int, prompt_token_ids: AbstractSequence[int], block_size: int, extra: Hashable = None
    ) -> None:
        require_at_least("block_size", block_size, 1)
        self.seq_id = seq_id
        self.block_size = block_size
        self.data = SequenceData(prompt_token_ids)
        self.status = SequenceStatus.WAITING
        self.extra = extra
        self._logical_blocks: LogicalTokenBlocks | None = None

    @property
    def logical_token_blocks(self) -> LogicalTokenBlocks:
        """The tokens in logical blocks, which are made at the first call and kept."""
        blocks = self._logical_blocks
        if blocks is None:
            blocks = self._logical_blocks = LogicalTokenBlocks(self.block_size)
        blocks.append_tokens(self.data.get_token_ids()[blocks.num_tokens :])
        return blocks

    @property
    def n_blocks(self) -> int:
        """Number of blocks that the known tokens need."""
        return -(-self.data.get_len() // self.block_size)

    def extra_hash(self) -> Hashable:
        """What the KV of every block depends on in addition to tokens."""
        return self.extra

    def get_token_ids(self) -> list[int]:
        """All tokens. It is the live list: read only."""
        return self.data.get_token_ids()

    def get_len(self) -> int:
        return self.data.get_len()

    def get_prompt_len(self) -> int:
        return self.data.get_prompt_len()

    def get_output_len(self) -> int:
        return self.data.get_len() - self.data.get_prompt_len()

    def append_token_id(self, token_id: int) -> None:
        self.data.append_token_id(token_id)

    def is_prefill(self) -> bool:
        """Whether a part of the prompt is not computed yet."""
        return self.data.get_num_computed_tokens() < self.data.get_prompt_len()

    def is_finished(self) -> bool:
        return SequenceStatus.is_finished(self.status)

    def reset_state_for_recompute(self) -> None:
        """Forget that anything is computed, after a preemption by recompute."""
        self.data.reset_state_for_recompute()

    def fork(self, new_seq_id: int) -> Sequence:
        """Return a sequence with the same tokens and status."""
        other = Sequence(new_seq_id, (), self.block_size, self.extra)
        other.data, other.status = self.data.copy(), self.status
        return other


class SequenceGroup:
    """The sequences of one request, and the encoder's sequence if the model has an encoder."""

    def __init__(self, request_id: str, seqs: AbstractSequence[Sequence], encoder_seq: Sequence | None = None) -> None:
        self.request_id = request_id
        self.seqs = list(seqs)
        self.encoder_seq = encoder_seq

    def get_seqs(self, status: SequenceStatus | None = None) -> list[Sequence]:
        """The sequences, all or those with one status."""
        if status is None:
            return self.seqs
        return [seq for seq in self.seqs if seq.status == status]

    def num_seqs(self, status: SequenceStatus | None = None) -> int:
        """Number of sequences, of all or of those with one status."""
        return len(self.get_seqs(status))

    def get_unfinished_seqs(self) -> list[Sequence]:
        return [seq for seq in self.seqs if not seq.is_finished()]

    def get_finished_seqs(self) -> list[Sequence]:
        return [seq for seq in self.seqs if seq.is_finished()]

    def is_encoder_decoder(self) -> bool:
        return self.encoder_seq is not None

    def get_encoder_seq(self) -> Sequence | None:
        return self.encoder_seq

    def is_finished(self) -> bool:
        return all(seq.is_finished() for seq in self.seqs)

    def is_prefill(self) -> bool:
        """Whether a part of the prompt is not computed yet."""
        return self.seqs[0].is_prefill()

    def add(self, seq: Sequence) -> None:
        """Add a fork. Raises InvalidValueError if the group has a sequence of this id."""
        if any(other.seq_id == seq.seq_id for other in self.seqs):
            raise InvalidValueError("seq_id", seq.seq_id, f"group {self.request_id} has it already")
        self.seqs.append(seq)

    def remove(self, seq_id: int) -> None:
        """Remove a sequence. Raises InvalidValueError if the group does not have it."""
        if all(seq.seq_id != seq_id for seq in self.seqs):
            raise InvalidValueError("seq_id", seq_id, f"group {self.request_id} does not have it")
        self.seqs = [seq for seq in self.seqs if seq.seq_id != seq_id]
