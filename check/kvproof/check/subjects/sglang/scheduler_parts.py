"""Puts SGLang's scheduler together, without its constructor, which starts a model and processes.

What the constructor sets is set here where the scheduler reads it. The batch result processor, the observer of the
pools and the invariant checker are the release's own; they are made of the scheduler's attributes.
"""

import dataclasses
from collections import deque
from functools import cache
from typing import Any

from kvproof.check.protocol.fault_attribution import StandInError
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.subjects.loading.stub_modules import StubObject, no, nothing
from kvproof.check.subjects.sglang.scheduler_fakes import VOCABULARY, Figures, NoSpeculation, Outputs
from kvproof.check.subjects.sglang.scheduler_loader import MEM_CACHE, pool_of, tree_of
from kvproof.check.subjects.sglang.scheduler_loader import PARTS as COMPONENTS
from kvproof.check.subjects.sglang.scheduler_settings import CURRENT, TURNED, Settings
from kvproof.check.subjects.sglang.windows import shares_of, window_pool_of
from kvproof.spec.text.budgets import PRIORITY


def zero(*arguments: Any, **options: Any) -> int:
    """A number that is always zero."""
    return 0


def yes(*arguments: Any, **options: Any) -> bool:
    """An answer that is always yes."""
    return True


def first(value: Any, *arguments: Any, **options: Any) -> Any:
    """The first argument unchanged: a batch that needs no more preparation."""
    return value


MODEL = StubObject(
    vocab_size=VOCABULARY,
    is_encoder_decoder=False,
    is_generation=True,
    self_opened_think_start_ids=None,
    think_end_id=None,
    think_end_ids=None,
)
SPECULATION = NoSpeculation()
OPTIONS = {  # that are not the release's defaults
    "disaggregation_mode": "null",
    "schedule_conservativeness": 0.3,  # as servers are set that shall admit much, and retract some
    "schedule_low_priority_values_first": True,
    "decode_log_interval": 1 << 30,
}
ALONE = StubObject(maybe_prepare_mlp_sync_batch=first, maybe_convert_decode_to_extend=first)
BEAMS = StubObject(pending_member_rows=zero, commit_decode=lambda batch: set(), retire_group=nothing)


class Missing(StandInError, AttributeError):
    """The scheduler reads an attribute that its constructor sets, and that is not set here."""


@cache
def kind_of(scheduler: Any) -> Any:
    """The class of the scheduler, in which a missing attribute is a fault of kvproof."""

    def missing(self: Any, name: str) -> Any:
        raise Missing(f"the scheduler reads its attribute {name}")

    return type("Scheduler", (scheduler,), {"__getattr__": missing, "__module__": scheduler.__module__})


OFF = (  # options and parts that a plain server lacks: None
    "_pending_chunked_abort_req",
    "chunked_req",
    "cur_batch",
    "cur_batch_for_debug",
    "decode_offload_manager",
    "dllm_config",
    "draft_worker",
    "dynamic_chunk_sizer",
    "full_tokens_per_layer",
    "hisparse_coordinator",
    "last_batch",
    "max_new_tokens_limit",
    "max_queued_requests",
    "metrics_collector",
    "min_free_slots_delayer",
    "mm_receiver",
    "model_worker",
    "prefill_delayer",
    "rust_server",
    "scheduler_stage_metrics",
    "sliding_window_size",
    "swa_tokens_per_layer",
    "truncation_align_size",
)
NO = (  # flags that are off
    "abort_on_priority_when_disabled",
    "enable_continuous_input_polling",
    "enable_dynamic_chunking",
    "enable_fpm",
    "enable_hicache_storage",
    "enable_hierarchical_cache",
    "enable_hisparse",
    "enable_lmcache",
    "enable_lora",
    "enable_overlap_mlx",
    "enable_unified_cache_external_linker",
    "enable_unified_memory",
    "is_hybrid_ssm",
    "is_hybrid_swa",
    "is_mixed_chunk",
    "require_mlp_sync",
    "try_preemption",
    "use_ngram_embedding",
)
ZERO = (
    "_prefill_decode_interval_remaining",
    "forward_ct",
    "max_prefill_bs",
    "prefill_decode_interval",
    "priority_scheduling_preemption_threshold",
    "processed_tokens_counter",
)
PARTS: dict[str, Any] = {
    "beam_coordinator": BEAMS,
    "device": "cpu",
    "dp_attn_adapter": ALONE,
    "grammar_manager": StubObject(has_waiting_grammars=no, abort_requests=nothing),
    "is_generation": True,
    "load_inquirer": StubObject(_get_num_pending_tokens=zero),
    "model_config": MODEL,
    "ngram_embedding_manager": StubObject(prepare_for_forward=first),
    "ps": TURNED,
    "schedule_low_priority_values_first": True,
    "session_controller": StubObject(sessions={}, is_empty=yes),
    "spec_algorithm": SPECULATION,
    "tp_worker": StubObject(model_runner=StubObject(attn_backend=None, prefill_aware_swa=False)),
}


