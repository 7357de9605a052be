"""KV groups: where the tokens of a sequence lie in the blocks of one group of layers.

The rules know blocks of one size, BLOCK_SIZE slots. Groups of layers over one pool may have blocks of different numbers
of tokens, and layers with a state (Mamba) have one value for a whole prefix. Both are written in the terms of the rules
here, so that every rule and every proof holds for them as it stands. BLOCK_SIZE is a common multiple of the numbers of
tokens, and a hit, which is a hit of every group, ends at a multiple of it.

*Blocks of b tokens.* A block has padding in its last BLOCK_SIZE - b slots. The padding becomes known, and is written,
with the last of the b tokens, and has its identity; so the block is full when its b tokens are. The first n tokens take
n // b * BLOCK_SIZE + n % b slots, and no number of tokens ends within the padding. A window of w tokens is one of
u * BLOCK_SIZE + v + 1 slots, where u, v = divmod(w - 1, b): the token at position q * b + r first reads entry q - u if
v <= r, and q - u - 1 otherwise, whether it is counted in tokens or in slots. A chunk of c tokens, a multiple of b, is
one of c // b * BLOCK_SIZE slots.

*States.* A block of a state holds the state after some prefix, and is written in place until the prefix ends with the
block, at a *boundary*. The next token reads the state before it and nothing else: a window of two tokens. A state is
read whole and only at its boundary: a hit needs the one block whose state is that of the prefix. A step that computes
several blocks at once leaves one state, the last; the entries between have no block, ever, and are *left out* of the
table that the rules know, with their tokens. What remains is an ordinary table: the identity of a token stands for all
tokens before it, also for those left out. Chunks that leave entries out begin at a boundary. A step that begins within
a block and goes past its end leaves no state there: the block never has that of its boundary, and cannot be hit.

Without a prefix cache a state has one block for the life of a sequence, written in place. The rules know of it one
slot, with the identity of the first token: the block must stay the same one, and nobody else's.

Source: `resolve_kv_cache_block_sizes` and `MambaManager` (mode "align", and "none" without a prefix cache) of vLLM's
V1 line.
"""

from typing import NamedTuple

STATE_WINDOW = 2  # a token reads its own state and the one before it


class Layout(NamedTuple):
    """How tokens lie in the blocks of one KV group."""

    num_slots: int  # of a block, as the rules know it
    num_tokens: int  # of a block
    is_state: bool = False  # a block holds the state after a prefix
    is_in_place: bool = False  # a state with one block for the life of a sequence

    @property
    def is_plain(self) -> bool:
        """Whether a slot is a token."""
        return self.num_slots == self.num_tokens and not self.is_in_place

    @property
    def leaves_out(self) -> bool:
        """Whether entries of a table may never get a block."""
        return self.is_state and not self.is_in_place

    def slots(self, num_tokens: int) -> int:
        """How many slots the first tokens of a sequence take, if no entry is left out."""
        if self.is_in_place:
            return min(num_tokens, 1)
        return num_tokens // self.num_tokens * self.num_slots + num_tokens % self.num_tokens

    def passes_boundary(self, start: int, stop: int) -> bool:
        """Whether a step begins within a block of states and goes past its end, where it leaves no state."""
        boundary = -(-start // self.num_tokens) * self.num_tokens
        return self.leaves_out and start < boundary < stop

    def may_stop_at(self, position: int) -> bool:
        """Whether a step may end at a position for the sake of the state that it leaves there."""
        return self.leaves_out and position % self.num_tokens == 0

    def window(self, reach: int) -> int:
        """How far back slots read, as `first_read` takes it, if tokens read back as far as `reach`, given alike."""
        if self.is_in_place:
            return 0
        if reach <= 0:
            return -(-reach // self.num_tokens * self.num_slots)
        num_blocks, rest = divmod(reach - 1, self.num_tokens)
        return num_blocks * self.num_slots + rest + 1

    def entries(self, num_tokens: int) -> int:
        """The blocks that a sequence of so many tokens needs, if it shares none; of states, those of one step.

        A step reads a state that was hit, and writes another.
        """
        return 2 if self.leaves_out else -(-self.slots(num_tokens) // self.num_slots)

    def padded(self, position: int, identity: int) -> list[int]:
        """The slots that the token at a position adds, each with its identity."""
        if self.is_in_place:
            return [] if position else [identity]
        is_last = (position + 1) % self.num_tokens == 0
        return [identity] * (1 + is_last * (self.num_slots - self.num_tokens))
