"""vLLM's V0 block manager of the second generation as a subject: releases 0.4.0.post1 to 0.10.2.

The adapter plays the part of vLLM's own scheduler and nothing more: the order of calls, and what the manager is told
between them, are those of `vllm/core/scheduler.py` (release 0.9.2; named below where it matters). What differs between
releases is read off signatures, once, in `Calls`.

Limits: before 0.6.5 the manager has no look-up of its own, and the hit is asked for when the blocks are there, as the
scheduler of those releases does; a watermark, window or swap that a release does not have is unsupported.
"""

import inspect
import sys
from typing import Any

from kvproof.check.protocol.manager import (
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
from kvproof.check.protocol.manager_adapter import BOOLEAN_ADMISSION
from kvproof.check.subjects.vllm.v0_fakes import ToldGroup, ToldSequence
from kvproof.check.subjects.vllm.v0_loader import Manager
from kvproof.check.subjects.vllm.v0_observation import Pools, pairs, shown
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
    Assumption("clock-advances", "No two steps have the same time: entries of the evictor are told apart by it."),
    Assumption("write-before-read", "A step writes its KV before it reads: a hit may be computed in the same step."),
    Assumption("synchronous", "A step is over before the next is scheduled; frees and forks come between steps."),
)


class Calls:
    """What differs between releases, by the signatures of a manager's class."""

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


class VllmV0:
    """`SelfAttnBlockSpaceManager`, and `BlockSpaceManagerV2` before it."""

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
        )
        self.assumptions: tuple[Assumption, ...] = (*ASSUMPTIONS, BOOLEAN_ADMISSION)

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
        self._manager = self._class(**{name: value for name, value in wanted.items() if name in self._calls.options})
        self._pools = self._pools_of(config)
        self._clock = 0.0
        self._seqs: dict[int, ToldSequence] = {}
        self._groups: dict[int, ToldGroup] = {}

    def _pools_of(self, config: Config) -> Any:
        return Pools(self._manager, config)

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
        for seq in seqs:
            self._seqs[seq] = one = self._told(seq, told, tokens[:], key.adapter_id)
            told.seqs.append(one)

    def _told(self, seq: int, group: ToldGroup, tokens: list[int], adapter: int) -> ToldSequence:
        return ToldSequence(seq, group, tokens, adapter, self._status.WAITING, self._config.block_size)

    def new_encoder(self, group: int, seq: int, tokens: list[int]) -> None:
        """The group, still waiting, has an encoder sequence."""
        told = self._groups[group]
        told.encoder = self._told(seq, told, tokens[:], 0)

    def grow(self, seq: int, token: int) -> None:
        """A token was sampled; it has no slot yet."""
        self._seqs[seq].tokens.append(token)

    # Questions --------------------------------------------------------------------------------------------------

    def hits(self, group: int) -> int:
        """Tokens of a waiting group that the prefix cache holds, in whole blocks."""
        if not self._config.caching or not self._calls.looks_up:
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
        answer = self._manager.can_allocate(self._groups[group])
        if not isinstance(answer, bool):
            return Admission[answer.name]
        if answer:  # until 0.2.2, a yes or no
            return Admission.OK
        is_idle = self._manager.get_num_free_gpu_blocks() == self._config.num_gpu_blocks
        return Admission.NEVER if is_idle else Admission.LATER

    def can_append(self, group: int) -> bool:
        """Asked before each chunk of a prompt as well, then without lookahead slots."""
        told = self._groups[group]
        return bool(getattr(self._manager, self._calls.can_append)(told, *self._lookahead_of(told.seqs[0])))

    def _lookahead(self, seq: ToldSequence) -> int:
        return 0 if seq.is_prompt else self._config.lookahead

    def _lookahead_of(self, seq: ToldSequence) -> tuple[int, ...]:
        return (self._lookahead(seq),) if self._calls.appends_lookahead else ()

    def can_swap_out(self, group: int) -> Admission:
        """The manager only says yes or no."""
        return Admission.OK if self._manager.can_swap_out(self._groups[group]) else Admission.LATER

    def can_swap_in(self, group: int) -> Admission:
        """For the slots that are appended right after it, too."""
        told = self._groups[group]
        lookahead = (self._lookahead(told.seqs[0]),) if self._calls.swaps_in_lookahead else ()
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
        if self._config.caching and not self._calls.looks_up:
            hit = len(self._manager.get_common_computed_block_ids(told.seqs)) * self._config.block_size
        return Admitted(hit)

    def reserve(self, seq: int, num_tokens: int) -> Reserved:
        """Slots for the sampled token; a further chunk of a prompt only lets the window move on."""
        told = self._seqs[seq]
        return Reserved(pairs(getattr(self._manager, self._calls.append)(told, *self._lookahead_of(told))))

    def fork(self, parent: int, child: int) -> None:
        """The child is looked up at once, as it may be freed before it is scheduled."""
        old = self._seqs[parent]
        new = old.forked(child)
        self._manager.fork(old, new)
        self._seqs[child] = new
        old.group.seqs.append(new)
        if self._config.caching and self._calls.looks_up:
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
        moved = pairs(self._manager.swap_out(told))
        for seq in told.seqs:
            seq.status = self._status.SWAPPED
        return moved

    def swap_in(self, group: int) -> list[Pair]:
        """(host block, GPU block), device-relative."""
        told = self._groups[group]
        lookahead = (self._lookahead(told.seqs[0]),) if self._calls.maps_lookahead else ()
        moved = pairs(self._manager.swap_in(told, *lookahead))
        for seq in told.seqs:
            seq.status = self._status.RUNNING
        return moved

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
            for seq in seqs if self._calls.accesses else ():
                manager.access_all_blocks_in_seq(seq, self._clock)
            if self._config.caching:
                manager.get_common_computed_block_ids(seqs)
                for seq in seqs:
                    seq.is_looked_up = True
        for group, num_tokens in chunks.items() if self._calls.accesses else ():
            manager.mark_blocks_as_computed(group, *((num_tokens,) if self._calls.marks_chunk else ()))

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
        encoders = {}
        if self._calls.has_cross:
            encoders = {name: self._groups[int(name)].encoder for name in self._manager.cross_block_tables}
        return shown(self._manager, self._pools, self._config, {n: e.seq_id for n, e in encoders.items() if e})


def _takes(manager: Any, method: str, parameter: str) -> bool:
    found = getattr(manager, method, None)
    return found is not None and parameter in inspect.signature(found).parameters


def _accepts(manager: Any, what: str) -> bool:
    """An option may be older than what it stands for; a manager then asserts that it is not used."""
    return f"{what} not yet supported" not in inspect.getsource(manager.__init__)


def _takes_no_tokens(manager: Any) -> bool:
    """A further chunk of a prompt is an append of nothing; 0.4.0.post1, older than chunks, asserts against it."""
    table = getattr(sys.modules[manager.__module__], "BlockTable", None)
    return not inspect.isclass(table) or "can't append empty token ids" not in inspect.getsource(table)