def bare_scheduler(release: StubObject, **given: Any) -> Any:
    """A scheduler of which nothing is set but what is given, and what is off."""
    scheduler = object.__new__(kind_of(release.Scheduler))
    vars(scheduler).update(dict.fromkeys(OFF) | dict.fromkeys(NO, False) | dict.fromkeys(ZERO, 0) | PARTS | given)
    return scheduler


def make_scheduler(release: StubObject, config: SchedulerConfig, outputs: Outputs) -> Any:
    """A scheduler without requests."""
    num_full, num_window = shares_of(config)
    num_tokens, size, window = num_full * config.block_size, config.block_size, (config.window or 0) - 1
    table = release.of[f"{MEM_CACHE}.memory_pool"].ReqToTokenPool(
        config.max_num_seqs, config.max_model_len + 8, "cpu", False
    )
    pool = window_pool_of(release, config) if num_window else pool_of(release, num_tokens, size)
    tree = tree_of(release, config.caching, table, pool, size, window if num_window else None)
    is_ahead, has_priorities = config.async_steps > 0, config.policy == PRIORITY
    chunk = config.max_num_batched_tokens // size * size if config.chunked else None
    settings = Settings(OPTIONS | {"page_size": size, "chunked_prefill_size": chunk or -1}, release.defaults)
    CURRENT.settings, CURRENT.side = (settings,), 0
    scheduler = bare_scheduler(
        release,
        req_to_token_pool=table,
        token_to_kv_pool_allocator=pool,
        tree_cache=tree,
        page_size=size,
        max_total_num_tokens=num_tokens,
        full_tokens_per_layer=num_tokens if num_window else None,
        is_hybrid_swa=num_window > 0,
        sliding_window_size=window if num_window else None,
        swa_tokens_per_layer=num_window * size if num_window else None,
        max_req_len=min(config.max_model_len + 1, num_tokens - 1),
        max_running_requests=config.max_num_seqs,
        max_prefill_tokens=config.max_num_batched_tokens,
        chunked_prefill_size=chunk,
        waiting_queue=[],
        running_batch=release.ScheduleBatch(reqs=[], batch_is_full=False),
        result_queue=deque(),
        server_args=settings,
        enable_overlap=is_ahead,
        enable_skip_finishing_decode=is_ahead,
        enable_priority_scheduling=has_priorities,
        enable_priority_preemption=has_priorities,
        disaggregation_mode=release.modes.NULL,
        metrics_reporter=Figures(),
        output_streamer=outputs,
        ipc_channels=StubObject(send_to_tokenizer=outputs),
    )
    policy = release.of["srt.managers.schedule_policy"].SchedulePolicy
    scheduler.policy = policy("fcfs", tree, False, has_priorities, True)
    tracker = release.of[f"{COMPONENTS}.new_token_ratio_tracker"].NewTokenRatioTracker
    given = (settings,) if hasattr(tracker, "from_server_args") else ()  # up to 0.5.15
    scheduler.new_token_ratio_tracker = (tracker.from_server_args if given else tracker.from_config)(*given)
    scheduler.init_pool_stats_observer()
    processor = release.of[f"{COMPONENTS}.batch_result_processor"].SchedulerBatchResultProcessor
    scheduler.batch_result_processor = _made(processor, scheduler, logprob_result_processor=None)
    scheduler.init_invariant_checker()
    return scheduler


def _made(kind: Any, scheduler: Any, **more: Any) -> Any:
    """A part of the scheduler, a data class whose fields are named like what the scheduler has."""
    names = [one.name for one in dataclasses.fields(kind)]
    return kind(**{name: more[name] if name in more else getattr(scheduler, name) for name in names})
