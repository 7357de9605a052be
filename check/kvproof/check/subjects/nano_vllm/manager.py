"""nano-vllm's block manager as a subject; the path of a checkout names it.

The adapter replaces `nanovllm/engine/scheduler.py` (commit bb823b3). A prompt gets all its blocks at once and is then
computed in chunks. Blocks are hashed when a step is complete. A decode asks for its slot after its token was appended.

nano-vllm has no fork, swap, sliding window, lookahead or adapters, so these are unsupported.
"""

from typing import Any

from kvproof.check.protocol.manager import Assumption, Capabilities, Config, Scheduled, Unsupported
from kvproof.check.protocol.manager_adapter import BOOLEAN_ADMISSION, ManagerAdapter
from kvproof.check.subjects.nano_vllm.loader import import_manager

BLOCK_SIZE_MIN = 2

BLOCK_SIZE = Assumption(
    "block-size", "A block has at least two slots: the manager detects a new block by a remainder of one."
)
ASSUMPTIONS = (
    BOOLEAN_ADMISSION,
    Assumption("asks-first", "The caller asks, and calls only after a yes, with nothing in between."),
    BLOCK_SIZE,
    Assumption("synchronous", "A step is over before the next is scheduled; frees come between steps."),
)


class NanoVllm(ManagerAdapter):
    """nano-vllm's `nanovllm.engine.block_manager.BlockManager`."""

    name = "nano-vllm"
    capabilities = Capabilities(caching=True, chunked=True)
    assumptions = ASSUMPTIONS

    def __init__(self, path: str) -> None:
        self._manager_class, self._sequence_class = import_manager(path)

    def make(self, config: Config) -> Any:
        """A new manager. Its sequences get a class with this block size. Raises Unsupported."""
        if config.block_size < BLOCK_SIZE_MIN:
            raise Unsupported("a block has at least two slots")
        if not config.caching:
            raise Unsupported("the prefix cache cannot be switched off")
        self._sequence_of_size = type("Sequence", (self._sequence_class,), {"block_size": config.block_size})
        self._seqs: dict[int, Any] = {}
        return self._manager_class(config.num_gpu_blocks, config.block_size)

    def _sequence(self, seq: int) -> Any:
        if seq not in self._seqs:
            self._seqs[seq] = self._sequence_of_size(self.tokens[seq])
        return self._seqs[seq]

    def grow(self, seq: int, token: int) -> None:
        """As after a step: append the token; its slot is allocated later."""
        super().grow(seq, token)
        self._sequence(seq).append_token(token)

    def hits(self, group: int) -> int:
        """The number of cached tokens, from the same call as the admission; 0 if the prompt does not fit."""
        (seq,) = self.groups[group]
        return max(0, int(self.manager.can_allocate(self._sequence(seq)))) * self.config.block_size

    def can_allocate(self, tokens: list[int]) -> bool:
        """Whether the prompt fits: nano-vllm answers -1 if not, else the number of cached blocks."""
        return int(self.manager.can_allocate(self._sequence_of_size(tokens))) >= 0

    def allocate(self, seq: int, tokens: list[int]) -> int:
        """Allocate all blocks of the prompt, and share those that are cached. Returns the hit in tokens."""
        fake = self._sequence(seq)
        self.manager.allocate(fake, self.manager.can_allocate(fake))
        return int(fake.num_cached_tokens)

    def can_append(self, group: int) -> bool:
        """Whether a decode can get its slot; a chunk of a prompt already has its blocks."""
        (seq,) = self.groups[group]
        fake = self._sequence(seq)
        return not self._decodes(seq) or bool(self.manager.can_append(fake))

    def append(self, seq: int, num_tokens: int) -> None:
        """Allocate a new block for a decode if its last token needs one."""
        if self._decodes(seq):
            self.manager.may_append(self._sequence(seq))

    def _decodes(self, seq: int) -> bool:
        fake = self._sequence(seq)
        return bool(fake.num_cached_tokens + 1 == len(fake) and not fake.is_prefill)

    def release(self, seq: int) -> None:
        """Free the blocks of the sequence; if it was preempted, it becomes a prompt again."""
        fake = self._sequence(seq)
        self.manager.deallocate(fake)
        fake.is_prefill = True

    def free(self, seq: int) -> None:
        """End the sequence, and forget it."""
        super().free(seq)
        self._seqs.pop(seq, None)

    def step_done(self, step: list[Scheduled]) -> None:
        """As in `postprocess`: hash the blocks that were computed, and count their tokens as cached."""
        for one in step:
            fake = self._sequence(one.seq)
            fake.num_scheduled_tokens = one.num_tokens
            self.manager.hash_blocks(fake)
            fake.num_cached_tokens += one.num_tokens
            fake.num_scheduled_tokens = 0
            if fake.num_cached_tokens == len(fake):
                fake.is_prefill = False

    def tables(self) -> dict[int, list[int]]:
        """The block ids of each sequence that has blocks."""
        return {seq: fake.block_table for seq, fake in self._seqs.items() if fake.block_table}

    def num_free(self) -> int:
        """The number of blocks in the free queue, whether cached or not."""
        return len(self.manager.free_block_ids)

    def refcounts(self) -> list[int]:
        """The refcount of every block."""
        return [block.ref_count for block in self.manager.blocks]

    def free_ids(self) -> list[int]:
        """The free blocks, in the order in which they are allocated."""
        return list(self.manager.free_block_ids)


def make(version: str) -> NanoVllm:
    """The manager of the checkout at this path. Raises EngineError if the folder is not a checkout."""
    return NanoVllm(version)
