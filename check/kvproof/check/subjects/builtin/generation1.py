"""The built-in block manager of the first generation as a subject. Its sliding window is a ring of blocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kvproof.check.protocol.manager import (
    NULL_BLOCK,
    Admission,
    Admitted,
    Assumption,
    Config,
    Refused,
    Unsupported,
)
from kvproof.check.subjects.builtin.manager import ASSUMPTIONS, BuiltIn, FakeSequence, Tables
from kvproof.impl import BlockSpaceManagerV1, Prefix, SequenceStatus
from kvproof.impl.errors import InvalidValueError
from kvproof.spec.compilation import sized_function

PROMPT_BESIDE_RING = Assumption(
    "prompt-beside-ring", "A prompt longer than the ring is computed in one step, which does not read the ring."
)


def blocks_of_ring(config: Config) -> int | None:
    """The number of blocks of the ring that keeps the window; None if there is no window. Raises Unsupported."""
    if config.window and config.chunked:
        raise Unsupported("a ring does not hold what the later chunks of a prompt read")
    return None if config.window is None else sized_function("blocks_for", config.block_size)(config.window - 1) + 1


class Generation1(BuiltIn):
    """`kvproof.impl.BlockSpaceManagerV1`, the manager of the first generation, behind the protocol.

    Its sliding window is a ring of W blocks: position p uses the slot of position p - W * block_size. The judge's model
    of a window differs: it has an entry for each logical block, dropped when no later token reads it. So the ring is
    shown in that form: the last W entries of a table as blocks, the earlier ones as the null block. The entry that the
    ring drops and the one that takes its place are one block, given up and taken again in the same call.

    That the entry may be left is true for a window of (W - 1) * block_size + 1 tokens: when the first token of a block
    comes, the block taken over holds only positions before it. So the manager gets the smallest ring for which the
    judge's window is at most that. What a ring keeps beyond it, the slots of the taken block that are not overwritten
    yet, the judge does not look at; `tests/impl/vllm_api/test_generation1_ring_walk.py` does.
    """

    name = "kvproof-generation1"
    capabilities = replace(
        BuiltIn.capabilities,
        lookahead=False,
        ring_window=True,
        refusal_slack=None,
        several_tokens=False,
        hits_whole_prompts=False,
        prefixes=True,
    )
    assumptions: tuple[Assumption, ...] = (*ASSUMPTIONS, PROMPT_BESIDE_RING)

    def __init__(self) -> None:
        super().__init__(BlockSpaceManagerV1)

    def make(self, config: Config) -> Any:
        """A new manager; if there is a window, with the ring that keeps it. Raises Unsupported."""
        self.num_ring_blocks = num_blocks = blocks_of_ring(config)
        self.prefixes: list[Prefix] = []
        self.named: dict[int, int] = {}  # the tokens of the prefix that a group names
        return super().make(replace(config, window=None if num_blocks is None else num_blocks * config.block_size))

    def new_prefix(self, group: int, num_tokens: int) -> None:
        self.named[group] = num_tokens

    def can_admit(self, group: int) -> Admission:
        """Ask `can_allocate`. A group that names a prefix gets the first one that the manager does not refuse to it."""
        if group in self.named:
            fake, num_tokens = self.fakes[group], self.named[group]
            seq = fake.members[0]
            fake.prefix = next((one for one in self.prefixes if _begins_with(seq, one, num_tokens)), None)
            if fake.prefix is None:
                fake.prefix = Prefix(seq.tokens[:num_tokens], self.config.block_size)
                self.prefixes.append(fake.prefix)
        return super().can_admit(group)

    def admit(self, group: int, num_tokens: int) -> Admitted | Refused:
        """Call `allocate`. The hit is the named prefix, if it is computed."""
        prefix = self.fakes[group].prefix
        hit = prefix.get_length() if prefix is not None and prefix.computed else 0
        admitted = super().admit(group, num_tokens)
        return admitted if self.config.caching else Admitted(hit)

    def free(self, seq: int) -> None:
        number = self._group_of[seq]
        super().free(seq)
        if not self.groups[number]:
            self.named.pop(number, None)

    def tables_of(self, wanted: Iterable[int]) -> Tables:
        """What a worker is shown, with absolute numbers: of sequences with an even number by the handles of blocks."""
        handles = self.manager.block_tables
        shown = {}
        for seq, (table,) in super().tables_of(wanted).items():
            fake = self.encoders[seq].encoder if seq in self.encoders else self.seqs.get(seq)
            if seq % 2 == 0 and seq in handles:
                table = [block.block_number for block in handles[seq]]
            base = self.config.num_gpu_blocks if fake is not None and fake.status is SequenceStatus.SWAPPED else 0
            shown[seq] = [self._without_turns([base + block for block in table])]
        return shown

    def _without_turns(self, table: list[int]) -> list[int]:
        """Show each block of a ring once, at its last entry; an entry that names another block stays as it is."""
        num_left = 0 if self.num_ring_blocks is None else max(0, len(table) - self.num_ring_blocks)
        again = table[self.num_ring_blocks :]
        return [NULL_BLOCK if b == later else b for b, later in zip(table[:num_left], again, strict=False)] + table[
            num_left:
        ]


def _begins_with(seq: FakeSequence, prefix: Prefix, num_tokens: int) -> bool:
    """Whether a prefix of so many tokens is that of the sequence, as the prefix says."""
    if prefix.get_length() != num_tokens // prefix.block_size * prefix.block_size:
        return False
    try:
        prefix.require_of(seq)
    except InvalidValueError:
        return False
    return True
