"""One engine of a pair: SGLang's `Scheduler`, without the server around it.

Its constructor starts a server, so `begin` sets what the loop reads, and calls the release's own `init_disaggregation`.
A step is one round of `event_loop_normal_disagg_prefill` or `event_loop_normal_disagg_decode`. DECODE asks its
receivers when it decides, PREFILL its senders when it completes a step.

A block is a page; page 0 is padding, which nobody gets.
"""

import inspect
from array import array
from typing import Any

import torch

from kvproof.check.protocol.fault_attribution import EngineFailure
from kvproof.check.protocol.manager import Observation, Unsupported
from kvproof.check.protocol.pair import DECODE, PREFILL, Offer, PairConfig, PairLoad, PairStep, Reported
from kvproof.check.protocol.scheduler import Chunk
from kvproof.check.protocol.wire import BYTES, Wire
from kvproof.check.subjects.loading.stub_modules import StubObject, no, nothing
from kvproof.check.subjects.sglang.pd_fakes import CURRENT, Settings, Sink, given_to
from kvproof.check.subjects.sglang.pd_wire import Manager

NUM_ROWS, ROW_LENGTH = 16, 128  # requests that run, and tokens of one; beyond any run
VOCABULARY = 10_000
OFF = (  # attributes of the scheduler that are None: each is an option, or a state that is not reached
    "_pending_chunked_abort_req",
    "chunked_req",
    "decode_offload_manager",
    "dllm_config",
    "draft_worker",
    "dynamic_chunk_sizer",
    "enable_decode_hicache",
    "enable_dynamic_chunking",
    "enable_fpm",
    "enable_hicache_storage",
    "enable_hierarchical_cache",
    "enable_hisparse",
    "enable_lmcache",
    "enable_lora",
    "enable_metrics",
    "enable_overlap",
    "enable_overlap_mlx",
    "enable_priority_preemption",
    "enable_priority_scheduling",
    "enable_unified_cache_external_linker",
    "enable_skip_finishing_decode",
    "enable_unified_memory",
    "enable_continuous_input_polling",
    "hisparse_coordinator",
    "is_hybrid_swa",
    "is_mixed_chunk",
    "last_batch",
    "metrics_collector",
    "min_free_slots_delayer",
    "mm_receiver",
    "prefill_delayer",
    "processed_tokens_counter",
    "require_mlp_sync",
    "rust_server",
    "sliding_window_size",
    "truncation_align_size",
)


def its_batch(batch: Any, **options: Any) -> Any:
    """A batch as it is."""
    return batch


