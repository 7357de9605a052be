"""vLLM's V0 block manager of the first generation as a subject: releases 0.2.0 to 0.6.3.

Its sliding window is a ring of W blocks: position p uses the slot of position p - W * block_size, and a table names a
block again each time the ring comes round. As in kvproof's own first generation (`builtin/generation1.py`), the ring
is shown as the judge's window: the last W entries as blocks, the earlier ones as the null block. So the manager gets
the smallest ring for which the judge's window is at most (W - 1) * block_size + 1 tokens.

A release frees a table through a set of block objects. Its order is that of memory addresses, which differs in each
run. Here the hash of a block is its number, so that a run can be repeated.

Limits: no lookahead slots (the manager asserts it); no prompt in chunks before 0.4.0.post1, nor with a window. With
caching, no group of several waiting sequences (the engine makes none: it forks after the prompt). The last block of a
prompt is shared only if it is full, because the specification has no hit of a partial block. Chunks and swaps are not
driven together: a swap writes the host's twin of a block that is not computed there, which is harmless, but is no rule
of the specification.

In 0.3 a request may name a prefix (`prefix_pos`). The adapter does what the engine does with it: it takes the prefix
from the release's own `PrefixPool`, and after each step the prefixes of its groups are computed. A request whose prefix
is computed when its step is prepared does not compute it again: that is the hit of its admission. A swap leaves the
blocks of a prefix where they are; the table of a swapped sequence is shown with null blocks in their place. Together
with a window a prefix is unsupported: the model runner asserts that there is none.

Source: vLLM 0.3.3, vllm/engine/llm_engine.py and vllm/worker/model_runner.py.
"""

import sys
from dataclasses import replace
from typing import Any

from kvproof.check.protocol.manager import NULL_BLOCK, Admitted, Assumption, Config, Observation, Scheduled, Unsupported
from kvproof.check.subjects.builtin.generation1 import PROMPT_BESIDE_RING, blocks_of_ring
from kvproof.check.subjects.vllm.v0_loader import Manager
from kvproof.check.subjects.vllm.v0_manager import VllmV0
from kvproof.check.subjects.vllm.v0_observation import BlockPools, absolute_ids

PARTIAL_UNSHARED = Assumption(
    "partial-unshared", "With caching, the last block of a prompt, if it is not full, is like that of no other prompt."
)
SET_ORDER = Assumption(
    "set-order",
    "A set of blocks is iterated by block number; without the adapter, a release's order is that of addresses.",
)


class VllmV0Generation1(VllmV0):
    """`BlockSpaceManager`, and `BlockSpaceManagerV1` after it."""

    def __init__(self, version: str, found: Manager) -> None:
        super().__init__(version, found)
        self.name = f"vllm-v0-generation1 {version}"
        can_chunk = self._calls.append == "append_slots"
        self._prefix_pool = found.prefix_pool
        has_prefixes = found.prefix_pool is not None
        self.capabilities = replace(
            self.capabilities,
            lookahead=False,
            chunked=can_chunk,
            window=True,
            prefixes=has_prefixes,
            prefixes_stay=has_prefixes,
        )
        sys.modules[f"{found.make.__module__.partition('.')[0]}.block"].PhysicalTokenBlock.__hash__ = _number
        self.assumptions = (*self.assumptions, PROMPT_BESIDE_RING, PARTIAL_UNSHARED, SET_ORDER)

    def make(self, config: Config) -> Any:
        """A new manager; if there is a window, with the ring that keeps it. Raises Unsupported."""
        self._num_ring = blocks_of_ring(config)
        self._prefixes: Any = self._prefix_pool(config.block_size) if config.prefixes else None
        if config.caching and config.chunked and config.num_host_blocks:
            raise Unsupported("with caching, a prompt that is computed in part is not swapped")
        if config.caching and config.group_size > 1:
            raise Unsupported("with caching, a group has one waiting sequence")
        return super().make(
            replace(config, window=None if self._num_ring is None else self._num_ring * config.block_size)
        )

    def new_prefix(self, group: int, num_tokens: int) -> None:
        fake = self.fakes[group]
        first = fake.seqs[0]
        fake.prefix = self._prefixes.add_or_get_prefix(first.tokens[:num_tokens], first.lora_int_id)

    def admit(self, group: int, num_tokens: int) -> Admitted:
        """Allocate blocks for the whole prompt. A named prefix is a hit if it is computed."""
        prefix = self.fakes[group].prefix
        hit = prefix.get_length() if prefix is not None and prefix.computed else 0
        admitted = super().admit(group, num_tokens)
        return Admitted(hit) if hit else admitted

    def step_done(self, step: list[Scheduled]) -> None:
        super().step_done(step)
        for one in step:
            prefix = self.seqs[one.seq].group.prefix
            if prefix is not None and prefix.allocated:
                prefix.computed = True

    def _pools_of(self, manager: Any, config: Config) -> BlockPools:
        return BlockPools(manager, config)

    def observe(self) -> Observation:
        manager, num_gpu = self.manager, self.config.num_gpu_blocks
        tables = {seq: [self._as_window(absolute_ids(table, num_gpu))] for seq, table in manager.block_tables.items()}
        if self._prefixes is not None:
            for seq, (table,) in tables.items():
                one = self.seqs.get(seq)
                if one is not None and one.group.prefix is not None and one.status is self._status.SWAPPED:
                    table[:0] = [NULL_BLOCK] * one.group.prefix.get_num_blocks()
        if self._calls.has_cross:
            for request, table in manager.cross_block_tables.items():
                encoder = self.fakes[int(request)].encoder
                if encoder:
                    tables[encoder.seq_id] = [absolute_ids(table, num_gpu)]
        free = (manager.get_num_free_gpu_blocks(), manager.get_num_free_cpu_blocks())
        return Observation(tables, free, (), self._pools.refs(), self._pools.free_ids())

    def _as_window(self, ids: list[int]) -> list[int]:
        num_past = 0 if self._num_ring is None else max(0, len(ids) - self._num_ring)
        return [NULL_BLOCK] * num_past + ids[num_past:]


def _number(block: Any) -> int:
    return int(block.block_number)
