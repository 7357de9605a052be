"""LMDeploy's block manager and prefix-cache trie (PyTorch engine) as a subject: release 0.18.

The adapter replaces `lmdeploy/pytorch/paging/scheduler.py` and `prefill_scheduler.py`:

- Admission: the trie is searched for the prompt, eviction from the trie makes room, and blocks are allocated. The
  blocks that the step will fill are attached to the trie at once (`_allocate_and_commit`); if the trie has equal blocks
  of another sequence, those are taken over.
- A later chunk of a prompt is reserved in the same way (`reserve_long_context_chunk`).
- A decode gets blocks only when it needs one, and attaches the blocks that it has filled (`schedule_running`).
- A sequence that ends or is preempted gives up all its blocks (`release_paging_resources`).

Real modules: the block managers, the trie, and the helper that makes room by eviction. Stubs: messages,
configurations, connectors, and the caches of states, which full attention does not use. Of LMDeploy's dependencies,
only numpy is needed.

LMDeploy's allocator stores the time of the last access in whole seconds, and its trie breaks ties by memory addresses.
With them, the order of eviction would differ from run to run. A clock that counts its readings makes runs repeatable.
The allocator stores it when a sequence gets or releases a block, and only blocks that no sequence holds are evicted. So
the date of a block is that of its last release, by a sequence or after a look-up (`RELEASE_LRU`).

The trie finds a block by a hash and then compares its tokens. In configurations with an odd number of blocks the hash
is the first token of the block, so that different blocks have equal hashes and the comparison decides.

Limits: full attention only. States, images, windows, connectors, and sequences that are stopped and continued are not
driven, nor is the block manager's swap, which the scheduler no longer calls.
"""

import logging
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import Admission, Assumption, Config, Scheduled
from kvproof.check.protocol.manager_adapter import BOOLEAN_ADMISSION, ManagerAdapter
from kvproof.check.subjects.loading import download, stub_modules
from kvproof.check.subjects.loading.stub_modules import StubObject
from kvproof.spec.text.eviction_policy import RELEASE_LRU

PACKAGE = "lmdeploy"
REAL = (
    "pytorch.block",
    "pytorch.paging.block_manager.base_block_manager",
    "pytorch.paging.block_manager.default_block_manager",
    "pytorch.paging.block_trie.checkpoint",
    "pytorch.paging.block_trie.checkpoint_lifecycle",
    "pytorch.paging.block_trie.kv_lifecycle",
    "pytorch.paging.block_trie.node",
    "pytorch.paging.block_trie.trie",
    "pytorch.paging.eviction_helper.recompute_eviction_helper",
    "pytorch.prefix_cache_state",
)
ASSUMPTIONS = (
    BOOLEAN_ADMISSION,
    Assumption("asks-first", "The caller makes room, and allocates only after a yes, with nothing in between."),
    Assumption("write-before-read", "A step writes its KV before it reads: a hit may be computed in the same step."),
    Assumption("adapter-names", "Adapters have names of their own; here they are fake apart by their ids."),
    Assumption("synchronous", "A step is over before the next is scheduled; frees come between steps."),
)


def import_modules(version: str, cache: Path | None = None) -> StubObject:
    """Import from its sources what the adapter uses of a release. Raises EngineError if it was not downloaded."""
    root = download.find(PACKAGE, version, cache) / PACKAGE
    module = stub_modules.mount_real(PACKAGE, root, REAL, {"utils": {"get_logger": logging.getLogger}})
    module("pytorch.paging.block_manager.base_block_manager").time = StubObject(perf_counter=count(1).__next__)
    return StubObject(
        block=module("pytorch.block"),
        manager=module("pytorch.paging.block_manager.default_block_manager"),
        trie=module("pytorch.paging.block_trie.trie"),
        eviction=module("pytorch.paging.eviction_helper.recompute_eviction_helper"),
        prefix=module("pytorch.prefix_cache_state"),
    )


