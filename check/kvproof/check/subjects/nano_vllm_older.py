"""nano-vllm's block manager before prompts were computed in chunks; most of its forks have this interface.

`can_allocate(seq)` answers true or false. `allocate(seq)` finds the cached blocks by itself, gives the sequence all
blocks of its prompt, and caches the full ones at once: the step that follows computes the whole prompt.
`may_append(seq)` is called after a token was appended. It takes a block, or caches the one that this token has filled.
So a hit may name a block that is computed in the same step.

There is no look-up without an allocation. A look-up is answered from the manager's own index, with its own hash, as
`allocate` uses them; of a manager without these names it finds nothing.
"""

import inspect

from kvproof.check.protocol.manager import Assumption, Capabilities
from kvproof.check.subjects.loading import EngineError
from kvproof.check.subjects.nano_vllm import (
    MANAGER_ASSUMPTIONS,
    NanoVllm,
    OfCheckout,
    has_older_interface,
    import_module,
)

NONE = -1  # the hash before the first block, and the id of a block that is not there
INDEX = ("compute_hash", "hash_to_block_id")
ASSUMPTIONS = (
    *MANAGER_ASSUMPTIONS,
    Assumption("write-before-read", "A step writes its KV before it reads: a hit may be computed in the same step."),
)


class NanoVllmOlder(OfCheckout):
    """nano-vllm's `BlockManager`, with the older interface."""

    capabilities = Capabilities(caching=True, same_step_hits=True, hits_whole_prompts=True)
    assumptions = ASSUMPTIONS

    def can_allocate(self, tokens: list[int]) -> bool:
        return bool(self.manager.can_allocate(self._sequence_of_size(tokens)))

    def allocate(self, seq: int, tokens: list[int]) -> int:
        """Allocate all blocks of the prompt. Returns the hit in tokens."""
        fake = self._seqs[seq] = self._sequence_of_size(tokens)
        self.manager.allocate(fake)
        return int(fake.num_cached_tokens)

    def grow(self, seq: int, token: int) -> None:
        super().grow(seq, token)
        if seq in self._seqs:
            self._seqs[seq].append_token(token)

    def can_append(self, group: int) -> bool:
        return all(self.manager.can_append(self._seqs[seq]) for seq in self.groups[group])

    def append(self, seq: int, num_tokens: int) -> None:
        self.manager.may_append(self._seqs[seq])

    def release(self, seq: int) -> None:
        self.manager.deallocate(self._seqs.pop(seq))

    def hits(self, group: int) -> int:
        manager, size, tokens = self.manager, self.config.block_size, self.tokens[self.groups[group][0]]
        found, number = 0, NONE
        while all(hasattr(manager, name) for name in INDEX) and found + size <= len(tokens):
            part = tokens[found : found + size]
            number = manager.compute_hash(part, number)
            block = manager.hash_to_block_id.get(number, NONE)
            if block == NONE or manager.blocks[block].token_ids != part:
                break
            found += size
        return found

    def computed(self, seqs: list[int], stops: list[int]) -> None:
        """Full blocks were cached before they were computed."""

    def tables(self) -> dict[int, list[int]]:
        return {seq: fake.block_table for seq, fake in self._seqs.items()}

    def num_free(self) -> int:
        return len(self.manager.free_block_ids)

    def refcounts(self) -> list[int]:
        return [block.ref_count for block in self.manager.blocks]

    def free_ids(self) -> list[int]:
        return list(self.manager.free_block_ids)


def manager_of(path: str) -> NanoVllm | NanoVllmOlder:
    """The block manager of a checkout, by the interface that it has. Raises EngineError if it has another one."""
    kind = import_module(path, "block_manager").BlockManager
    if has_older_interface(kind):
        return NanoVllmOlder(path)
    if not hasattr(kind, "hash_blocks"):
        raise EngineError(
            f"the BlockManager of {path} has neither interface that kvproof drives: allocate(seq, num_cached_blocks) "
            "with hash_blocks, or the older allocate(seq) with may_append; it has "
            f"allocate{inspect.signature(kind.allocate)}"
        )
    return NanoVllm(path)
