"""The built-in block manager of the first generation as a subject.

Its sliding window is a ring of W blocks: position p uses the slot of position p - W * block_size. The judge's model of
a window differs: it has an entry for each logical block, dropped when no later token reads it. So the ring is shown in
that form: the last W entries of a table as blocks, the earlier ones as the null block. The entry that the ring drops
and the one that takes its place are one block, given up and taken again in the same call.

That the entry may be left is true for a window of (W - 1) * block_size + 1 tokens: when the first token of a block
comes, the block taken over holds only positions before it. So the manager gets the smallest ring for which the
judge's window is at most that. What a ring keeps beyond it, the slots of the taken block that are not overwritten
yet, the judge does not look at; `tests/impl/vllm_api/test_generation1_ring_walk.py` does.
"""

from dataclasses import replace
from typing import Any

from kvproof.check.protocol.manager import Assumption, Config, Unsupported
from kvproof.check.subjects.builtin.manager import ASSUMPTIONS, BuiltIn
from kvproof.impl import BlockSpaceManagerV1
from kvproof.spec.native import sized_function

PROMPT_BESIDE_RING = Assumption(
    "prompt-beside-ring", "A prompt longer than the ring is computed in one step, which does not read the ring."
)


def blocks_of_ring(config: Config) -> int | None:
    """The number of blocks of the ring that keeps the window; None if there is no window. Raises Unsupported."""
    if config.window and config.chunked:
        raise Unsupported("a ring does not hold what the later chunks of a prompt read")
    return None if config.window is None else sized_function("blocks_for", config.block_size)(config.window - 1) + 1


class Generation1(BuiltIn):
    """`kvproof.impl.BlockSpaceManagerV1` behind the protocol."""

    name = "kvproof-generation1"
    capabilities = replace(BuiltIn.capabilities, lookahead=False)
    assumptions: tuple[Assumption, ...] = (*ASSUMPTIONS, PROMPT_BESIDE_RING)

    def __init__(self) -> None:
        super().__init__(BlockSpaceManagerV1)

    def make(self, config: Config) -> Any:
        """A new manager; if there is a window, with the ring that keeps it. Raises Unsupported."""
        num_blocks = blocks_of_ring(config)
        return super().make(replace(config, window=None if num_blocks is None else num_blocks * config.block_size))