class FakeSequence:
    """A sequence, with the fields that the manager and the trie read (`lmdeploy/pytorch/messages.py`)."""

    kv_token_limit: int | None = None
    return_routed_experts = False
    logical_state = -1
    session_id = 0

    def __init__(self, seq: int, tokens: list[int], adapter: str | None, block_size: int, modules: Any) -> None:
        self.seq_id, self.adapter_name, self.block_size = seq, adapter, block_size
        self.tokens = list(tokens)
        self.num_history_ids = 0
        self.logical_blocks = modules.block.LogicalTokenBlocks()
        self.prefix_cache = modules.prefix.PrefixCacheState()

    @property
    def history_cache(self) -> Any:
        return np.array(self.tokens)

    @property
    def num_all_ids(self) -> int:
        return len(self.tokens)

    num_valid_ids = num_all_ids

    @property
    def num_blocks(self) -> int:
        return len(self.logical_blocks)

    def set_step(self, step: int) -> None:
        self.num_history_ids = step

    def get_prefix_cache_extra_identity(self, start: int, end: int) -> tuple[()]:
        return ()

    def clamp_prefix_cache_match_step(self, step: int) -> int:
        return step // self.block_size * self.block_size

    def get_prefix_cache_max_match_step(self) -> int:
        return self.clamp_prefix_cache_match_step(max(0, len(self.tokens) - 1))


