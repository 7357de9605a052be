"""SGLang's `Scheduler` without the server around it, for one side of a pair.

Its constructor starts a server, and is left out: `new_scheduler` sets what the loops read, and calls the release's own
`init_disaggregation`. The pool of keys and values is the release's too, over the memory of the wire.
"""

from typing import Any

import torch

from kvproof.check.protocol.pair import DECODE, SIDE_NAMES, PairConfig
from kvproof.check.protocol.wire import BYTES, Wire
from kvproof.check.subjects.loading.stub_modules import StubObject, nothing
from kvproof.check.subjects.sglang.scheduler_fakes import Figures, Outputs
from kvproof.check.subjects.sglang.scheduler_loader import DISAGGREGATION, MEM_CACHE, pool_of, tree_of
from kvproof.check.subjects.sglang.scheduler_parts import MODEL, bare_scheduler, first
from kvproof.check.subjects.sglang.scheduler_settings import CURRENT, Settings

NUM_ROWS, ROW_LENGTH = 16, 128  # requests that run, and tokens of one; beyond any run
OFF = (  # attributes of a scheduler of a pair that are None: each is an option, or a state that is not reached
    "_chunked_req_scheduled_last_iter",
    "_engine_paused",
    "attn_cp_cpu_group",
    "attn_tp_cpu_group",
    "dp_rank",
    "enable_decode_hicache",
    "enable_lora_overlap_loading",
    "enable_metrics",
    "enable_overlap",
    "enable_priority_preemption",
    "enable_priority_scheduling",
    "enable_skip_finishing_decode",
    "kv_checksum_computer",
    "lora_drainer",
)
ZERO = (  # ranks, and figures that up to 0.5.12 are the scheduler's own
    "attn_dp_rank",
    "attn_tp_rank",
    "forward_ct_decode",
    "gpu_id",
    "min_new_token_ratio",
    "new_token_ratio",
    "new_token_ratio_decay",
    "num_generated_tokens",
    "num_retracted_reqs",
    "pp_rank",
    "random_seed",
    "tp_rank",
)
ONE = ("attn_tp_size", "kv_shard_widening", "pp_size", "tp_size")
SAYS_NOTHING = (  # methods whose answers nobody needs, most of them the scheduler's own up to 0.5.12
    "_get_num_pending_tokens",
    "maybe_send_health_check_signal",
    "report_decode_stats",
    "report_prefill_stats",
    "send_abort_output",
    "stream_output",
)


def new_scheduler(release: StubObject, side: int, config: PairConfig, wire: Wire) -> Any:
    """A scheduler with an empty pool. Raises Unsupported."""
    page = config.slots(side)
    size = (config.num_blocks(side) - 1) * page
    table = _table(release, side)
    pool = pool_of(release, size, page, torch.int32, _kv_pool(release, config, side, wire))
    outputs, policy = Outputs(), release.of["srt.managers.schedule_policy"].SchedulePolicy
    sizes = dict.fromkeys(
        ("effective_logical_max_total_num_tokens", "effective_max_total_num_tokens", "max_token_pool_size"), size
    )
    runner = StubObject(attn_backend=None, prefill_aware_swa=False, kv_cache_dtype_str="auto", **sizes)
    tree = tree_of(release, config.caching, table, pool, page)
    plain = dict.fromkeys(OFF) | dict.fromkeys(ZERO, 0) | dict.fromkeys(ONE, 1) | dict.fromkeys(SAYS_NOTHING, nothing)
    scheduler = bare_scheduler(
        release,
        **plain,
        attn_tp_group=StubObject(cpu_group=None),
        chunked_prefill_size=config.max_num_batched_tokens,
        future_map=StubObject(stash=nothing),
        ipc_channels=StubObject(send_to_tokenizer=outputs),
        max_prefill_bs=NUM_ROWS,
        max_prefill_tokens=config.max_num_batched_tokens,
        max_running_requests=NUM_ROWS,
        max_total_num_tokens=size,
        maybe_prepare_mlp_sync_batch=first,  # up to 0.5.12 it is the scheduler's own
        metrics_reporter=Figures(),
        model_config=ONE_LAYER,
        new_token_ratio_tracker=StubObject(current=0.0, decay_step=nothing, reset=nothing),
        output_streamer=outputs,
        page_size=page,
        policy=policy("fcfs", tree, False, False, True),
        req_to_token_pool=table,
        return_health_check_ipcs=[],
        running_batch=release.ScheduleBatch(reqs=[], batch_is_full=False),
        send_to_tokenizer=outputs,
        server_args=CURRENT.settings[side],
        token_to_kv_pool_allocator=pool,
        tp_worker=StubObject(is_hybrid_swa=False, model_runner=runner),
        tree_cache=tree,
        waiting_queue=[],
    )
    scheduler.init_disaggregation()
    if hasattr(scheduler, "init_batch_result_processor"):
        scheduler.init_beam_coordinator = nothing
        scheduler.init_batch_result_processor()
    return scheduler


ONE_LAYER = StubObject(
    **vars(MODEL),
    is_matryoshka=False,
    is_hybrid_swa=False,
    hf_config=StubObject(),
    hf_text_config=StubObject(),
    num_hidden_layers=1,
    num_key_value_heads=1,
    get_total_num_kv_heads=lambda: 1,
)


def _table(release: StubObject, side: int) -> Any:
    """The rows of requests."""
    if side == DECODE:
        return release.of[f"{DISAGGREGATION}.decode"].DecodeReqToTokenPool(NUM_ROWS, ROW_LENGTH, "cpu", False, NUM_ROWS)
    return release.of[f"{MEM_CACHE}.memory_pool"].ReqToTokenPool(NUM_ROWS, ROW_LENGTH, "cpu", False)


def _kv_pool(release: StubObject, config: PairConfig, side: int, wire: Wire) -> Any:
    """The release's pool of keys and values of one layer, over the memory of the wire."""
    page, num_pages = config.slots(side), config.num_blocks(side)
    memories = [wire.memory(side, num_pages, page) for _ in range(2)]
    shape = num_pages * page, 1, 1
    tensors = [torch.frombuffer(memory.buffer, dtype=torch.int32).view(shape) for memory in memories]
    sizes = [one.nbytes for one in tensors], [page * BYTES] * len(tensors)
    places = [one.data_ptr() for one in tensors], *sizes
    kind = release.of[f"{MEM_CACHE}.memory_pool"].MHATokenToKVPool
    methods = {"__module__": __name__, "get_contiguous_buf_infos": lambda pool: places}
    pool: Any = object.__new__(
        type("KvPool", (kind,), methods)
    )  # without its constructor; what it lacks is a fault of ours
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


def options_of(release: StubObject, side: int, config: PairConfig) -> Settings:
    """The options of a side that are not the release's defaults."""
    given = {
        "disaggregation_mode": SIDE_NAMES[side],
        "disaggregation_transfer_backend": "mooncake",
        "disaggregation_decode_enable_radix_cache": config.caching and side == DECODE,
        "disaggregation_decode_retraction_backup": "cpu_tensor",
        "disable_radix_cache": not config.caching,
        "page_size": config.slots(side),
        "chunked_prefill_size": config.max_num_batched_tokens,
        "max_prefill_tokens": config.max_num_batched_tokens,
        "num_reserved_decode_tokens": 1,
    }
    return Settings(given, release.defaults)
