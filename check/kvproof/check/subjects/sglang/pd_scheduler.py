"""SGLang's `Scheduler` without the server around it, for one side of a pair.

Its constructor starts a server, and is left out: `new_scheduler` sets what the loops read, and calls the release's own
`init_disaggregation`. The pool of keys and values is the release's too, over the memory of the wire.
"""

from typing import Any

import torch

from kvproof.check.protocol.manager import Unsupported
from kvproof.check.protocol.pair import DECODE, PairConfig
from kvproof.check.protocol.wire import BYTES, Wire
from kvproof.check.subjects.loading.stub_modules import StubObject, no, nothing
from kvproof.check.subjects.sglang.pd_fakes import CURRENT, TURNED, Settings, Sink, given_to
from kvproof.check.subjects.sglang.scheduler_parts import OFF_ANYWHERE, first

NUM_ROWS, ROW_LENGTH = 16, 128  # requests that run, and tokens of one; beyond any run
VOCABULARY = 10_000
OFF = (  # attributes of the scheduler that are None: each is an option, or a state that is not reached
    *OFF_ANYWHERE,
    "_chunked_req_scheduled_last_iter",
    "enable_decode_hicache",
    "enable_dynamic_chunking",
    "enable_fpm",
    "enable_hicache_storage",
    "enable_hierarchical_cache",
    "enable_hisparse",
    "enable_lmcache",
    "enable_lora",
    "enable_lora_overlap_loading",
    "enable_metrics",
    "enable_overlap",
    "enable_overlap_mlx",
    "enable_priority_preemption",
    "enable_priority_scheduling",
    "enable_unified_cache_external_linker",
    "enable_skip_finishing_decode",
    "enable_unified_memory",
    "enable_continuous_input_polling",
    "is_hybrid_swa",
    "is_mixed_chunk",
    "lora_drainer",
    "processed_tokens_counter",
    "require_mlp_sync",
)


def of_ours(name: str, kind: Any, **methods: Any) -> Any:
    """An object of a class of the release, without its constructor. What it lacks is a fault of ours."""
    return object.__new__(type(name, (kind,), {"__module__": __name__} | methods))


def new_scheduler(modules: StubObject, side: int, config: PairConfig, wire: Wire) -> Any:
    """A scheduler with an empty pool. Raises Unsupported."""
    page = config.slots(side)
    size = (config.num_blocks(side) - 1) * page
    scheduler = of_ours("Engine", modules.scheduler.Scheduler)
    table = _table(modules, side)
    allocator = _allocator(modules, page, size, _kv_pool(modules, config, side, wire))
    runner = StubObject(
        attn_backend=None,
        prefill_aware_swa=False,
        kv_cache_dtype_str="auto",
        effective_logical_max_total_num_tokens=size,
        effective_max_total_num_tokens=size,
        max_token_pool_size=size,
    )
    scheduler.__dict__.update(dict.fromkeys(OFF))
    scheduler.__dict__.update(
        **_around(),
        req_to_token_pool=table,
        token_to_kv_pool_allocator=allocator,
        tree_cache=_cache(modules, config, page, table, allocator),
        max_total_num_tokens=size,
        chunked_prefill_size=config.max_num_batched_tokens,
        max_prefill_bs=NUM_ROWS,
        max_prefill_tokens=config.max_num_batched_tokens,
        max_running_requests=NUM_ROWS,
        page_size=page,
        running_batch=modules.batch.ScheduleBatch(reqs=[], batch_is_full=False),
        server_args=CURRENT.settings[side],
        tp_worker=StubObject(is_hybrid_swa=False, model_runner=runner),
        waiting_queue=[],
    )
    scheduler.init_disaggregation()
    if hasattr(scheduler, "init_batch_result_processor"):
        scheduler.init_beam_coordinator = nothing
        scheduler.init_batch_result_processor()
    return scheduler


def _around() -> dict[str, Any]:
    """What is around a scheduler."""
    return _reports() | _ranks() | _parts()


def _reports() -> dict[str, Any]:
    """What it reports to, and its figures; some of them, up to 0.5.12, are the scheduler's own."""
    return {
        "forward_ct": 0,
        "ipc_channels": Sink(),
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
        "output_streamer": Sink(),
        "return_health_check_ipcs": [],
        "scheduler_stage_metrics": Sink(),
        "send_abort_output": nothing,
        "new_token_ratio": 0.0,
        "new_token_ratio_decay": 0.0,
        "min_new_token_ratio": 0.0,
        "forward_ct_decode": 0,
        "num_generated_tokens": 0,
        "num_retracted_reqs": 0,
        "send_to_tokenizer": Sink(),
        "_get_num_pending_tokens": nothing,
        "stream_output": nothing,
        "report_prefill_stats": nothing,
        "report_decode_stats": nothing,
        "maybe_send_health_check_signal": nothing,
    }


