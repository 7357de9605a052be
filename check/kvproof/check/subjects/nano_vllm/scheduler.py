"""nano-vllm's own scheduler with its block manager, as a subject; the path of a checkout names it.

The adapter plays `LLMEngine.step` (commit bb823b3): `schedule`, then the model, then `postprocess` with a token for
every sequence of the step. Prompts go before decodes, and only the first prompt of a step is computed in chunks. A
sequence that gets no slot preempts the last running one, or itself; what is preempted is computed again.

The engine ends a sequence when it has the requested number of tokens, or at the end-of-text token. To end a sequence,
the adapter lowers this number. The engine steps only while it has requests. Requests cannot be aborted. The limit of
sequences applies to one step, not to all running sequences.
"""

from types import SimpleNamespace
from typing import Any

from kvproof.check.protocol.manager import Assumption, Capabilities, Observation, Unsupported
from kvproof.check.protocol.scheduler import Chunk, ScheduledStep, SchedulerConfig
from kvproof.check.protocol.scheduler_adapter import Request, SchedulerAdapter
from kvproof.check.subjects.nano_vllm.loader import Scheduler, import_scheduler
from kvproof.check.subjects.nano_vllm.manager import BLOCK_SIZE, BLOCK_SIZE_MIN

FILLER = 0  # the token for a prompt that is not computed to its end; the scheduler does not read it
ASSUMPTIONS = (
    BLOCK_SIZE,
    Assumption("one-step-at-a-time", "A step is completed before the next one is scheduled."),
    Assumption("model-fits", "The pool holds one sequence of max_model_len; a longer prompt is not sent."),
)


class NanoVllmScheduler(SchedulerAdapter):
    """nano-vllm's `nanovllm.engine.scheduler.Scheduler`."""

    name = "nano-vllm-scheduler"
    capabilities = Capabilities(caching=True, chunked=True, aborts=False, bounds_only_steps=True)
    assumptions: tuple[Assumption, ...] = ASSUMPTIONS

    def __init__(self, release: Scheduler) -> None:
        self._release = release

    def make(self, config: SchedulerConfig) -> Any:
        """A new scheduler. Its sequences get a class with this block size. Raises Unsupported."""
        if config.block_size < BLOCK_SIZE_MIN or not config.caching:
            raise Unsupported("a block has at least two slots, and the prefix cache cannot be switched off")
        self.require_fitting_model(config.max_model_len)
        self._sequence_of_size = type("Sequence", (self._release.sequence,), {"block_size": config.block_size})
        self._seqs: dict[int, Any] = {}
        self._number: dict[int, int] = {}  # the judge's id of a sequence, by the id that the sequence gave itself
        return self._release.make(
            SimpleNamespace(
                max_num_seqs=config.max_num_seqs,
                max_num_batched_tokens=config.max_num_batched_tokens,
                eos=None,
                kvcache_block_size=config.block_size,
                num_kvcache_blocks=config.num_gpu_blocks,
            )
        )

    def add(self, request: Request) -> None:
        """Call `add`."""
        num_tokens = self.num_to_generate(request)
        sampling = SimpleNamespace(temperature=1.0, max_tokens=num_tokens, ignore_eos=True)
        seq = self._seqs[request.seq] = self._sequence_of_size(request.tokens, sampling)
        self._number[seq.seq_id] = request.seq
        self.scheduler.add(seq)

    def next_step(self) -> tuple[Any, ScheduledStep]:
        """Call `schedule` if there is a request; the output is its answer."""
        had_tables = {seq.seq_id for seq in self._seqs.values() if seq.block_table}
        output = ([], False) if self.scheduler.is_finished() else self.scheduler.schedule()
        chunks = []
        for seq in output[0]:
            start = seq.num_cached_tokens
            hit = 0 if seq.seq_id in had_tables else start
            chunks.append(Chunk(self._number[seq.seq_id], start, start + seq.num_scheduled_tokens, hit))
        return output, ScheduledStep(chunks)

    def take_results(self, output: Any, sampled: dict[int, int], finished: list[int]) -> None:
        """Call `postprocess`, which ends a sequence that has all its tokens."""
        seqs, is_prefill = output
        for seq in finished:
            self._seqs[seq].max_tokens = self._seqs[seq].num_completion_tokens + 1
        tokens = [sampled.get(self._number[seq.seq_id], FILLER) for seq in seqs]
        self.scheduler.postprocess(seqs, tokens, is_prefill)
        for seq in finished:
            del self._seqs[seq]

    def observe(self) -> Observation:
        """The tables of sequences that have blocks, the refcounts, and the free queue."""
        manager = self.scheduler.block_manager
        tables = {number: [list(seq.block_table)] for number, seq in self._seqs.items() if seq.block_table}
        free_ids = list(manager.free_block_ids)
        return Observation(tables, (len(free_ids), 0), (), [block.ref_count for block in manager.blocks], free_ids)


def make(version: str) -> NanoVllmScheduler:
    """The scheduler of the checkout at this path. Raises EngineError if the folder is not a checkout."""
    return NanoVllmScheduler(import_scheduler(version))
