"""One storm, run as an engine runs it: schedule, move, compute, sample, fork, drop, free.

The worker executes a step's swap-ins, then its swap-outs, then its copies, then the model. Lookahead slots are filled
with junk, for their content is undefined and nobody may read it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from kvproof.check.data_plane.end_to_end.exact_decoder import ELEMENT_MAX, ExactDecoder, choose
from kvproof.check.data_plane.end_to_end.fault_injection import PlantedFault
from kvproof.check.data_plane.end_to_end.paged_memory import PagedMemory, fill_with_junk
from kvproof.check.data_plane.end_to_end.workloads import Request, Storm, requests
from kvproof.impl import (
    BlockManager,
    KVBlockShape,
    KVCacheEngine,
    ScheduledSequenceGroup,
    Scheduler,
    SchedulerOutputs,
    Sequence,
    SequenceGroup,
    SequenceStatus,
)

RUNNING = SequenceStatus.RUNNING
RESHUFFLE_EVERY = 3  # tokens after which a beam drops one sequence for a fork of another
NUM_STEPS_MAX = 5_000


@dataclass
class Spoken:
    """What one sequence said: its prompt, the salt of each choice, and the tokens chosen."""

    prompt: list[int]
    salts: list[int]
    tokens: list[int]


@dataclass
class Generated:
    """Everything that was said in one storm, by sequence, and how often what was met."""

    spoken: dict[int, Spoken] = field(default_factory=dict)
    met: Counter[str] = field(default_factory=Counter)
    num_steps: int = 0
    num_struck: int = 0  # times that a planted fault changed something


class StormEngine:
    """An engine with one storm in it."""

    def __init__(
        self,
        storm: Storm,
        decoder: ExactDecoder,
        shape: KVBlockShape,
        seed: int,
        fault: PlantedFault | None = None,
    ) -> None:
        self.storm, self.decoder, self.fault = storm, decoder, fault
        manager = BlockManager(
            storm.block_size, storm.num_gpu_blocks, storm.num_cpu_blocks, enable_caching=storm.caching
        )
        self.manager, self.now = manager, 0
        self.scheduler = Scheduler(storm.scheduler_config(), manager, clock=lambda: float(self.now))
        layers = decoder.geometry.num_layers
        self.memory = KVCacheEngine(shape, layers, storm.num_gpu_blocks, storm.num_cpu_blocks, decoder.device)
        fill_with_junk(self.memory, seed)
        self.asked: dict[str, Request] = {}
        self.arriving = requests(storm, seed, decoder.geometry.vocabulary_size)
        self.done, self.num_seqs = Generated(), 0

    def run(self) -> Generated:
        """Until every request is served. Raises RuntimeError if that takes too many steps."""
        for _ in self.steps():
            pass
        return self.done

    def steps(self) -> Iterator[list[int]]:
        """The same step by step: the sequences that have said a token in each."""
        while self.arriving or self.scheduler.has_unfinished_seqs():
            if self.now == NUM_STEPS_MAX:
                raise RuntimeError(f"storm {self.storm.name} is not over after {NUM_STEPS_MAX:,} steps")
            self._admit()
            outputs = self.scheduler.schedule()
            self._count(outputs)
            self._move(outputs)
            scored = [
                (scheduled.seq_group, seq, self._compute(scheduled, seq))
                for scheduled in outputs.scheduled_seq_groups
                for seq in scheduled.seq_group.get_seqs(RUNNING)
            ]
            yield self._speak(outputs, scored)
            self.now += 1
        self.done.num_steps = self.now

    def _admit(self) -> None:
        while self.arriving and self.arriving[0].arrival <= self.now:
            request = self.arriving.pop(0)
            self.asked[request.name] = request
            self.scheduler.add_seq_group(SequenceGroup(request.name, [self._new(request)]))

    def _new(self, request: Request) -> Sequence:
        seq = Sequence(self._next_id(), request.prompt, self.storm.block_size)
        self.done.spoken[seq.seq_id] = Spoken(request.prompt, [], [])
        return seq

    def _next_id(self) -> int:
        self.num_seqs += 1
        return self.num_seqs

    # ---- the worker ----

    def _move(self, outputs: SchedulerOutputs) -> None:
        self.memory.swap_in(self._passed("swap in", outputs.blocks_to_swap_in))
        self.memory.swap_out(self._passed("swap out", outputs.blocks_to_swap_out))
        self.memory.copy(self._passed("copy", outputs.blocks_to_copy))

    def _compute(self, scheduled: ScheduledSequenceGroup, seq: Sequence) -> torch.Tensor:
        """Scores [vocabulary] after the last token of the chunk."""
        computed, tokens = seq.data.get_num_computed_tokens(), seq.get_token_ids()
        stop = computed + scheduled.token_chunk_size
        (cached,) = self._passed("hit", [scheduled.num_cached_tokens])
        start = min(computed + cached, stop - 1)
        table = self.manager.get_block_table(seq)
        self._fill_lookahead(table, len(tokens), scheduled.num_lookahead_slots)
        memory = PagedMemory(
            self.memory,
            self._passed("write table", table),
            self._passed("read table", table),
            start,
            stop,
            lambda slots: self._passed("write slots", slots),
            lambda slots: self._passed("read slots", slots),
        )
        return self.decoder.scores(tokens[start:stop], start, memory)[-1]

    def _fill_lookahead(self, table: list[int], num_tokens: int, num_slots: int) -> None:
        if num_slots:
            geometry = self.decoder.geometry
            ahead = PagedMemory(self.memory, table, table, num_tokens, num_tokens + num_slots, list, list)
            shape = num_slots, geometry.num_kv_heads, geometry.head_size
            junk = torch.full(shape, ELEMENT_MAX, device=self.decoder.device)
            for layer in range(geometry.num_layers):
                ahead.write(layer, junk, junk)

    def _passed(self, place: str, items: list[Any]) -> list[Any]:
        """The items as they are, or as the planted fault leaves them."""
        if self.fault is None or self.fault.place != place or not items:
            return items
        changed = self.fault.change(list(items), self.storm)
        self.done.num_struck += changed != items
        return changed

    # ---- what the engine does with the results ----

    def _speak(
        self, outputs: SchedulerOutputs, scored: list[tuple[SequenceGroup, Sequence, torch.Tensor]]
    ) -> list[int]:
        chosen: list[tuple[Sequence, torch.Tensor]] = []
        for scheduled in outputs.scheduled_seq_groups:
            for seq in scheduled.seq_group.get_seqs(RUNNING):
                seq.data.update_num_computed_tokens(scheduled.token_chunk_size)
        for group, seq, scores in scored:
            if seq.data.get_num_uncomputed_tokens() == 0 and not seq.is_finished():
                chosen.append((seq, scores))
                chosen += [(child, scores) for child in self._forks(group, seq)]
        request_of = {seq.seq_id: self.asked[group.request_id] for group, _, _ in scored for seq in group.seqs}
        for seq, scores in chosen:
            request, spoken = request_of[seq.seq_id], self.done.spoken[seq.seq_id]
            salt = 0 if request.is_greedy else request.salts.getrandbits(62)
            token = choose(scores, salt)
            spoken.salts.append(salt)
            spoken.tokens.append(token)
            seq.append_token_id(token)
            if len(spoken.tokens) >= request.num_outputs:
                seq.status = SequenceStatus.FINISHED_LENGTH_CAPPED
        self.scheduler.free_finished_seq_groups()
        return [seq.seq_id for seq, _ in chosen]

    def _forks(self, group: SequenceGroup, seq: Sequence) -> list[Sequence]:
        """The children that a sequence gets now: all of the beam at first, then one for each that is dropped."""
        request, num_said = self.asked[group.request_id], seq.get_output_len()
        if request.beam_width == 1:
            return []
        if num_said == 0:
            return [self._fork(group, seq) for _ in range(request.beam_width - 1)]
        running = group.get_seqs(RUNNING)
        if num_said % RESHUFFLE_EVERY or seq is not running[0] or len(running) < 2 or self._is_at_end(request, seq):
            return []
        running[-1].status = SequenceStatus.FINISHED_STOPPED
        self.done.met["dropped"] += 1
        return [self._fork(group, seq)]

    def _is_at_end(self, request: Request, seq: Sequence) -> bool:
        return seq.get_output_len() + 1 >= request.num_outputs

    def _fork(self, group: SequenceGroup, parent: Sequence) -> Sequence:
        child = parent.fork(self._next_id())
        self.scheduler.fork_seq(parent, child)
        group.add(child)
        said = self.done.spoken[parent.seq_id]
        self.done.spoken[child.seq_id] = Spoken(said.prompt, said.salts[:], said.tokens[:])
        self.done.met["forked"] += 1
        return child

    # ---- what was met ----

    def _count(self, outputs: SchedulerOutputs) -> None:
        met = self.done.met
        met["preempted"] += outputs.preempted
        met["swapped in"] += len(outputs.blocks_to_swap_in)
        met["swapped out"] += len(outputs.blocks_to_swap_out)
        met["copied on write"] += len(outputs.blocks_to_copy)
        met["lost"] += len(outputs.aborted_seq_groups) + len(outputs.ignored_seq_groups)
        for scheduled in outputs.scheduled_seq_groups:
            seq = scheduled.seq_group.get_seqs(RUNNING)[0]
            left = seq.data.get_num_uncomputed_tokens() - scheduled.token_chunk_size
            met["chunk"] += left > 0
            met["hit"] += scheduled.num_cached_tokens > 0
            met["hit beside uncomputed tokens"] += 0 < scheduled.num_cached_tokens < scheduled.token_chunk_size - 1
            met["computed again"] += scheduled.token_chunk_size > 1 and seq.get_output_len() > 0
            met["lookahead"] += scheduled.num_lookahead_slots > 0
