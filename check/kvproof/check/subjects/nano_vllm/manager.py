"""nano-vllm's block manager as a subject, by the path of a checkout.

The adapter plays the part of `nanovllm/engine/scheduler.py` (commit bb823b3): a prompt gets all its blocks
at once and is then computed in chunks; blocks are hashed when a step is complete; a decode asks for its slot when
its token is already there.

What it does not have, and what is therefore unsupported: fork, swap, sliding window, lookahead, adapters.
"""

from typing import Any

from kvproof.check.protocol.manager import Assumption, Capabilities, Config, Scheduled, Unsupported
from kvproof.check.protocol.manager_adapter import BOOLEAN_ADMISSION, ManagerAdapter
from kvproof.check.subjects.nano_vllm.loader import import_manager

BLOCK_SIZE_MIN = 2

BLOCK_SIZE = Assumption(
    "block-size", "A block has at least two slots: the manager finds a new block by a remainder of one."
)
ASSUMPTIONS = (
    BOOLEAN_ADMISSION,
    Assumption("asks-first", "The caller asks, and calls only after a yes, with nothing in between."),
    BLOCK_SIZE,
    Assumption("synchronous", "A step is over before the next is scheduled; frees come between steps."),
)


class NanoVllm(ManagerAdapter):
    """`nanovllm.engine.block_manager.BlockManager`."""

    name = "nano-vllm"
    capabilities = Capabilities(caching=True, chunked=True)
    assumptions = ASSUMPTIONS

    def __init__(self, path: str) -> None:
        self._manager_class, self._sequence_class = import_manager(path)

    def make(self, config: Config) -> Any:
        """A manager of its own, and a class of sequences that knows its block size. Raises Unsupported."""
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
        """As after a step: the token is there before its slot is."""
        super().grow(seq, token)
        self._sequence(seq).append_token(token)

    def hits(self, group: int) -> int:
        """Asked together with admission; a prompt without room is not looked up."""
        (seq,) = self.groups[group]
        return max(0, int(self.manager.can_allocate(self._sequence(seq)))) * self.config.block_size

    def can_allocate(self, tokens: list[int]) -> bool:
        """-1 for no room, else the number of cached blocks."""
        return int(self.manager.can_allocate(self._sequence_of_size(tokens))) >= 0

    def allocate(self, seq: int, tokens: list[int]) -> int:
        """All blocks of the prompt, those that are cached shared."""
        fake = self._sequence(seq)
        self.manager.allocate(fake, self.manager.can_allocate(fake))
        return int(fake.num_cached_tokens)

    def can_append(self, group: int) -> bool:
        """A chunk of a prompt has its blocks already."""
        (seq,) = self.groups[group]
        fake = self._sequence(seq)
        return not self._decodes(seq) or bool(self.manager.can_append(fake))

    def append(self, seq: int, num_tokens: int) -> None:
        """A new block, if the last token opens one."""
        if self._decodes(seq):
            self.manager.may_append(self._sequence(seq))

    def _decodes(self, seq: int) -> bool:
        fake = self._sequence(seq)
        return bool(fake.num_cached_tokens + 1 == len(fake) and not fake.is_prefill)

    def release(self, seq: int) -> None:
        """Its blocks are given up; if it was preempted it is a prompt again."""
        fake = self._sequence(seq)
        self.manager.deallocate(fake)
        fake.is_prefill = True

    def free(self, seq: int) -> None:
        """The sequence is over."""
        super().free(seq)
        self._seqs.pop(seq, None)

    def step_done(self, step: list[Scheduled]) -> None:
        """As `postprocess`: what was computed is hashed, and counts as cached."""
        for one in step:
            fake = self._sequence(one.seq)
            fake.num_scheduled_tokens = one.num_tokens
            self.manager.hash_blocks(fake)
            fake.num_cached_tokens += one.num_tokens
            fake.num_scheduled_tokens = 0
            if fake.num_cached_tokens == len(fake):
                fake.is_prefill = False

    def tables(self) -> dict[int, list[int]]:
        """Of those that have blocks."""
        return {seq: fake.block_table for seq, fake in self._seqs.items() if fake.block_table}

    def num_free(self) -> int:
        """Blocks in the free queue, cached or not."""
        return len(self.manager.free_block_ids)

    def refcounts(self) -> list[int]:
        """Of every block."""
        return [block.ref_count for block in self.manager.blocks]

    def free_ids(self) -> list[int]:
        """In the order in which they are taken."""
        return list(self.manager.free_block_ids)


def make(version: str) -> NanoVllm:
    """The manager of a checkout, whose path stands in the place of a version. Raises EngineError."""
    return NanoVllm(version)