def _ranks() -> dict[str, Any]:
    """It is alone: no other rank, and no parallelism."""
    return {
        "attn_cp_cpu_group": None,
        "attn_tp_cpu_group": None,
        "attn_tp_group": StubObject(cpu_group=None),
        "attn_tp_rank": 0,
        "attn_tp_size": 1,
        "dp_attn_adapter": StubObject(maybe_convert_decode_to_extend=first, maybe_prepare_mlp_sync_batch=first),
        "gpu_id": 0,
        "kv_shard_widening": 1,
        "ps": TURNED,
        "pp_rank": 0,
        "pp_size": 1,
        "tp_rank": 0,
        "tp_size": 1,
        "attn_dp_rank": 0,
        "dp_rank": None,
        "maybe_prepare_mlp_sync_batch": first,  # up to 0.5.12 it is the scheduler's own
    }


def _parts() -> dict[str, Any]:
    """Its parts that are off, or that belong to the model."""
    policy = StubObject(calc_priority=no, shortest_prefill_chunk_limit=nothing)
    return {
        "_prefill_decode_interval_remaining": 0,
        "_engine_paused": False,
        "beam_coordinator": StubObject(
            pending_member_rows=lambda *arguments: 0, retire_group=nothing, commit_decode=lambda batch: set()
        ),
        "device": "cpu",
        "future_map": Sink(),
        "grammar_manager": StubObject(has_waiting_grammars=no, abort_requests=nothing),
        "is_generation": True,
        "kv_checksum_computer": None,
        "model_config": StubObject(
            vocab_size=VOCABULARY,
            is_encoder_decoder=False,
            is_matryoshka=False,
            is_hybrid_swa=False,
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
        "ngram_embedding_manager": StubObject(prepare_for_forward=first),
        "policy": policy,
        "prefill_decode_interval": 0,
        "priority_scheduling_preemption_threshold": 0,
        "random_seed": 0,
        "spec_algorithm": StubObject(
            is_none=lambda: True,
            is_eagle=no,
            is_dflash=no,
            is_standalone=no,
            supports_spec_v2=no,
            is_ngram=no,
            carries_draft_hidden_states=no,
            build_disagg_draft_input=nothing,
        ),
    }


def _table(modules: StubObject, side: int) -> Any:
    """The rows of requests."""
    if side == DECODE:
        return modules.decode.DecodeReqToTokenPool(NUM_ROWS, ROW_LENGTH, "cpu", False, NUM_ROWS)
    return modules.memory.ReqToTokenPool(NUM_ROWS, ROW_LENGTH, "cpu", False)


def _kv_pool(modules: StubObject, config: PairConfig, side: int, wire: Wire) -> Any:
    """The release's pool of keys and values of one layer, over the memory of the wire."""
    page, num_pages = config.slots(side), config.num_blocks(side)
    memories = [wire.memory(side, num_pages, page) for _ in range(2)]
    shape = num_pages * page, 1, 1
    tensors = [torch.frombuffer(memory.buffer, dtype=torch.int32).view(shape) for memory in memories]
    sizes = [one.nbytes for one in tensors], [page * BYTES] * len(tensors)
    places = [one.data_ptr() for one in tensors], *sizes
    pool = of_ours("KvPool", modules.memory.MHATokenToKVPool, get_contiguous_buf_infos=lambda pool: places)
    pool.__dict__.update(
        use_hnd=False,
        size=(num_pages - 1) * page,
        page_size=page,
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


def _allocator(modules: StubObject, page: int, size: int, pool: Any) -> Any:
    kinds = modules.allocator
    if page == 1:
        return kinds.TokenToKVPoolAllocator(size, torch.int32, "cpu", pool, False)
    if not modules.has_pages:
        raise Unsupported("only a triton kernel of this release can allocate pages of several slots")
    return kinds.PagedTokenToKVPoolAllocator(size, page, torch.int32, "cpu", pool, False)


def _cache(modules: StubObject, config: PairConfig, page: int, table: Any, allocator: Any) -> Any:
    of = modules.of
    params = of["srt.mem_cache.cache_init_params"].CacheInitParams(not config.caching, table, allocator, page)
    if of["srt.mem_cache.unified_cache.tree_core_registry"] is not None:
        params.tree_components = (of["srt.mem_cache.unified_cache.components"].ComponentType.FULL,)
        return modules.unified.UnifiedRadixCache(params)
    return (
        of["srt.mem_cache.radix_cache"].RadixCache(params)
        if config.caching
        else (of["srt.mem_cache.chunk_cache"].ChunkCache(params))
    )


def options_of(modules: StubObject, side: int, config: PairConfig) -> Settings:
    """The options of a side."""
    given = given_to(side, config.slots(side), config.caching, config.max_num_batched_tokens)
    return Settings(given, modules.defaults)
