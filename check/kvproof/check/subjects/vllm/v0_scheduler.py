"""vLLM's own V0 scheduler with its block manager as a subject: releases 0.6.5 to 0.10.2.

The adapter plays vLLM's engine. It makes requests, reports the steps of `schedule` to kvproof, which executes them, and
gives the results back as `LLMEngine._process_model_outputs` does (release 0.9.2): it counts the computed tokens,
appends the sampled one, and frees what is over. The model runner decides where the computation of a prompt starts,
from the blocks that the scheduler reports as computed (`_compute_for_prefix_cache_hit`).

The engine takes aborts between steps only. An abort within a step is carried out when the step is complete.

From 0.7.3 on several prompts can be computed in part in one step (`max_num_partial_prefills`). They share its tokens,
and all but one of them may be long: here, longer than half of the longest sequence.

Limits: a request has one sequence (so says the scheduler of these releases; several samples of one prompt are requests
of their own there), no images, no salts; with an encoder no window, cache, lookahead, adapter, chunked prompt or
swapping, as the engine demands; preemption by swapping with chunked prompts is not driven, since
requests are let in beside any number of swapped ones, and the scheduler gives up with an error when the host is full;
the watermark, by default one block in a hundred, is set to no block. No order of service is declared: with chunked
prompts, decodes go before prompts in the queue of running requests, so what is preempted does not come back by arrival.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import Assumption, Observation, Unsupported
from kvproof.check.protocol.scheduler import ABORTED, IGNORED, Chunk, ScheduledStep, SchedulerConfig
from kvproof.check.protocol.scheduler_adapter import Request, SchedulerAdapter
from kvproof.check.subjects.loading import EngineError, download, partial_import
from kvproof.check.subjects.loading.stub_modules import StubObject
from kvproof.check.subjects.vllm.v0_loader import STAND_INS as OF_THE_MANAGER
from kvproof.check.subjects.vllm.v0_loader import ceil_div, hash_holders, set_hash_seed
from kvproof.check.subjects.vllm.v0_observation import Pools, observation_of


class NoObjectCache:
    """A cache of objects that makes a new one each time."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.get_object = make

    def reset(self) -> None:
        """Nothing is kept."""


