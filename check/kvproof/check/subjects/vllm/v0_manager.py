"""vLLM's V0 block manager of the second generation as a subject: releases 0.4.0.post1 to 0.10.2.

The adapter plays vLLM's own scheduler and does nothing more. The order of calls, and what the manager learns between
them, are those of `vllm/core/scheduler.py` (release 0.9.2; named below where it matters). Differences between releases
are read from signatures, once, in `Calls`.

Limits: before 0.6.5 the manager has no look-up of its own; the hit is asked for when the blocks are allocated, as the
scheduler of those releases does. A watermark, window or swap that a release does not have is unsupported.

Source: vLLM 0.9.2, vllm/core/scheduler.py.
"""

import inspect
import sys
from typing import Any

from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import (
    Admission,
    Admitted,
    Assumption,
    Config,
    Observation,
    Pair,
    Reserved,
    Scheduled,
    Unsupported,
)
from kvproof.check.protocol.manager_adapter import BOOLEAN_ADMISSION, ManagerAdapter
from kvproof.check.subjects.vllm.v0_fakes import FakeGroup, FakeSequence
from kvproof.check.subjects.vllm.v0_loader import Manager, hash_holders, set_hash_seed
from kvproof.check.subjects.vllm.v0_observation import Pools, observation_of, pairs
from kvproof.spec.text.identity import Image, Key

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
    Assumption("clock-advances", "No two steps have the same time: the evictor tells its entries apart by it."),
    Assumption("write-before-read", "A step writes its KV before it reads: a hit may be computed in the same step."),
    Assumption("synchronous", "A step is over before the next is scheduled; frees and forks come between steps."),
)


class Calls:
    """How the calls of a release differ from those of others, by the signatures of its manager's class."""

    def __init__(self, manager: Any) -> None:
        self.options = frozenset(inspect.signature(manager).parameters)
        many = hasattr(manager, "append_slots")  # from 0.4.0.post1, with lookahead slots
        self.append = "append_slots" if many else "append_slot"
        self.can_append = "can_append_slots" if many else "can_append_slot"
        self.appends_lookahead = _takes(manager, self.append, "num_lookahead_slots")
        self.swaps_in_lookahead = _takes(manager, "can_swap_in", "num_lookahead_slots")
        self.maps_lookahead = _takes(manager, "swap_in", "num_lookahead_slots")
        self.accesses = hasattr(manager, "access_all_blocks_in_seq")  # from 0.4.0, with the prefix cache
        self.marks_chunk = _takes(manager, "mark_blocks_as_computed", "token_chunk_size")
        self.looks_up = hasattr(manager, "get_num_cached_tokens")
        self.can_swap = "NotImplementedError" not in inspect.getsource(manager.swap_out)
        self.has_cross = hasattr(manager, "get_cross_block_table")
        self.can_reset = hasattr(manager, "reset_prefix_cache")