class Side:
    """One engine of a pair."""

    def __init__(self, modules: StubObject) -> None:
        self._modules = modules

    # Making it ------------------------------------------------------------------------------------------------------

    def begin(self, side: int, config: PairConfig, wire: Wire) -> None:
        """Make the engine of a side. Raises Unsupported."""
        self.side, self._page, self._num_pages = side, config.slots(side), config.num_blocks(side)
        self.requests: dict[int, Any] = {}
        self._left: set[int] = set()  # whose user has left
        self._loads: list[PairLoad] = []
        self._batch: Any = None
        modules, size = self._modules, (self._num_pages - 1) * self._page
        self.scheduler = scheduler = self._of_ours("Engine", modules.scheduler.Scheduler)
        table = self._table(config)
        pool = self._kv_pool(wire, size)
        allocator = self._allocator(size, pool)
        cache = self._cache(config, table, allocator)
        scheduler.__dict__.update(dict.fromkeys(OFF))
        scheduler.__dict__.update(
            **self._quiet(),
            req_to_token_pool=table,
            token_to_kv_pool_allocator=allocator,
            tree_cache=cache,
            max_total_num_tokens=size,
            chunked_prefill_size=config.max_num_batched_tokens,
            max_prefill_bs=NUM_ROWS,
            max_prefill_tokens=config.max_num_batched_tokens,
            max_running_requests=NUM_ROWS,
            page_size=self._page,
            running_batch=modules.batch.ScheduleBatch(reqs=[], batch_is_full=False),
            server_args=CURRENT.settings[side],
            tp_worker=StubObject(
                is_hybrid_swa=False,
                model_runner=StubObject(
                    attn_backend=None,
                    prefill_aware_swa=False,
                    kv_cache_dtype_str="auto",
                    effective_logical_max_total_num_tokens=size,
                    max_token_pool_size=size,
                ),
            ),
            waiting_queue=[],
        )
        scheduler.init_disaggregation()
        if hasattr(scheduler, "init_batch_result_processor"):
            scheduler.init_beam_coordinator = nothing
            scheduler.init_batch_result_processor()

    def _of_ours(self, name: str, kind: Any, **methods: Any) -> Any:
        """An object of a class of the release, without its constructor. What it lacks is a fault of ours."""
        return object.__new__(type(name, (kind,), {"__module__": __name__} | methods))

    def _quiet(self) -> dict[str, Any]:
        """What a scheduler reports to, and what is off."""
        policy = StubObject(calc_priority=no, shortest_prefill_chunk_limit=nothing)
        return {
            "_prefill_decode_interval_remaining": 0,
            "_engine_paused": False,
            "attn_cp_cpu_group": None,
            "attn_tp_cpu_group": None,
            "attn_tp_group": StubObject(cpu_group=None),
            "attn_tp_rank": 0,
            "attn_tp_size": 1,
            "beam_coordinator": StubObject(
                pending_member_rows=lambda *arguments: 0, retire_group=nothing, commit_decode=lambda batch: set()
            ),
            "device": "cpu",
            "dp_attn_adapter": StubObject(
                maybe_convert_decode_to_extend=its_batch, maybe_prepare_mlp_sync_batch=its_batch
            ),
            "forward_ct": 0,
            "future_map": Sink(),
            "gpu_id": 0,
            "grammar_manager": StubObject(has_waiting_grammars=no, abort_requests=nothing),
            "is_generation": True,
            "kv_checksum_computer": None,
            "kv_shard_widening": 1,
            "load_inquirer": Sink(),
            "metrics_reporter": StubObject(
                enable_metrics=False,
                current_scheduler_metrics_enabled=False,
                num_generated_tokens=0,
                forward_ct_decode=0,
                num_retracted_reqs=0,
                report_prefill_stats=nothing,
                report_decode_stats=nothing,
            ),
            "model_config": StubObject(
                vocab_size=VOCABULARY,
                is_encoder_decoder=False,
                hf_config=StubObject(),
                hf_text_config=StubObject(),
                num_hidden_layers=1,
                num_key_value_heads=1,
                self_opened_think_start_ids=None,
                think_end_id=None,
                think_end_ids=None,
                get_total_num_kv_heads=lambda: 1,
            ),
            "model_worker": Sink(),
            "new_token_ratio_tracker": StubObject(current=0.0, decay_step=nothing, reset=nothing),
            "ngram_embedding_manager": StubObject(prepare_for_forward=its_batch),
            "output_streamer": Sink(),
            "policy": policy,
            "prefill_decode_interval": 0,
            "priority_scheduling_preemption_threshold": 0,
            "random_seed": 0,
            "return_health_check_ipcs": [],
            "scheduler_stage_metrics": Sink(),
            "send_abort_output": nothing,
            "maybe_send_health_check_signal": nothing,
            "spec_algorithm": StubObject(
                is_none=lambda: True,
                is_eagle=no,
                is_dflash=no,
                carries_draft_hidden_states=no,
                build_disagg_draft_input=nothing,
            ),
        }

    def _table(self, config: PairConfig) -> Any:
        """The rows of requests."""
        if self.side == DECODE:
            return self._modules.decode.DecodeReqToTokenPool(NUM_ROWS, ROW_LENGTH, "cpu", False, NUM_ROWS)
        return self._modules.memory.ReqToTokenPool(NUM_ROWS, ROW_LENGTH, "cpu", False)

    def _kv_pool(self, wire: Wire, size: int) -> Any:
        """The release's pool of keys and values of one layer, over the memory of the wire."""
        memories = [wire.memory(self.side, self._num_pages, self._page) for _ in range(2)]
        shape = size + self._page, 1, 1
        tensors = [torch.frombuffer(memory.buffer, dtype=torch.int32).view(shape) for memory in memories]
        sizes = [one.nbytes for one in tensors], [self._page * BYTES] * len(tensors)
        places = [one.data_ptr() for one in tensors], *sizes
        kind = self._modules.memory.MHATokenToKVPool
        pool = self._of_ours("KvPool", kind, get_contiguous_buf_infos=lambda pool: places)
        pool.__dict__.update(
            use_hnd=False,
            size=size,
            page_size=self._page,
            dtype=torch.int32,
            store_dtype=torch.int32,
            device="cpu",
            layer_num=1,
            start_layer=0,
            end_layer=0,
            head_num=1,
            head_dim=1,
            v_head_dim=1,
            k_buffer=tensors[:1],
            v_buffer=tensors[1:],
            enable_custom_mem_pool=False,
            custom_mem_pool=None,
            cpu_offloading_chunk_size=8192,
        )
        return pool

    def _allocator(self, size: int, pool: Any) -> Any:
        kinds = self._modules.allocator
        if self._page == 1:
            return kinds.TokenToKVPoolAllocator(size, torch.int32, "cpu", pool, False)
        if "use_triton_kernels" not in inspect.getsource(kinds.PagedTokenToKVPoolAllocator):
            raise Unsupported("only a triton kernel of this release can allocate pages of several slots")
        return kinds.PagedTokenToKVPoolAllocator(size, self._page, torch.int32, "cpu", pool, False)

    def _cache(self, config: PairConfig, table: Any, allocator: Any) -> Any:
        modules = self._modules.of
        params = modules["srt.mem_cache.cache_init_params"].CacheInitParams(
            not config.caching, table, allocator, self._page
        )
        if modules["srt.mem_cache.unified_cache.tree_core_registry"] is not None:
            params.tree_components = (modules["srt.mem_cache.unified_cache.components"].ComponentType.FULL,)
            return self._modules.unified.UnifiedRadixCache(params)
        if config.caching:
            return modules["srt.mem_cache.radix_cache"].RadixCache(params)
        return modules["srt.mem_cache.chunk_cache"].ChunkCache(params)

    # Requests -------------------------------------------------------------------------------------------------------

    def come(self, request: int, room: int, tokens: list[int], max_tokens: int) -> None:
        """A request comes, for a room."""
        sampling = Settings(
            {"max_new_tokens": max_tokens, "ignore_eos": True, "n": 1, "stop_strs": (), "stop_regex_strs": ()},
            dict.fromkeys(("min_new_tokens", "stop_token_ids", "custom_params", "beam_width", "stop_regex_max_len")),
        )
        self.requests[request] = req = self._modules.batch.Req(
            f"request {request}.",
            "",
            array("q", tokens),
            sampling,
            eos_token_ids=set(),
            bootstrap_host="prefill",
            bootstrap_port=0,
            bootstrap_room=room,
            disagg_mode=self.scheduler.disaggregation_mode,
            vocab_size=VOCABULARY,
        )
        req.tokenizer = None
        self.scheduler._add_request_to_queue(req)

    def abort(self, request: int) -> None:
        """The user of a request leaves."""
        self._left.add(request)
        name = self.requests[request].rid
        self.scheduler.abort_request(StubObject(rid=name, abort_all=False, abort_message=None, finished_reason=None))

    # Steps ----------------------------------------------------------------------------------------------------------

    def decide(self) -> PairStep:
        """The next step."""
        scheduler = self.scheduler
        if self.side == PREFILL:
            scheduler.waiting_queue.extend(scheduler.disagg_prefill_bootstrap_queue.pop_bootstrapped())
            plan = scheduler.get_next_disagg_prefill_batch_to_run(scheduler.running_batch, scheduler.last_batch)
        else:
            scheduler.process_decode_queue()
            received = [self.number_of(req) for req in scheduler.waiting_queue if req.output_ids]
            plan = scheduler.get_next_disagg_decode_batch_to_run(scheduler.running_batch)
        scheduler.running_batch, self._batch = plan.running_batch, plan.batch_to_run
        loads = [self._load(body) for body in self.manager.begun] if self.side == DECODE else []
        self.manager.begun.clear()
        reported = Reported(received if self.side == DECODE else (), (), self._failed())
        return PairStep(self._chunks(), loads, reported)

    @property
    def manager(self) -> Manager:
        """The transport of this side."""
        manager: Manager = CURRENT.managers[self.side]
        return manager

    def number_of(self, req: Any) -> int:
        """The number of a request."""
        return next(number for number, one in self.requests.items() if one is req)

    def _load(self, body: Any) -> PairLoad:
        number, req = next((n, one) for n, one in self.requests.items() if one.bootstrap_room == body.room)
        return PairLoad(number, body.prefix, len(req.origin_input_ids))

    def _chunks(self) -> list[Chunk]:
        batch = self._batch
        if batch is None:
            return []
        chunks = []
        for req in batch.reqs:
            number = self.number_of(req)
            if batch.forward_mode.is_decode():
                stop = len(req.origin_input_ids) + len(req.output_ids)
                chunks.append(Chunk(number, stop - 1, stop, 0))
            else:
                chunks.append(Chunk(number, req.prefix_len, req.extend_end, req.prefix_len))
        return chunks

    def finish(self, sampled: dict[int, int]) -> Reported:
        """The step is executed: each request gets its token, and PREFILL asks its senders."""
        scheduler, batch = self.scheduler, self._batch
        if batch is not None:
            tokens = [sampled.get(self.number_of(req), 0) for req in batch.reqs]
            result = self._modules.results.GenerationBatchResult(next_token_ids=torch.tensor(tokens))
            if self.side == PREFILL:
                scheduler.process_batch_result_disagg_prefill(batch, result)
            else:
                scheduler.batch_result_processor.process_batch_result_decode(batch, result)
        if self.side == PREFILL:
            scheduler.process_disagg_prefill_inflight_queue()
        scheduler.last_batch, self._batch = batch, None
        return Reported((), (), self._failed())

    def _failed(self) -> list[int]:
        """The requests that have ended with an error since the last call; those that hold nothing are forgotten."""
        failed = []
        for number, req in list(self.requests.items()):
            is_over = req.finished_reason is not None or number in self._left
            if is_over and type(req.finished_reason).__name__ == "FINISH_ABORT" and number not in self._left:
                failed.append(number)
                self._left.add(number)
            if is_over and not req.kv.holds_kv and not self._is_queued(req):
                del self.requests[number]
        return failed

    # What it shows --------------------------------------------------------------------------------------------------

    def offer(self, request: int) -> Offer | None:
        """What a request of PREFILL holds for DECODE."""
        req = self.requests.get(request)
        if req is None or req not in self.scheduler.disagg_prefill_inflight_queue:
            return None
        num_tokens = len(req.origin_input_ids)
        return Offer(num_tokens, self._pages(req, num_tokens))

    def _pages(self, req: Any, num_tokens: int) -> list[int]:
        row = self.scheduler.req_to_token_pool.req_to_token.numpy()[req.kv.req_pool_idx, :num_tokens]
        for place, slot in enumerate(row):
            if slot != row[place - place % self._page] + place % self._page:
                raise EngineFailure(f"position {place} of {req.rid} is in slot {slot}, not in its page: {row.tolist()}")
        return [int(slot) // self._page for slot in row[:: self._page]]

    def observe(self) -> Observation:
        """The pool: page 0 is nobody's."""
        tables = {
            number: [self._pages(req, req.kv.kv_allocated_len)]
            for number, req in self.requests.items()
            if req.kv.holds_kv
        }
        scheduler = self.scheduler
        free = scheduler.token_to_kv_pool_allocator.available_size() + scheduler.tree_cache.evictable_size()
        return Observation(tables, (int(free) // self._page, 0), reserved=(0,))

    def _queues(self) -> dict[str, list[Any]]:
        scheduler = self.scheduler
        if self.side == PREFILL:
            return {
                "bootstrap queue": scheduler.disagg_prefill_bootstrap_queue.queue,
                "inflight queue": scheduler.disagg_prefill_inflight_queue,
                "waiting queue": scheduler.waiting_queue,
            }
        prealloc, transfer = scheduler.disagg_decode_prealloc_queue, scheduler.disagg_decode_transfer_queue
        return {
            "prealloc queue": [one.req for one in prealloc.queue],
            "pending requests": [one.req for one in prealloc.pending_reqs],
            "retracted queue": prealloc.retracted_queue,
            "transfer queue": [one.req for one in transfer.queue],
            "deferred releases": [one[0].req for one in getattr(transfer, "_deferred_releases", ())],
            "waiting queue": scheduler.waiting_queue,
            "running batch": scheduler.running_batch.reqs,
        }

    def _is_queued(self, req: Any) -> bool:
        return any(req in queue for queue in self._queues().values())

    def kept(self) -> dict[str, list[str]]:
        """The queues that are not empty, and the rows and slots for metadata that are in use."""
        scheduler = self.scheduler
        found = {name: [req.rid for req in queue] for name, queue in self._queues().items() if queue}
        metadata = scheduler.req_to_metadata_buffer_idx_allocator
        if number := metadata.size - metadata.available_size():
            found["slots for metadata"] = [str(number)]
        table = scheduler.req_to_token_pool
        if number := NUM_ROWS * (1 + self.side) - table.available_size():
            found["rows of requests"] = [str(number)]
        return found


def options_of(modules: StubObject, side: int, config: PairConfig) -> Settings:
    """The options of a side."""
    given = given_to(side, config.slots(side), config.caching, config.max_num_batched_tokens)
    return Settings(given, modules.defaults)
