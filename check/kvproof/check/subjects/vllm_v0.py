"""vLLM's V0 block manager of the second generation as a subject.

The adapter plays the part of vLLM's own scheduler and nothing more: the order of calls, and what the manager is told
between them, are those of `vllm/core/scheduler.py` (release 0.9.2; named below where it matters). What differs between
releases is read off signatures.
"""

import inspect
from pathlib import Path
from typing import Any

from kvproof.check.engines.vllm_v0 import import_manager
from kvproof.check.subject import (
    NULL_BLOCK,
    Admission,
    Admitted,
    Assumption,
    Capabilities,
    Config,
    Observation,
    Pair,
    Reserved,
    Scheduled,
    Unsupported,
)
from kvproof.spec.identity import Image, Key

ASSUMPTIONS = (
    Assumption("asks-first", "The caller asks, and calls only after an OK, with nothing in between."),
    Assumption("looked-up", "With caching, every sequence that is scheduled, and every child, has been looked up."),
    Assumption("forgotten", "With caching, a group that was looked up and not admitted is forgotten at once."),
    Assumption("same-prompt", "The waiting sequences of a group have the same prompt, and so the same blocks."),
    Assumption("recompute-single", "Only a group of one sequence is preempted; larger ones are swapped."),
    Assumption("no-swap-in-after", "Nothing is swapped in after a preemption or swap-out of the same step."),
    Assumption("step-order", "Within a step: appends and further chunks, then swaps in, then admissions."),
    Assumption("whole-chunks", "With caching, every chunk of a prompt but the last ends where a block ends."),
    Assumption("window-or-cache", "A sliding window and the prefix cache are not on together."),
    Assumption("encoder-alone", "With an encoder: no window, cache, lookahead, adapter, chunked prompt or swap."),
    Assumption("adapter-ids", "Two adapters never have the same id; their names may be equal."),
    Assumption("clock-advances", "No two steps have the same time: entries of the evictor are told apart by it."),
    Assumption("synchronous", "A step is over before the next is scheduled; frees and forks come between steps."),
)


class ToldSequence:
    """What the manager reads of a sequence, and of its data."""

    __slots__ = ("data", "extra", "group", "is_looked_up", "is_prompt", "num_computed", "seq_id", "status", "tokens")

    def __init__(self, seq_id: int, group: "ToldGroup", tokens: list[int], extra: int | None, status: Any) -> None:
        self.seq_id, self.group, self.tokens, self.extra, self.status = seq_id, group, tokens, extra, status
        self.num_computed = 0
        self.is_prompt = True  # until all its tokens are computed; then each step is a decode
        self.is_looked_up = False
        self.data = self

    def get_token_ids(self) -> list[int]:
        return self.tokens

    def get_len(self) -> int:
        return len(self.tokens)

    def get_num_computed_tokens(self) -> int:
        return self.num_computed

    def is_prefill(self) -> bool:
        return self.is_prompt

    def extra_hash(self) -> int | None:
        return self.extra


class ToldGroup:
    """What the manager reads of a group."""

    __slots__ = ("encoder", "request_id", "seqs")

    def __init__(self, group: int) -> None:
        self.request_id = str(group)
        self.seqs: list[ToldSequence] = []
        self.encoder: ToldSequence | None = None

    def get_seqs(self, status: Any = None) -> list[ToldSequence]:
        return [seq for seq in self.seqs if status is None or seq.status is status]

    def is_encoder_decoder(self) -> bool:
        return self.encoder is not None

    def get_encoder_seq(self) -> ToldSequence | None:
        return self.encoder