class VllmV0(ManagerAdapter):
    """`SelfAttnBlockSpaceManager`, and `BlockSpaceManagerV2` before it.

    `self.fakes` are the groups as the manager sees them, `self.seqs` their sequences.
    """

    def __init__(self, version: str, found: Manager) -> None:
        self.name = f"vllm-v0 {version}"
        manager, self._status = found.make, found.status
        self._class = manager
        self._calls = calls = Calls(manager)
        self.capabilities = Capabilities(
            swap=calls.can_swap,
            fork=True,
            window=_accepts(manager, "Sliding window"),
            caching="enable_caching" in calls.options and _accepts(manager, "Prefix caching"),
            lookahead=calls.appends_lookahead,
            chunked=_takes_no_tokens(manager),
            adapters=True,
            cross=calls.has_cross,
            reset=calls.can_reset,
            waiting_groups=True,
            watermark="watermark" in calls.options,
            ordered_steps=True,
            block_aligned_chunks=True,
            same_step_hits=True,
            hits_whole_prompts=True,  # the engine's `ModelRunner` computes the last token again
            steps_are_certain=True,
            hash_seeds=bool(hash_holders(manager)),
        )
        self.assumptions = (*ASSUMPTIONS, BOOLEAN_ADMISSION)

    def make(self, config: Config) -> Any:
        """A new, idle manager. Raises Unsupported for what vLLM's own configuration refuses."""
        has_extras = config.window or config.caching or config.lookahead or config.chunked or config.keys > 1
        if config.cross and has_extras:
            raise Unsupported("an encoder excludes window, cache, lookahead, chunked prompts and adapters")
        if config.chunked and config.group_size > 1:
            raise Unsupported("only a group of one sequence has its prompt chunked")
        set_hash_seed(self._class, config.hash_seed)
        wanted = {
            "block_size": config.block_size,
            "num_gpu_blocks": config.num_gpu_blocks,
            "num_cpu_blocks": config.num_host_blocks,
            "watermark": config.watermark,
            "sliding_window": config.window,
            "enable_caching": config.caching,
        }
        manager = self._class(**{name: value for name, value in wanted.items() if name in self._calls.options})
        self._pools = self._pools_of(manager, config)
        self._clock = 0.0
        self.seqs: dict[int, FakeSequence] = {}
        self.fakes: dict[int, FakeGroup] = {}
        return manager

    def _pools_of(self, manager: Any, config: Config) -> Any:
        return Pools(manager, config)

    def new(self, group: int, seqs: list[int], tokens: list[int], key: Key, images: tuple[Image, ...]) -> None:
        super().new(group, seqs, tokens, key, images)
        fake = self.fakes[group] = FakeGroup(group)
        for seq in seqs:
            self.seqs[seq] = one = self._fake(seq, fake, self.tokens[seq], key.adapter_id)
            fake.seqs.append(one)

    def _fake(self, seq: int, group: FakeGroup, tokens: list[int], adapter: int) -> FakeSequence:
        return FakeSequence(seq, group, tokens, adapter, self._status.WAITING, self.config.block_size)

    def new_encoder(self, group: int, seq: int, tokens: list[int]) -> None:
        fake = self.fakes[group]
        fake.encoder = self._fake(seq, fake, tokens[:], 0)

    def hits(self, group: int) -> int:
        if not self.config.caching or not self._calls.looks_up:
            return 0
        return min(map(self._look_up, self.fakes[group].seqs))

    def _look_up(self, seq: FakeSequence) -> int:
        seq.is_looked_up = True
        return int(self.manager.get_num_cached_tokens(seq))

    def forget(self, group: int) -> None:
        forget = getattr(self.manager, "remove_seq_from_computed_blocks_tracker", None)
        for seq in self.fakes[group].seqs:
            if seq.is_looked_up and forget:
                forget(seq)
            seq.is_looked_up = False

    def can_admit(self, group: int) -> Admission:
        """Ask without lookahead slots: the scheduler asks for them only if it runs several steps at once."""
        answer = self.manager.can_allocate(self.fakes[group])
        if not isinstance(answer, bool):
            return Admission[answer.name]
        if answer:  # until 0.2.2, a yes or no
            return Admission.OK
        is_idle = self.manager.get_num_free_gpu_blocks() == self.config.num_gpu_blocks
        return Admission.NEVER if is_idle else Admission.LATER

    def can_append(self, group: int) -> bool:
        """Ask for a slot of every sequence. The scheduler also asks before a chunk, then without lookahead slots."""
        fake = self.fakes[group]
        return bool(getattr(self.manager, self._calls.can_append)(fake, *self._lookahead_of(fake.seqs[0])))

    def _lookahead(self, seq: FakeSequence) -> int:
        return 0 if seq.is_prompt else self.config.lookahead

    def _lookahead_of(self, seq: FakeSequence) -> tuple[int, ...]:
        return (self._lookahead(seq),) if self._calls.appends_lookahead else ()

    def can_swap_out(self, group: int) -> Admission:
        return Admission.OK if self.manager.can_swap_out(self.fakes[group]) else Admission.LATER

    def can_swap_in(self, group: int) -> Admission:
        """Ask whether the GPU has room, including the slots that are appended right after the swap."""
        fake = self.fakes[group]
        lookahead = (self._lookahead(fake.seqs[0]),) if self._calls.swaps_in_lookahead else ()
        answer = self.manager.can_swap_in(fake, *lookahead)
        return Admission.OK if answer is True else Admission.LATER if answer is False else Admission[answer.name]

    def admit(self, group: int, num_tokens: int) -> Admitted:
        """Allocate blocks for the whole prompt, even if the first step computes only part of it."""
        fake = self.fakes[group]
        hit = self.hits(group)
        self.manager.allocate(fake)
        self._admitted.update(self.groups[group])
        for seq in fake.seqs:
            seq.status = self._status.RUNNING
        if self.config.caching and not self._calls.looks_up:
            hit = len(self.manager.get_common_computed_block_ids(fake.seqs)) * self.config.block_size
        return Admitted(hit)

    def reserve(self, seq: int, num_tokens: int) -> Reserved:
        """Append slots for the sampled token. A further chunk of a prompt only lets the window slide."""
        fake = self.seqs[seq]
        return Reserved(pairs(getattr(self.manager, self._calls.append)(fake, *self._lookahead_of(fake))))

    def share(self, parent: int, child: int) -> None:
        """Call `fork`. The child is looked up at once, because it may be freed before it is scheduled."""
        old = self.seqs[parent]
        new = self.seqs[child] = old.forked(child, self.tokens[child])
        self.manager.fork(old, new)
        old.group.seqs.append(new)
        if self.config.caching and self._calls.looks_up:
            self._look_up(new)

    def release(self, seq: int) -> None:
        self.manager.free(self.seqs[seq])

    def free(self, seq: int) -> None:
        """Call `free`, for a waiting sequence as well, after `free_cross` if it is the last of its group."""
        fake = self.seqs[seq]
        group = fake.group
        if group.seqs == [fake]:
            if group.encoder:
                self.manager.free_cross(group)
            del self.fakes[int(group.request_id)]
        self._admitted.discard(seq)
        self.release(seq)
        group.seqs.remove(fake)
        del self.seqs[seq]
        super().free(seq)

    def preempt(self, group: int) -> None:
        """Preempt as the scheduler does by recomputation: all tokens of the group are its prompt again."""
        fake = self.fakes[group]
        for seq in fake.seqs:
            seq.status = self._status.WAITING
        super().preempt(group)
        for seq in fake.seqs:
            seq.num_computed, seq.is_prompt, seq.is_looked_up = 0, True, False
        if fake.encoder:
            self.manager.free_cross(fake)

    def swap_out(self, group: int) -> list[Pair]:
        fake = self.fakes[group]
        moved = pairs(self.manager.swap_out(fake))
        for seq in fake.seqs:
            seq.status = self._status.SWAPPED
        return moved

    def swap_in(self, group: int) -> list[Pair]:
        fake = self.fakes[group]
        lookahead = (self._lookahead(fake.seqs[0]),) if self._calls.maps_lookahead else ()
        moved = pairs(self.manager.swap_in(fake, *lookahead))
        for seq in fake.seqs:
            seq.status = self._status.RUNNING
        return moved

    def step_scheduled(self, step: list[Scheduled], now: int) -> None:
        """Do what `schedule()` does at its end: report accesses, ask what is cached, and only then mark as computed."""
        manager, running = self.manager, self._status.RUNNING
        self._clock = max(float(now), self._clock + 1.0)
        chunks: dict[FakeGroup, int] = {}
        for one in step:
            fake = self.seqs[one.seq]
            chunks[fake.group] = max(one.num_tokens, chunks.get(fake.group, 0))
        for group in chunks:
            seqs = group.get_seqs(running)
            for seq in seqs if self._calls.accesses else ():
                manager.access_all_blocks_in_seq(seq, self._clock)
            if self.config.caching:
                manager.get_common_computed_block_ids(seqs)
                for seq in seqs:
                    seq.is_looked_up = True
        for group, num_tokens in chunks.items() if self._calls.accesses else ():
            manager.mark_blocks_as_computed(group, *((num_tokens,) if self._calls.marks_chunk else ()))

    def step_done(self, step: list[Scheduled]) -> None:
        """Set what is computed. A sequence whose tokens are all computed decodes from now on."""
        for one in step:
            fake = self.seqs[one.seq]
            fake.num_computed = one.stop
            if one.stop == len(fake.tokens):
                fake.is_prompt = False

    def reset_cache(self) -> bool:
        return bool(self.manager.reset_prefix_cache())

    def observe(self) -> Observation:
        encoders = {}
        if self._calls.has_cross:
            encoders = {name: self.fakes[int(name)].encoder for name in self.manager.cross_block_tables}
        return observation_of(self.manager, self._pools, self.config, {n: e.seq_id for n, e in encoders.items() if e})


def _takes(manager: Any, method: str, parameter: str) -> bool:
    found = getattr(manager, method, None)
    return found is not None and parameter in inspect.signature(found).parameters


def _accepts(manager: Any, what: str) -> bool:
    """Whether an option works: where it is older than its feature, the manager asserts that it is not used."""
    return f"{what} not yet supported" not in inspect.getsource(manager.__init__)


def _takes_no_tokens(manager: Any) -> bool:
    """Whether an append of no tokens is possible, which a further chunk of a prompt is; not in 0.4.0.post1."""
    table = getattr(sys.modules[manager.__module__], "BlockTable", None)
    return not inspect.isclass(table) or "can't append empty token ids" not in inspect.getsource(table)
