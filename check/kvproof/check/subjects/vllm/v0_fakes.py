"""Stand-ins for the sequences and groups of vLLM: all that a V0 block manager reads of a request.

The names are those of `Sequence`, `SequenceData` and `SequenceGroup` in `vllm/sequence.py`, releases 0.2 to 0.10.
Two of them carry content: `hash_of_block` (first generation: tokens up to the end of a block, and the adapter) and
`extra_hash` (second, from 0.6.5: the adapter).
"""

from typing import Any


class FakeSequence:
    """What a manager reads of a sequence, and of its data. tokens: a list that the adapter extends."""

    __slots__ = (
        "block_size",
        "data",
        "extra",
        "group",
        "is_looked_up",
        "is_prompt",
        "lora_int_id",
        "num_computed",
        "seq_id",
        "status",
        "tokens",
    )

    def __init__(
        self, seq_id: int, group: "FakeGroup", tokens: list[int], adapter: int, status: Any, block_size: int
    ) -> None:
        self.seq_id, self.group, self.tokens, self.lora_int_id = seq_id, group, tokens, adapter
        self.status, self.block_size = status, block_size
        # (prompt adapter, LoRA). Without an adapter vLLM has None. Its hash differs in each process before Python 3.12,
        # and a tie in the evictor's heap is decided by hashes.
        self.extra = hash((0, adapter))
        self.num_computed = 0
        self.is_prompt = True  # until all its tokens are computed; then each step is a decode
        self.is_looked_up = False
        self.data = self

    def forked(self, seq_id: int, tokens: list[int]) -> "FakeSequence":
        """A child with as many computed tokens as its parent. tokens: the list of the child, equal to the parent's."""
        child = FakeSequence(seq_id, self.group, tokens, self.lora_int_id, self.status, self.block_size)
        child.num_computed, child.is_prompt = self.num_computed, self.is_prompt
        return child

    def get_token_ids(self) -> list[int]:
        return self.tokens

    def get_len(self) -> int:
        return len(self.tokens)

    def get_num_computed_tokens(self) -> int:
        return self.num_computed

    def is_prefill(self) -> bool:
        return self.is_prompt

    def is_finished(self) -> bool:
        return False

    def extra_hash(self) -> int:
        return self.extra

    @property
    def n_blocks(self) -> int:
        return -(-len(self.tokens) // self.block_size)

    @property
    def logical_token_blocks(self) -> range:
        return range(self.n_blocks)

    def num_hashed_tokens_of_block(self, index: int) -> int:
        return (index + 1) * self.block_size

    def hash_of_block(self, index: int) -> int:
        stop = self.num_hashed_tokens_of_block(index)
        owner = self.seq_id if stop > len(self.tokens) else None  # see the limits in `v0_generation1`
        return hash((tuple(self.tokens[:stop]), self.lora_int_id, owner))


class FakeGroup:
    """What a manager reads of a group."""

    __slots__ = ("encoder", "prefix", "request_id", "seqs")

    def __init__(self, group: int) -> None:
        self.request_id = str(group)
        self.seqs: list[FakeSequence] = []
        self.encoder: FakeSequence | None = None
        self.prefix: Any = None  # in 0.3: the prefix that the user names

    def get_seqs(self, status: Any = None) -> list[FakeSequence]:
        return [seq for seq in self.seqs if status is None or seq.status is status]

    def num_seqs(self, status: Any = None) -> int:
        return len(self.get_seqs(status))

    @property
    def seqs_dict(self) -> dict[int, FakeSequence]:
        return {seq.seq_id: seq for seq in self.seqs}

    def is_encoder_decoder(self) -> bool:
        return self.encoder is not None

    def get_encoder_seq(self) -> FakeSequence | None:
        return self.encoder