class Pools:
    """The two allocators of a manager, read without asking block by block."""

    def __init__(self, manager: Any, config: Config) -> None:
        allocators = {device.name: part for device, part in manager.block_allocator._allocators.items()}
        self.parts = (allocators["GPU"], allocators["CPU"])
        gpu = config.num_gpu_blocks
        self.ids = (range(gpu), range(gpu, gpu + config.num_host_blocks))
        self.counts = tuple(part._refcounter._refcounts for part in self.parts)
        self.queues = tuple(getattr(part, "_hashless_allocator", part)._free_block_indices for part in self.parts)

    def refs(self) -> list[int]:
        """Refcounts of all blocks, GPU before host."""
        (gpu, host), (gpu_ids, host_ids) = self.counts, self.ids
        return [*map(gpu.__getitem__, gpu_ids), *map(host.__getitem__, host_ids)]

    def free_ids(self, caching: bool) -> list[int]:
        """Blocks to be taken next, then cached ones to be evicted, for each device."""
        gpu, host = self.queues
        if not caching:
            return [*gpu, *host]
        evictable, host_evictable = (part.evictor.free_table for part in self.parts)
        return [*gpu, *evictable, *host, *host_evictable]


class VllmV0:
    """`SelfAttnBlockSpaceManager`, and `BlockSpaceManagerV2` before it."""

    def __init__(self, version: str, manager: Any, status: Any) -> None:
        self.name = f"vllm-v0 {version}"
        self._class, self._status = manager, status
        options = inspect.signature(manager).parameters
        self._options = frozenset(options)
        self._admits_lookahead = _takes(manager, "can_allocate", "num_lookahead_slots")
        self._swaps_in_lookahead = _takes(manager, "can_swap_in", "num_lookahead_slots")
        self._maps_lookahead = _takes(manager, "swap_in", "num_lookahead_slots")
        self._marks_chunk = _takes(manager, "mark_blocks_as_computed", "token_chunk_size")
        self._looks_up = hasattr(manager, "get_num_cached_tokens")
        self.capabilities = Capabilities(
            swap="NotImplementedError" not in inspect.getsource(manager.swap_out),
            fork=True,
            window="sliding_window" in options,
            caching="enable_caching" in options,
            lookahead=True,
            chunked=True,
            adapters=hasattr(manager, "remove_seq_from_computed_blocks_tracker"),
            cross=hasattr(manager, "get_cross_block_table"),
            reset=hasattr(manager, "reset_prefix_cache"),
            waiting_groups=True,
            watermark="watermark" in options,
            ordered_steps=True,
            whole_chunks=True,
        )
        self.assumptions: tuple[Assumption, ...] = ASSUMPTIONS

    def open(self, config: Config) -> None:
        """Make a new, idle manager. Raises Unsupported for what vLLM's own configuration refuses."""
        self._refuse_unsupported(config)
        wanted = {
            "block_size": config.block_size,
            "num_gpu_blocks": config.num_gpu_blocks,
            "num_cpu_blocks": config.num_host_blocks,
            "watermark": config.watermark,
            "sliding_window": config.window,
            "enable_caching": config.caching,
        }
        self._config = config
        self._manager = self._class(**{name: value for name, value in wanted.items() if name in self._options})
        self._pools = Pools(self._manager, config)
        self._clock = 0.0
        self._seqs: dict[int, ToldSequence] = {}
        self._groups: dict[int, ToldGroup] = {}

    def _refuse_unsupported(self, config: Config) -> None:
        caps = self.capabilities
        has_extras = config.window or config.caching or config.lookahead or config.chunked or config.keys > 1
        if config.window and config.caching:
            raise Unsupported("a sliding window and the prefix cache exclude each other")
        if config.cross and has_extras:
            raise Unsupported("an encoder excludes window, cache, lookahead, chunked prompts and adapters")
        if config.chunked and config.group_size > 1:
            raise Unsupported("only a group of one sequence has its prompt chunked")
        if config.images or config.keys > 2 or len(config.kv_groups) > 1:
            raise Unsupported("no images, salts or several KV groups")
        needed = {
            "caching": config.caching,
            "window": config.window is not None,
            "watermark": config.watermark > 0,
            "swap": config.num_host_blocks > 0,
            "cross": config.cross,
            "adapters": config.keys > 1,
        }
        for name, is_needed in needed.items():
            if is_needed and not getattr(caps, name):
                raise Unsupported(f"no {name}")

    # The truth, told --------------------------------------------------------------------------------------------

    def new(self, group: int, seqs: list[int], tokens: list[int], key: Key, images: tuple[Image, ...]) -> None:
        """A group of waiting sequences with the same prompt exists."""
        told = self._groups[group] = ToldGroup(group)
        extra = hash((0, key.adapter_id)) if key.adapter_id else None  # (prompt adapter, LoRA), as Sequence.extra_hash
        for seq in seqs:
            self._seqs[seq] = one = ToldSequence(seq, told, tokens[:], extra, self._status.WAITING)
            told.seqs.append(one)

    def new_encoder(self, group: int, seq: int, tokens: list[int]) -> None:
        """The group, still waiting, has an encoder sequence."""
        told = self._groups[group]
        told.encoder = ToldSequence(seq, told, tokens[:], None, self._status.WAITING)

    def grow(self, seq: int, token: int) -> None:
        """A token was sampled; it has no slot yet."""
        self._seqs[seq].tokens.append(token)

    # Questions --------------------------------------------------------------------------------------------------

    def hits(self, group: int) -> int:
        """Tokens of a waiting group that the prefix cache holds, in whole blocks."""
        if not self._config.caching or not self._looks_up:
            return 0
        return min(map(self._look_up, self._groups[group].seqs))

    def _look_up(self, seq: ToldSequence) -> int:
        seq.is_looked_up = True
        return int(self._manager.get_num_cached_tokens(seq))

    def forget(self, group: int) -> None:
        """The group was looked up, and not admitted."""
        forget = getattr(self._manager, "remove_seq_from_computed_blocks_tracker", None)
        for seq in self._groups[group].seqs:
            if seq.is_looked_up and forget:
                forget(seq)
            seq.is_looked_up = False

    def can_admit(self, group: int) -> Admission:
        """Without lookahead slots: the scheduler asks for those of a prompt only when it does several steps at once."""
        return Admission[self._manager.can_allocate(self._groups[group]).name]

    def can_append(self, group: int) -> bool:
        """Asked before each chunk of a prompt as well, then without lookahead slots."""
        told = self._groups[group]
        return bool(self._manager.can_append_slots(told, self._lookahead(told.seqs[0])))

    def _lookahead(self, seq: ToldSequence) -> int:
        return 0 if seq.is_prompt else self._config.lookahead

    def can_swap_out(self, group: int) -> Admission:
        """The manager only says yes or no."""
        return Admission.OK if self._manager.can_swap_out(self._groups[group]) else Admission.LATER

    def can_swap_in(self, group: int) -> Admission:
        """For the slots that are appended right after it, too."""
        told = self._groups[group]
        lookahead = (self._lookahead(told.seqs[0]),) if self._swaps_in_lookahead else ()
        answer = self._manager.can_swap_in(told, *lookahead)
        return Admission.OK if answer is True else Admission.LATER if answer is False else Admission[answer.name]

    # Calls ------------------------------------------------------------------------------------------------------

    def admit(self, group: int, num_tokens: int) -> Admitted:
        """The whole prompt gets its blocks, however little of it is computed in the first step."""
        told = self._groups[group]
        hit = self.hits(group)
        self._manager.allocate(told)
        for seq in told.seqs:
            seq.status = self._status.RUNNING
        return Admitted(hit)

    def reserve(self, seq: int, num_tokens: int) -> Reserved:
        """Slots for the sampled token; a further chunk of a prompt only lets the window move on."""
        told = self._seqs[seq]
        return Reserved(_pairs(self._manager.append_slots(told, self._lookahead(told))))

    def fork(self, parent: int, child: int) -> None:
        """The child is looked up at once, as it may be freed before it is scheduled."""
        old = self._seqs[parent]
        new = ToldSequence(child, old.group, old.tokens[:], old.extra, old.status)
        new.num_computed, new.is_prompt = old.num_computed, old.is_prompt
        self._manager.fork(old, new)
        self._seqs[child] = new
        old.group.seqs.append(new)
        if self._config.caching and self._looks_up:
            self._look_up(new)

    def free(self, seq: int) -> None:
        """The sequence is over; with the last of its group, so is the encoder."""
        told = self._seqs.pop(seq)
        group = told.group
        if group.seqs == [told]:
            if group.encoder:
                self._manager.free_cross(group)
            del self._groups[int(group.request_id)]
        self._manager.free(told)
        group.seqs.remove(told)

    def preempt(self, group: int) -> None:
        """As the scheduler preempts by recomputation: everything is a prompt again."""
        told = self._groups[group]
        for seq in told.seqs:
            seq.status = self._status.WAITING
            self._manager.free(seq)
            seq.num_computed, seq.is_prompt, seq.is_looked_up = 0, True, False
        if told.encoder:
            self._manager.free_cross(told)

    def swap_out(self, group: int) -> list[Pair]:
        """(GPU block, host block), device-relative."""
        told = self._groups[group]
        pairs = _pairs(self._manager.swap_out(told))
        for seq in told.seqs:
            seq.status = self._status.SWAPPED
        return pairs

    def swap_in(self, group: int) -> list[Pair]:
        """(host block, GPU block), device-relative."""
        told = self._groups[group]
        lookahead = (self._lookahead(told.seqs[0]),) if self._maps_lookahead else ()
        pairs = _pairs(self._manager.swap_in(told, *lookahead))
        for seq in told.seqs:
            seq.status = self._status.RUNNING
        return pairs

    def step_scheduled(self, step: list[Scheduled], now: int) -> None:
        """The end of `schedule()`: note the access, see what is cached for the worker, and only then mark computed."""
        manager, running = self._manager, self._status.RUNNING
        self._clock = max(float(now), self._clock + 1.0)
        chunks: dict[ToldGroup, int] = {}
        for one in step:
            told = self._seqs[one.seq]
            chunks[told.group] = max(one.num_tokens, chunks.get(told.group, 0))
        for group in chunks:
            seqs = group.get_seqs(running)
            for seq in seqs:
                manager.access_all_blocks_in_seq(seq, self._clock)
            if self._config.caching:
                manager.get_common_computed_block_ids(seqs)
                for seq in seqs:
                    seq.is_looked_up = True
        for group, num_tokens in chunks.items():
            manager.mark_blocks_as_computed(group, *((num_tokens,) if self._marks_chunk else ()))

    def step_done(self, step: list[Scheduled]) -> None:
        """A sequence with every token computed decodes from now on."""
        for one in step:
            told = self._seqs[one.seq]
            told.num_computed = one.stop
            if one.stop == len(told.tokens):
                told.is_prompt = False

    def reset_cache(self) -> bool:
        """Forget the prefix cache of both devices."""
        return bool(self._manager.reset_prefix_cache())

    # Observation ------------------------------------------------------------------------------------------------

    def observe(self) -> Observation:
        """What the manager shows, read from its own tables, counters and lists."""
        manager, pools = self._manager, self._pools
        free = (manager.get_num_free_gpu_blocks(), manager.get_num_free_cpu_blocks())
        tables = {seq: [table.physical_block_ids[:]] for seq, table in manager.block_tables.items()}
        if manager.cross_block_tables:
            for request, table in manager.cross_block_tables.items():
                encoder = self._groups[int(request)].encoder
                if encoder:
                    tables[encoder.seq_id] = [table.physical_block_ids[:]]
        refs, free_ids = pools.refs(), pools.free_ids(self._config.caching)
        null = manager.block_allocator._null_block if self._config.window else None
        if null is None:
            return Observation(tables, free, (), refs, free_ids)
        kept = null.block_id
        refs[kept] = 0
        for (table,) in tables.values():
            if kept in table:
                table[:] = [NULL_BLOCK if block == kept else block for block in table]
        return Observation(tables, free, (kept,), refs, free_ids)


def _takes(manager: Any, method: str, parameter: str) -> bool:
    return parameter in inspect.signature(getattr(manager, method)).parameters


def _pairs(mapping: Any) -> list[Pair]:
    """Pairs, which older releases write as a mapping, of a copy to one or several targets."""
    if isinstance(mapping, dict):
        return [
            (source, one)
            for source, target in mapping.items()
            for one in (target if isinstance(target, list) else [target])
        ]
    return [(source, target) for source, target in mapping]


def make(version: str = "0.9.2", cache: Path | None = None) -> VllmV0:
    """The manager of a release that was brought in or is installed. Raises EngineError."""
    return VllmV0(version, *import_manager(version, cache))
