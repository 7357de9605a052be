"""nano-vllm's own scheduler around its block manager, as a subject of the loop, by the path of a checkout.

The adapter plays `LLMEngine.step` (commit bb823b3): `schedule`, then the model, then `postprocess` with a token for
every sequence of the step. Prompts go before decodes, and of a step only the first prompt is computed in chunks; a
sequence that finds no slot preempts the last one that runs, or itself, and is computed anew.

The engine ends a sequence when it has its tokens, or with the token that ends a text; where the judge ends one, that
was its last token. It steps only while somebody is there. Requests cannot be aborted. Its limit of sequences is one of
a step, not of all that run.
"""

from types import SimpleNamespace
from typing import Any

from kvproof.check.protocol.manager import Assumption, Capabilities, Observation, Unsupported
from kvproof.check.protocol.scheduler import Chunk, SchedulerConfig, Step
from kvproof.check.subjects.nano_vllm.loader import Scheduler, import_scheduler
from kvproof.check.subjects.nano_vllm.manager import BLOCK_SIZE, BLOCK_SIZE_MIN
from kvproof.spec.text.identity import Image, Key

FILLER = 0  # sampled of a prompt that is not computed to its end; it is not looked at
ASSUMPTIONS = (
    BLOCK_SIZE,
    Assumption("one-step-at-a-time", "A step is completed before the next one is scheduled."),
    Assumption("model-fits", "The pool holds one sequence of max_model_len; a longer prompt is not sent."),
)


class NanoVllmScheduler:
    """`nanovllm.engine.scheduler.Scheduler`."""

    name = "nano-vllm-scheduler"
    capabilities = Capabilities(caching=True, chunked=True, aborts=False, bounds_only_steps=True)
    assumptions: tuple[Assumption, ...] = ASSUMPTIONS

    def __init__(self, release: Scheduler) -> None:
        self._release = release

    def open(self, config: SchedulerConfig) -> None:
        """A new scheduler, and a class of sequences that knows its block size. Raises Unsupported."""
        if config.block_size < BLOCK_SIZE_MIN or not config.caching:
            raise Unsupported("a block has at least two slots, and the prefix cache cannot be switched off")
        if config.num_host_blocks or config.watermark or config.window or config.lookahead or config.keys > 1:
            raise Unsupported("no host blocks, watermark, windows, drafting or keys")
        if config.group_size > 1 or config.cross or config.images:
            raise Unsupported("no groups of several sequences, encoder or images")
        if -(-config.max_model_len // config.block_size) > config.num_gpu_blocks:
            raise Unsupported("the longest sequence does not fit the pool")
        self._config = config
        self._scheduler = self._release.make(
            SimpleNamespace(
                max_num_seqs=config.max_num_seqs,
                max_num_batched_tokens=config.max_num_batched_tokens,
                eos=None,
                kvcache_block_size=config.block_size,
                num_kvcache_blocks=config.num_gpu_blocks,
            )
        )
        self._sequence_of_size = type("Sequence", (self._release.sequence,), {"block_size": config.block_size})
        self._seqs: dict[int, Any] = {}
        self._number: dict[int, int] = {}  # of a sequence, by the number that it gave itself
        self._step: tuple[list[Any], bool] = [], False
        self._refused: list[int] = []

    def add_request(
        self,
        request: int,
        seqs: list[int],
        tokens: list[int],
        key: Key,
        images: tuple[Image, ...],
        max_tokens: int,
        encoder: tuple[int, list[int]] | None,
    ) -> None:
        """add; a prompt beyond max_model_len is not sent, and told of with the next step."""
        (seq,) = seqs
        if len(tokens) > self._config.max_model_len:
            self._refused.append(request)
            return
        room = max(1, min(max_tokens, self._config.max_model_len - len(tokens)))
        sampling = SimpleNamespace(temperature=1.0, max_tokens=room, ignore_eos=True)
        told = self._seqs[seq] = self._sequence_of_size(tokens[:], sampling)
        self._number[told.seq_id] = seq
        self._scheduler.add(told)

    def abort(self, request: int) -> None:
        """There is no such call."""
        raise NotImplementedError

    def schedule(self) -> Step:
        """schedule, while somebody is there."""
        ignored, self._refused = self._refused, []
        had_tables = {told.seq_id for told in self._seqs.values() if told.block_table}
        self._step = ([], False) if self._scheduler.is_finished() else self._scheduler.schedule()
        chunks = []
        for told in self._step[0]:
            start = told.num_cached_tokens
            hit = 0 if told.seq_id in had_tables else start
            chunks.append(Chunk(self._number[told.seq_id], start, start + told.num_scheduled_tokens, hit))
        return Step(chunks, ignored=ignored)

    def launch(self) -> None:
        """The scheduler is told nothing."""

    def complete(self, sampled: dict[int, int], forks: list[tuple[int, int]], finished: list[int]) -> None:
        """postprocess."""
        told, is_prefill = self._step
        for seq in finished:
            self._seqs[seq].max_tokens = self._seqs[seq].num_completion_tokens + 1
        tokens = [sampled.get(self._number[one.seq_id], FILLER) for one in told]
        self._scheduler.postprocess(told, tokens, is_prefill)
        for seq in finished:
            del self._seqs[seq]

    def observe(self) -> Observation:
        """Tables of those that have blocks, and what the block manager counts."""
        manager = self._scheduler.block_manager
        tables = {seq: [list(told.block_table)] for seq, told in self._seqs.items() if told.block_table}
        free_ids = list(manager.free_block_ids)
        return Observation(tables, (len(free_ids), 0), (), [block.ref_count for block in manager.blocks], free_ids)


def make(version: str) -> NanoVllmScheduler:
    """The scheduler of a checkout, whose path stands in the place of a version. Raises EngineError."""
    return NanoVllmScheduler(import_scheduler(version))
