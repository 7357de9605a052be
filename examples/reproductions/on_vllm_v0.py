"""vLLM's V0 scheduler, 0.6.5 to 0.10.2, without a model: what the scripts for it share.

`Engine` computes each step in name only: it knows of every block which tokens' KV was written to it last, so it notices
when a request reads the KV of other tokens.
"""

from itertools import count
from typing import Any

import vllm.core.scheduler
from on_any_engine import StandIn, same
from vllm.core.scheduler import Scheduler
from vllm.sequence import Sequence, SequenceGroup, SequenceStatus

clock = count(1.0)  # no two readings are equal
vllm.core.scheduler.time = StandIn(time=clock.__next__, perf_counter=clock.__next__)


class Engine:
    """A scheduler, its requests, and what the blocks of the device hold."""

    def __init__(self, block_size: int, num_blocks: int, num_host_blocks: int = 0, **changed: Any) -> None:
        scheduling = {"policy": "fcfs", "preemption_mode": None, "delay_factor": 0.0, "max_num_seqs": 4}
        scheduling |= same("generate", "runner_type task") | same(64, "max_model_len max_num_batched_tokens")
        scheduling |= same(1, "max_long_partial_prefills max_num_partial_prefills num_scheduler_steps")
        scheduling |= same(0, "long_prefill_token_threshold num_lookahead_slots")
        scheduling |= same(False, "chunked_prefill_enabled is_multi_step send_delta_data") | changed
        caching = StandIn(
            block_size=block_size,
            enable_prefix_caching=True,
            num_gpu_blocks=num_blocks,
            num_cpu_blocks=num_host_blocks,
            sliding_window=None,
            is_attention_free=False,
        )
        self.block_size = block_size
        self.scheduler = Scheduler(StandIn(**scheduling), caching, None)
        self.groups: list[Any] = []
        self.device: dict[int, tuple[int, ...]] = {}  # the tokens whose KV each block holds

    def add(self, prompt: list[int]) -> Any:
        """A new request of one sequence, in the scheduler's queue. Returns the sequence."""
        number = len(self.groups)
        seq = Sequence(number, {"type": "token", "prompt_token_ids": prompt}, self.block_size)
        self.groups.append(SequenceGroup(str(number), [seq], 0.0, StandIn(n=1, max_tokens=8)))
        self.scheduler.add_seq_group(self.groups[-1])
        return seq

    def compute(self, seq: Any, table: list[int], num_done: int) -> bool:
        """Compute the tokens of a sequence but the first `num_done`. Returns whether what it reads is its own KV."""
        tokens, size, is_right = tuple(seq.get_token_ids()), self.block_size, True
        parts = [tokens[i * size : (i + 1) * size] for i in range(len(table))]
        for index, (block, part) in enumerate(zip(table, parts, strict=True)):
            read = part[: max(0, num_done - index * size)]
            held = self.device.get(block, ())[: len(read)]
            if held != read:
                print(f"  request {seq.seq_id} reads block {block}, which should hold {read}, and holds {held}")
                is_right = False
        self.device.update(zip(table, parts, strict=True))
        return is_right

    def sample(self, scheduled: Any, token: int = 0) -> None:
        """A request has computed its tokens of this step, and generates another one."""
        scheduled.seq_group.update_num_computed_tokens(scheduled.token_chunk_size)
        (seq,) = scheduled.seq_group.get_seqs()
        seq.append_token_id(token, {token: StandIn(logprob=0.0)})

    def step(self) -> bool:
        """Schedule a step and compute it. Returns whether every block that is taken as computed has its content."""
        metadata, outputs, _ = self.scheduler.schedule()
        is_right = True
        for data, scheduled in zip(metadata, outputs.scheduled_seq_groups, strict=True):
            (seq,) = scheduled.seq_group.get_seqs()
            table, hit = data.block_tables[seq.seq_id], list(data.computed_block_nums or ()) if data.is_prompt else []
            print(f"request {data.request_id}: blocks {table}, of which {hit} are taken as computed")
            is_right &= self.compute(seq, table, len(hit) * self.block_size)
            self.sample(scheduled)
        return is_right

    def finish(self, seq: Any) -> None:
        """End a request."""
        seq.status = SequenceStatus.FINISHED_STOPPED
        self.scheduler.free_seq(seq)
        self.scheduler.free_finished_seq_groups()
