"""One workload, run as an engine runs it: schedule, move, compute, sample, fork, drop, free.

The worker executes the swap-ins of a step, then its swap-outs, then its copies, then the model. Lookahead slots are
filled with random elements, because their content is undefined and nothing may read it.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from kvproof.check.data_plane.end_to_end.exact_decoder import ELEMENT_MAX, ExactDecoder, choose
from kvproof.check.data_plane.end_to_end.fault_injection import Fault
from kvproof.check.data_plane.end_to_end.workloads import GenerationRequest, Workload, requests
from kvproof.impl import (
    BlockManager,
    KVBlockShape,
    KVCacheEngine,
    KVLayout,
    ScheduledSequenceGroup,
    Scheduler,
    SchedulerOutputs,
    Sequence,
    SequenceGroup,
    SequenceStatus,
)

Slots = Callable[[list[int]], list[int]]


@dataclass
class PagedMemory:
    """The memory of one sequence for one chunk, which covers positions `start` to `stop - 1`: what a kernel sees.

    The slot of a token is `table[position // block size] * block size + position % block size`. It is computed only
    here. Blocks are found through the typed view of the layout, so the tokens reveal a layout that is moved in one way
    and read in another.

    write_table, read_table: the block table, once for writing and once for reading. written, read_back: functions that
    slots pass through before they are used. Faults can be planted in all four.
    """

    engine: KVCacheEngine
    write_table: list[int]
    read_table: list[int]
    start: int
    stop: int
    written: Slots
    read_back: Slots

    def __post_init__(self) -> None:
        self.write_slots = self._places(self.written(self._slots(self.write_table, range(self.start, self.stop))))
        self.read_slots = self._places(self.read_back(self._slots(self.read_table, range(self.stop))))

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Store the chunk in its slots."""
        key_cache, value_cache = key_and_value(self.engine, layer)
        key_cache[self.write_slots] = keys.to(key_cache.dtype)
        if value_cache is not key_cache:
            value_cache[self.write_slots] = values.to(value_cache.dtype)

    def read(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Fetch every position up to the end of the chunk."""
        key_cache, value_cache = key_and_value(self.engine, layer)
        return key_cache[self.read_slots].to(torch.int64), value_cache[self.read_slots].to(torch.int64)

    def _slots(self, table: list[int], positions: range) -> list[int]:
        size = self.engine.shape.block_size
        return [table[position // size] * size + position % size for position in positions]

    def _places(self, slots: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Block ids, and slot numbers within these blocks."""
        numbers = torch.tensor(slots, dtype=torch.int64, device=self.engine.device)
        size = self.engine.shape.block_size
        return numbers // size, numbers % size


def key_and_value(engine: KVCacheEngine, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Views [blocks, slots, KV heads, head size] of one GPU layer. In a latent layer the value view is the key view."""
    cache = engine.gpu_cache[layer]
    match engine.shape.layout:
        case KVLayout.TWO_PLANES:
            return cache[0], cache[1]
        case KVLayout.NHD | KVLayout.HND:
            return cache[:, 0], cache[:, 1]
        case KVLayout.LATENT:
            rows = cache.unsqueeze(2)
            return rows, rows


def fill_with_junk(engine: KVCacheEngine, seed: int) -> None:
    """Fill both pools with valid elements, so that a block that was not moved is not right by chance."""
    drawn = torch.Generator().manual_seed(seed)
    for tensor in (*engine.gpu_cache, *engine.cpu_cache):
        tensor.copy_(torch.randint(0, ELEMENT_MAX + 1, tensor.shape, generator=drawn).to(tensor.dtype))


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
        fault: Fault | None = None,
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
        if self.fault is None or self.fault.kind != place or not items:
            return items
        changed = self.fault.plant(list(items), self.workload)
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
