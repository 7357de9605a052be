"""One workload, run as an engine runs it: schedule, move, compute, sample, fork, drop, free.

The worker executes the swap-ins of a step, then its swap-outs, then its copies, then the model. Lookahead slots are
filled with random elements, because their content is undefined and nothing may read it.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from kvproof.check.data_plane.end_to_end.exact_decoder import ELEMENT_MAX, ExactDecoder, choose
from kvproof.check.data_plane.end_to_end.fault_injection import PlantedFault
from kvproof.check.data_plane.end_to_end.paged_memory import PagedMemory, fill_with_junk
from kvproof.check.data_plane.end_to_end.workloads import GenerationRequest, Workload, requests
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
class Completion:
    """The prompt of one sequence, the tokens that were chosen after it, and the salt of each choice."""

    prompt: list[int]
    salts: list[int]
    tokens: list[int]


@dataclass
class Generated:
    """Everything that one workload generated.

    completions: by sequence id. witness_counts: how often each event happened. num_changes: how often a planted fault
    changed a list.
    """

    completions: dict[int, Completion] = field(default_factory=dict)
    witness_counts: Counter[str] = field(default_factory=Counter)
    num_steps: int = 0
    num_changes: int = 0


class WorkloadEngine:
    """An engine that serves one workload, with at most one planted fault."""

    def __init__(
        self,
        workload: Workload,
        decoder: ExactDecoder,
        shape: KVBlockShape,
        seed: int,
        fault: PlantedFault | None = None,
    ) -> None:
        self.workload, self.decoder, self.fault = workload, decoder, fault
        manager = BlockManager(
            workload.block_size, workload.num_gpu_blocks, workload.num_cpu_blocks, enable_caching=workload.caching
        )
        self.manager, self.now = manager, 0
        self.scheduler = Scheduler(workload.scheduler_config(), manager, clock=lambda: float(self.now))
        layers = decoder.geometry.num_layers
        self.memory = KVCacheEngine(shape, layers, workload.num_gpu_blocks, workload.num_cpu_blocks, decoder.device)
        fill_with_junk(self.memory, seed)
        self.requests: dict[str, GenerationRequest] = {}
        self.arriving = requests(workload, seed, decoder.geometry.vocabulary_size)
        self.done, self.num_seqs = Generated(), 0

    def run(self) -> Generated:
        """Serve every request. Raises RuntimeError if that takes more than NUM_STEPS_MAX steps."""
        for _ in self.steps():
            pass
        return self.done

    def steps(self) -> Iterator[list[int]]:
        """Like `run`, one step at a time: yields the ids of the sequences that got a token in the step."""
        while self.arriving or self.scheduler.has_unfinished_seqs():
            if self.now == NUM_STEPS_MAX:
                raise RuntimeError(f"workload {self.workload.name} has not ended after {NUM_STEPS_MAX:,} steps")
            self._admit()
            outputs = self.scheduler.schedule()
            self._count(outputs)
            self._move(outputs)
            scored = [
                (scheduled.seq_group, seq, self._compute(scheduled, seq))
                for scheduled in outputs.scheduled_seq_groups
                for seq in scheduled.seq_group.get_seqs(RUNNING)
            ]
            yield self._sample(outputs, scored)
            self.now += 1
        self.done.num_steps = self.now

    def _admit(self) -> None:
        while self.arriving and self.arriving[0].arrival <= self.now:
            request = self.arriving.pop(0)
            self.requests[request.name] = request
            self.scheduler.add_seq_group(SequenceGroup(request.name, [self._new(request)]))

    def _new(self, request: GenerationRequest) -> Sequence:
        seq = Sequence(self._next_id(), request.prompt, self.workload.block_size)
        self.done.completions[seq.seq_id] = Completion(request.prompt, [], [])
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
        """Compute one chunk of a sequence. Returns the scores [vocabulary] after its last token."""
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
        """The items, changed by the planted fault if it belongs to this place."""
        if self.fault is None or self.fault.place != place or not items:
            return items
        changed = self.fault.change(list(items), self.workload)
        self.done.num_changes += changed != items
        return changed

    # ---- what the engine does with the results ----

    def _sample(
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
        request_of = {seq.seq_id: self.requests[group.request_id] for group, _, _ in scored for seq in group.seqs}
        for seq, scores in chosen:
            request, completion = request_of[seq.seq_id], self.done.completions[seq.seq_id]
            salt = 0 if request.is_greedy else request.salts.getrandbits(62)
            token = choose(scores, salt)
            completion.salts.append(salt)
            completion.tokens.append(token)
            seq.append_token_id(token)
            if len(completion.tokens) >= request.num_outputs:
                seq.status = SequenceStatus.FINISHED_LENGTH_CAPPED
        self.scheduler.free_finished_seq_groups()
        return [seq.seq_id for seq, _ in chosen]

    def _forks(self, group: SequenceGroup, seq: Sequence) -> list[Sequence]:
        """Fork the children of a sequence in this step: the whole beam at first, then one for each dropped sequence."""
        request, num_outputs = self.requests[group.request_id], seq.get_output_len()
        if request.beam_width == 1:
            return []
        if num_outputs == 0:
            return [self._fork(group, seq) for _ in range(request.beam_width - 1)]
        running = group.get_seqs(RUNNING)
        is_at_end = num_outputs + 1 >= request.num_outputs
        if num_outputs % RESHUFFLE_EVERY or seq is not running[0] or len(running) < 2 or is_at_end:
            return []
        running[-1].status = SequenceStatus.FINISHED_STOPPED
        self.done.witness_counts["dropped"] += 1
        return [self._fork(group, seq)]

    def _fork(self, group: SequenceGroup, parent: Sequence) -> Sequence:
        child = parent.fork(self._next_id())
        self.scheduler.fork_seq(parent, child)
        group.add(child)
        shared = self.done.completions[parent.seq_id]
        self.done.completions[child.seq_id] = Completion(shared.prompt, shared.salts[:], shared.tokens[:])
        self.done.witness_counts["forked"] += 1
        return child

    # ---- witness counts ----

    def _count(self, outputs: SchedulerOutputs) -> None:
        witness_counts = self.done.witness_counts
        witness_counts["preempted"] += outputs.preempted
        witness_counts["swapped in"] += len(outputs.blocks_to_swap_in)
        witness_counts["swapped out"] += len(outputs.blocks_to_swap_out)
        witness_counts["copied on write"] += len(outputs.blocks_to_copy)
        witness_counts["lost"] += len(outputs.aborted_seq_groups) + len(outputs.ignored_seq_groups)
        for scheduled in outputs.scheduled_seq_groups:
            seq = scheduled.seq_group.get_seqs(RUNNING)[0]
            left = seq.data.get_num_uncomputed_tokens() - scheduled.token_chunk_size
            witness_counts["chunk"] += left > 0
            witness_counts["hit"] += scheduled.num_cached_tokens > 0
            witness_counts["hit beside uncomputed tokens"] += (
                0 < scheduled.num_cached_tokens < scheduled.token_chunk_size - 1
            )
            witness_counts["computed again"] += scheduled.token_chunk_size > 1 and seq.get_output_len() > 0
            witness_counts["lookahead"] += scheduled.num_lookahead_slots > 0
