"""The mappings that kvproof's block manager emits under its scheduler, with requests that force swaps and copies.

The model is simulated: every scheduled token is written to its slot by the block table. A block is free, and therefore
poisoned, as soon as no table contains it.
"""

from dataclasses import dataclass
from random import Random

from kvproof.check.data_plane.steps.moves import Moves, Step, Write
from kvproof.impl import (
    BlockManager,
    Scheduler,
    SchedulerConfig,
    SchedulerOutputs,
    Sequence,
    SequenceGroup,
    SequenceStatus,
)
from kvproof.impl.scheduler import PreemptionMode

STEPS_MAX = 60


@dataclass(frozen=True)
class Load:
    """The requests of a kind. num_beams: sequences that each request forks into. preemption: how blocks are freed."""

    num_beams: int
    preemption: PreemptionMode | None


LOADS: dict[str, Load] = {
    "heavy-swapping": Load(1, PreemptionMode.SWAP),
    "beam-search": Load(3, None),
    "preemption": Load(2, PreemptionMode.SWAP),
}


def steps_of(kind: str, seed: int, num_gpu_blocks: int, num_cpu_blocks: int, block_size: int) -> list[Step]:
    """The steps of one kind. There are more requests than the pool can hold."""
    return _Run(LOADS[kind], Random(f"{kind} {seed}"), num_gpu_blocks, num_cpu_blocks, block_size).steps()


class _Run:
    def __init__(self, load: Load, random: Random, num_gpu_blocks: int, num_cpu_blocks: int, block_size: int) -> None:
        self.load, self.random, self.block_size = load, random, block_size
        self.num_gpu_blocks = num_gpu_blocks
        self.manager = BlockManager(block_size, num_gpu_blocks, num_cpu_blocks, watermark=0.0)
        length_max = num_gpu_blocks * block_size
        config = SchedulerConfig(length_max, 16, length_max, preemption_mode=load.preemption)
        self.scheduler = Scheduler(config, self.manager, clock=lambda: 0.0)
        self.length_max = max(2, length_max // (3 * load.num_beams))  # about three requests fill the pool
        self.next_id = 0
        for request in range(6):
            prompt = [0] * random.randint(1, max(1, self.length_max // 2))
            group = SequenceGroup(str(request), [Sequence(self._new_id(), prompt, block_size)])
            self.scheduler.add_seq_group(group)
        self.held: set[int] = set()

    def _new_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def steps(self) -> list[Step]:
        """The steps until all requests have ended, at most STEPS_MAX."""
        found: list[Step] = []
        while self.scheduler.has_unfinished_seqs() and len(found) < STEPS_MAX:
            outputs = self.scheduler.schedule()
            moves = Moves(
                tuple(outputs.blocks_to_swap_in), tuple(outputs.blocks_to_swap_out), tuple(outputs.blocks_to_copy)
            )
            writes = tuple(self._writes(outputs))
            before, self.held = self.held, self._held()
            freed = sorted(before - self.held)
            gpu = tuple(block for block in freed if block < self.num_gpu_blocks)
            cpu = tuple(block - self.num_gpu_blocks for block in freed if block >= self.num_gpu_blocks)
            found.append(Step(moves, gpu, cpu, writes))
            self._complete(outputs)
        return found

    def _held(self) -> set[int]:
        """The ids of the blocks in tables. Host ids count on from the GPU ids."""
        return {block for table in self.manager.tables.values() for block in table.ids}

    def _writes(self, outputs: SchedulerOutputs) -> list[Write]:
        writes = []
        for scheduled in outputs.scheduled_seq_groups:
            for seq in scheduled.seq_group.get_seqs(SequenceStatus.RUNNING):
                start = seq.data.get_num_computed_tokens()
                stop, table = start + scheduled.token_chunk_size, self.manager.tables[seq.seq_id].ids
                while start < stop:
                    index, slot = divmod(start, self.block_size)
                    count = min(self.block_size - slot, stop - start)
                    writes.append(Write(table[index], slot, count))
                    start += count
        return writes

    def _complete(self, outputs: SchedulerOutputs) -> None:
        """Append a token to each running sequence. A new group forks, a long sequence ends."""
        for scheduled in outputs.scheduled_seq_groups:
            group = scheduled.seq_group
            for seq in group.get_seqs(SequenceStatus.RUNNING):
                seq.data.update_num_computed_tokens(scheduled.token_chunk_size)
            running = group.get_seqs(SequenceStatus.RUNNING)
            for _ in range(self.load.num_beams - len(group.seqs)):
                child = running[0].fork(self._new_id())
                self.scheduler.fork_seq(running[0], child)
                group.add(child)
            for seq in group.get_seqs(SequenceStatus.RUNNING):
                seq.append_token_id(self.random.randrange(100))
                if seq.get_len() > self.length_max:
                    seq.status = SequenceStatus.FINISHED_STOPPED
        self.scheduler.free_finished_seq_groups()