class LMDeploy(ManagerAdapter):
    """LMDeploy's `DefaultBlockManager` and `BlockTrie`."""

    capabilities = Capabilities(
        caching=True,
        chunked=True,
        lookahead=True,
        adapters=True,
        same_step_hits=True,
        steps_are_certain=True,
        dedups_after_step=True,
        refusal_slack=0,
        eviction=RELEASE_LRU,
    )
    assumptions = ASSUMPTIONS

    def __init__(self, version: str) -> None:
        self.name = f"lmdeploy {version}"
        self._modules = import_modules(version)

    def make(self, config: Config) -> Any:
        """A new manager, a trie over its allocator, and the eviction helper for both. Returns the manager."""
        modules = self._modules
        manager = modules.manager.DefaultBlockManager(config.num_gpu_blocks, 0)
        self._trie = modules.trie.BlockTrie(
            allocator=manager.allocator, block_size=config.block_size, enabled=config.caching
        )
        if config.num_gpu_blocks % 2:
            self._trie._hash_block = lambda token_ids, extra_identity: int(token_ids[0])
        self._eviction = modules.eviction.RecomputeEvictionHelper(
            block_manager=manager, block_trie=self._trie, state_manager=None, load_coordinator=None, is_ssm=False
        )
        self._fakes: dict[int, FakeSequence] = {}
        self._prompts: dict[int, int] = {}
        return manager

    def _sequence(self, seq: int) -> FakeSequence:
        if seq not in self._fakes:
            key = self.keys[seq]
            name = f"adapter-{key.adapter_id}" if key.adapter_id else None
            self._fakes[seq] = FakeSequence(seq, self.tokens[seq], name, self.config.block_size, self._modules)
        return self._fakes[seq]

    def grow(self, seq: int, token: int) -> None:
        super().grow(seq, token)
        self._sequence(seq).tokens.append(token)

    def hits(self, group: int) -> int:
        """Match the prompt and take the match back again. Returns the number of tokens found."""
        (seq,) = self.groups[group]
        fake = self._sequence(seq)
        self._trie.match(fake)
        hit = fake.num_history_ids
        self._take_back(fake)
        return hit

    def _take_back(self, fake: FakeSequence) -> None:
        """As in `rollback` of the prefill scheduler, of a sequence that had no block before the match."""
        if fake.num_blocks:
            self.manager.truncate(fake, 0)
        self._forget(fake)

    def _forget(self, fake: FakeSequence) -> None:
        """The sequence is as it was before any match."""
        cache = fake.prefix_cache
        cache.trie_cursor, cache.match_start_step = None, -1
        cache.recompute_overlap.clear_tracking()
        fake.kv_token_limit = None
        fake.set_step(0)

    def can_admit(self, group: int) -> Admission:
        """Match, make room for the rest of the prompt, and ask whether it can be allocated."""
        (seq,) = self.groups[group]
        fake = self._sequence(seq)
        self._trie.match(fake)
        self._has_room(fake)
        can_allocate = bool(self.manager.can_allocate(fake, self.config.lookahead))
        self._take_back(fake)
        return self.admission(can_allocate)

    def _has_room(self, fake: FakeSequence) -> bool:
        """Whether the eviction helper can make room for all known tokens and for the lookahead."""
        return bool(self._eviction.try_make_capacity_for(fake, (), self.config.lookahead))

    def allocate(self, seq: int, tokens: list[int]) -> int:
        """Match, make room, allocate the first chunk, and attach its blocks to the trie. Returns the hit in tokens."""
        fake = self._sequence(seq)
        self._prompts[seq] = len(tokens)
        self._trie.match(fake)
        hit = fake.num_history_ids
        self._reserve(fake, hit + self.first_chunk if self.config.chunked else len(tokens), len(tokens))
        return hit

    def _reserve(self, fake: FakeSequence, stop: int, num_prompt: int) -> None:
        """As in `reserve_long_context_chunk`: every chunk except the last has a limit, and gets no slots beyond it."""
        is_last = stop >= num_prompt
        fake.kv_token_limit = None if is_last else stop
        beyond = self.config.lookahead if is_last else 0
        if not self._eviction.try_make_capacity_for(fake, (), beyond):
            raise MemoryError("the eviction helper could not make room for a chunk")
        self.manager.allocate(fake, beyond)
        self._trie.allocate(fake)

    def can_append(self, group: int) -> bool:
        (seq,) = self.groups[group]
        fake = self._sequence(seq)
        limit, fake.kv_token_limit = fake.kv_token_limit, None
        has_room = self._has_room(fake)
        fake.kv_token_limit = limit
        return has_room

    def append(self, seq: int, num_tokens: int) -> None:
        """Reserve the next chunk, or, as in `schedule_running`, allocate a block if one is needed."""
        fake = self._sequence(seq)
        if fake.num_history_ids < self._prompts[seq]:
            self._reserve(fake, fake.num_history_ids + num_tokens, self._prompts[seq])
        elif self.manager.num_required_blocks(fake, self.config.lookahead):
            if not self._has_room(fake):
                raise MemoryError("the eviction helper could not make room for a decode")
            self.manager.allocate(fake, self.config.lookahead)
            self._trie.allocate(fake)

    def step_done(self, step: list[Scheduled]) -> None:
        for one in step:
            self._fakes[one.seq].set_step(one.stop)

    def release(self, seq: int) -> None:
        """As in `release_paging_resources`: free all blocks, and forget the match."""
        fake = self._sequence(seq)
        if fake.num_blocks:
            self.manager.free(fake)
        self._forget(fake)

    def free(self, seq: int) -> None:
        super().free(seq)
        self._fakes.pop(seq, None)

    def _nodes(self) -> list[Any]:
        nodes: list[Any] = []
        stack = list(self._trie._roots.values())
        while stack:
            for child in stack.pop().children.values():
                nodes.append(child)
                stack.append(child)
        return nodes

    def tables(self) -> dict[int, list[int]]:
        held = {seq: fake for seq, fake in self._fakes.items() if fake.num_blocks}
        return {seq: self.manager.get_block_table(fake).tolist() for seq, fake in held.items()}

    def num_free(self) -> int:
        """The number of blocks that are free, or referenced by the trie only."""
        counts = self.manager.allocator.get_ref_count
        return int(self.manager.get_num_free_gpu_blocks()) + sum(int(counts(n.block_id)) == 1 for n in self._nodes())

    def refcounts(self) -> list[int]:
        """For each block, the number of references by sequences, without the trie's own."""
        allocator, refs = self.manager.allocator, [0] * self.config.num_gpu_blocks
        used = {int(block) for fake in self._fakes.values() for block in fake.logical_blocks.get_real_blocks()}
        owned = {int(node.block_id) for node in self._nodes()}
        for block in used | owned:
            refs[int(allocator.get_physical_blocks(np.array([block]))[0])] = int(allocator.get_ref_count(block)) - (
                block in owned
            )
        return refs