class Named:
    """A stub type for annotations; an instance keeps its arguments as attributes."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.arguments = arguments

    def __bool__(self) -> bool:
        return bool(any(self.arguments))


class InputsAdapter(StubObject):
    """The inputs of a sequence as attributes, until 0.8.4."""

    prompt_embeds = None
    token_type_ids: tuple[int, ...] = ()
    multi_modal_data = multi_modal_placeholders = mm_processor_kwargs = prompt = None
    multi_modal_hashes: tuple[str, ...] = ()

    def __init__(self, inputs: dict[str, Any]) -> None:
        super().__init__(prompt_token_ids=inputs["prompt_token_ids"])


STAND_INS: dict[str, dict[str, Any]] = {
    **{name: names for name, names in OF_THE_MANAGER.items() if name != "sequence"},
    "config": dict.fromkeys(("CacheConfig", "LoRAConfig", "SchedulerConfig"), Named),
    "config.lora": {"LoRAConfig": Named},
    "inputs": {"SingletonInputs": dict, "SingletonInputsAdapter": InputsAdapter},
    "lora": {},
    "lora.request": {"LoRARequest": Named},
    "multimodal": dict.fromkeys(("MultiModalDataDict", "MultiModalKwargs", "MultiModalPlaceholderDict"), Named),
    "pooling_params": {"PoolingParams": Named},
    "prompt_adapter": {},
    "prompt_adapter.request": {"PromptAdapterRequest": Named},
    "sampling_params": {"SamplingParams": Named, "RequestOutputKind": StubObject(DELTA=object())},
    "spec_decode": {},
    "spec_decode.metrics": {"SpecDecodeWorkerMetrics": Named},
    "utils": {**OF_THE_MANAGER["utils"], "PyObjectCache": NoObjectCache},
}


def import_scheduler(version: str, cache: Path | None = None) -> StubObject:
    """The modules of a release's scheduler and of its sequences, from its unpacked sources. Raises EngineError.

    The scheduler, `vllm.sequence` (requests, their sequences and stages) and the block manager are the release's own.
    What they use of the rest is what `v0_loader` replaces, a cache of Python objects (replaced by one that caches
    nothing), and names that occur in annotations only. The adapter turns the clock that the scheduler reads.
    """
    module = partial_import.mount("vllm", download.find("vllm", version, cache), STAND_INS)
    manager = getattr(module("core.block_manager"), "SelfAttnBlockSpaceManager", None)
    if not hasattr(manager, "get_num_cached_tokens"):
        raise EngineError(f"the scheduler of vLLM {version} is driven from 0.6.5 on; `vllm-v0=={version}` is there")
    return StubObject(scheduler=module("core.scheduler"), sequence=module("sequence"))


END_OF = {"FINISHED_ABORTED": ABORTED, "FINISHED_IGNORED": IGNORED}
PARTIAL_PREFILLS_MAX = 4
MODES = {"auto": None, "recompute": "recompute", "swap": "swap"}
ASSUMPTIONS = (
    Assumption("one-step-at-a-time", "A step is completed before the next one is scheduled."),
    Assumption("aborts-between-steps", "A request aborted within a step is given up when the step is complete."),
    Assumption("model-fits", "The pool holds one sequence of max_model_len, as the engine demands when it starts."),
    Assumption("swap-space", "Where preemption is by swapping, the host has room for all that may run."),
    Assumption("whole-steps", "With the prefix cache, a step's tokens of chunked prompts fill whole blocks."),
    Assumption("window-or-cache", "A sliding window and the prefix cache are not on together."),
    Assumption("encoder-alone", "With an encoder: no window, cache, lookahead, adapter, chunked prompt or swapping."),
    Assumption("adapter-ids", "Two adapters never have the same id; their names may be equal."),
    Assumption("write-before-read", "A step writes its KV before it reads: a hit may be computed in the same step."),
    Assumption("clock-advances", "No two steps have the same time: the evictor tells its entries apart by it."),
)


class Adapter(NamedTuple):
    """A LoRA request, of which only the number tells it apart."""

    lora_int_id: int
    long_lora_max_len: int | None = None


class VllmV0Scheduler(SchedulerAdapter):
    """`vllm.core.scheduler.Scheduler`."""

    capabilities = Capabilities(
        swap=True,
        window=True,
        caching=True,
        lookahead=True,
        chunked=True,
        adapters=True,
        cross=True,
        same_step_hits=True,
        reports_ends=True,
        swaps_into_room=True,
        preempts_as_set=True,
    )
    assumptions: tuple[Assumption, ...] = ASSUMPTIONS

    def __init__(self, version: str) -> None:
        self.name = f"vllm-v0-scheduler {version}"
        self._release = release = import_scheduler(version)
        self.capabilities = replace(self.capabilities, hash_seeds=bool(hash_holders(release.scheduler.Scheduler)))
        lookahead_of = release.scheduler.Scheduler._get_num_lookahead_slots
        if "scheduler_config" not in lookahead_of.__code__.co_names:  # from 0.10 on there is none
            self.capabilities = replace(self.capabilities, lookahead=False)
        if hasattr(release.scheduler, "PartialPrefillMetadata"):
            self.capabilities = replace(self.capabilities, partial_prefills=PARTIAL_PREFILLS_MAX)
        release.scheduler.time = StubObject(time=self._time, perf_counter=self._time)

    def _time(self) -> float:
        return float(self.now)

    def make(self, config: SchedulerConfig) -> Any:
        if config.caching and config.chunked and config.max_num_batched_tokens % config.block_size:
            raise Unsupported("with the prefix cache, a step's tokens are a multiple of the block size")
        if not config.chunked and config.max_num_batched_tokens < config.max_model_len:
            raise Unsupported("where prompts are not chunked, a step must have room for the longest one")
        if config.max_num_batched_tokens // config.partial_prefills < (config.block_size if config.caching else 1):
            raise Unsupported("a step has no tokens for each of the prompts that it may compute in part")
        has_extras = config.window or config.caching or config.lookahead or config.chunked or config.keys > 1
        if config.cross and (has_extras or config.preemption == "swap"):
            raise Unsupported("an encoder excludes window, cache, lookahead, chunked prompts, adapters and swapping")
        num_slots = config.max_model_len + config.lookahead
        self.require_fitting_model(num_slots)
        if config.preemption == "swap" and config.chunked:
            raise Unsupported("with chunked prompts, nothing bounds the swapped requests")
        if config.preemption == "swap" and config.num_host_blocks < config.max_num_seqs * ceil_div(
            num_slots, config.block_size
        ):
            raise Unsupported("preemption by swapping needs host blocks for all that may run")
        set_hash_seed(self._release.scheduler.Scheduler, config.hash_seed)
        scheduler = self._release.scheduler.Scheduler(self._scheduling(config), self._caching(config), None)
        self._manager = scheduler.block_manager
        self._manager.watermark_blocks = 0
        self._pools = Pools(self._manager, config)
        self._groups: dict[int, Any] = {}  # by request
        self._encoders: dict[str, int] = {}  # the encoder's sequence, by the name of the request
        self._served: dict[int, None] = {}  # the sequences that got slots in this step, in that order
        self._record_order(self._manager)
        return scheduler

    def _record_order(self, manager: Any) -> None:
        """Record who gets slots when: what `schedule` returns is sorted by adapter, and prompts come first."""
        allocate, append, served = manager.allocate, manager.append_slots, self._served

        def allocate_in_order(group: Any) -> None:
            served[group.first_seq.seq_id] = None
            allocate(group)

        def append_in_order(seq: Any, *options: Any) -> Any:
            served.pop(seq.seq_id, None)
            served[seq.seq_id] = None
            return append(seq, *options)

        manager.allocate, manager.append_slots = allocate_in_order, append_in_order

    @staticmethod
    def _scheduling(config: SchedulerConfig) -> StubObject:
        """What vLLM's scheduler reads of its configuration."""
        return StubObject(
            runner_type="generate",
            task="generate",
            embedding_mode=False,
            preemption_mode=MODES[config.preemption],
            chunked_prefill_enabled=config.chunked,
            delay_factor=0.0,
            is_multi_step=False,
            long_prefill_token_threshold=config.long_prompt if config.partial_prefills > 1 else 0,
            max_long_partial_prefills=config.long_partial_prefills,
            max_num_partial_prefills=config.partial_prefills,
            max_model_len=config.max_model_len,
            max_num_batched_tokens=config.max_num_batched_tokens,
            max_num_seqs=config.max_num_seqs,
            num_lookahead_slots=config.lookahead,
            num_scheduler_steps=1,
            policy="fcfs",
            send_delta_data=False,
        )

    @staticmethod
    def _caching(config: SchedulerConfig) -> StubObject:
        return StubObject(
            block_size=config.block_size,
            enable_prefix_caching=config.caching,
            is_attention_free=False,
            sliding_window=config.window,
            num_gpu_blocks=config.num_gpu_blocks,
            num_cpu_blocks=config.num_host_blocks,
        )

    def add(self, request: Request) -> None:
        adapter = Adapter(request.key.adapter_id) if request.key.adapter_id else None
        name, encoder = str(request.number), None
        made = self._sequence(request.seq, request.tokens, adapter)
        # `n` is the name of a parameter that the scheduler asks for; without it, it assumes one sequence.
        sampling = StubObject(n=1, best_of=None, max_tokens=request.max_tokens, use_beam_search=False)
        if request.encoder is not None:
            encoder = self._sequence(*request.encoder)
            self._encoders[name] = encoder.seq_id
        group = self._release.sequence.SequenceGroup(name, [made], 0.0, sampling, adapter, encoder_seq=encoder)
        self._groups[request.number] = group
        self.scheduler.add_seq_group(group)

    def _sequence(self, seq: int, tokens: list[int], adapter: Adapter | None = None) -> Any:
        inputs = {"type": "token", "prompt_token_ids": tokens}
        return self._release.sequence.Sequence(seq, inputs, self.config.block_size, None, adapter)

    def cancel(self, request: Request) -> None:
        self.scheduler.abort_seq_group(str(request.number))
        self._note_end(request.number)

    def _note_end(self, number: int) -> None:
        """Keep how a request ended: the status of its sequence."""
        name = self._groups.pop(number).first_seq.status.name
        self.ends[number] = END_OF.get(name, name)

    def next_step(self) -> tuple[Any, ScheduledStep]:
        self._served.clear()
        metadata, outputs, _ = self.scheduler.schedule()
        groups = list(outputs.scheduled_seq_groups)
        computed = [list(data.computed_block_nums or ()) for data in metadata]
        chunks = [self._chunk(group, blocks) for group, blocks in zip(groups, computed, strict=True)]
        order = {seq: number for number, seq in enumerate(self._served)}
        chunks.sort(key=lambda chunk: order.get(chunk.seq, -1))
        ignored = [int(group.request_id) for group in outputs.ignored_seq_groups]
        for number in ignored:
            self._note_end(number)
        prompts = [
            group.seq_group.first_seq.seq_id for group, one in zip(groups, metadata, strict=True) if one.is_prompt
        ]
        swaps = outputs.blocks_to_swap_in, outputs.blocks_to_swap_out
        return groups, ScheduledStep(chunks, *swaps, outputs.blocks_to_copy, ignored, prompts=prompts)

    def _chunk(self, scheduled: Any, computed: list[int]) -> Chunk:
        """What the model runner computes of a group: a prompt starts after the blocks that are computed, if it can."""
        seq = scheduled.seq_group.first_seq
        done = seq.data.get_num_computed_tokens()
        stop = done + scheduled.token_chunk_size if seq.is_prefill() else seq.get_len()
        start, hit = stop - scheduled.token_chunk_size, 0
        if seq.is_prefill() and computed:
            cached = len(computed) * self.config.block_size
            start = max(start, min(cached, stop - 1))
            hit = 0 if done else cached
        return Chunk(seq.seq_id, start, stop, hit)

    def take_results(self, output: Any, sampled: dict[int, int], finished: list[int]) -> None:
        for scheduled in output:
            group = scheduled.seq_group
            group.update_num_computed_tokens(scheduled.token_chunk_size)
            seq = group.first_seq
            if seq.seq_id in sampled:
                token = sampled[seq.seq_id]
                seq.append_token_id(token, {token: StubObject(logprob=0.0)})
            if seq.seq_id in finished:
                seq.status = self._release.sequence.SequenceStatus.FINISHED_STOPPED
                self.scheduler.free_seq(seq)
                del self._groups[int(group.request_id)]
        self.scheduler.free_finished_seq_groups()

    def observe(self) -> Observation:
        encoders = {name: seq for name, seq in self._encoders.items() if name in self._manager.cross_block_tables}
        return observation_of(self._manager, self._pools, self.config, encoders)
