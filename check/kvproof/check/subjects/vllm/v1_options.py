"""What vLLM's V1 scheduler reads of the engine's configuration. The classes of the release are not needed for it."""

from typing import Any

from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.subjects.vllm.v1_drafts import drafting, num_stages
from kvproof.check.subjects.vllm.v1_scheduler_loader import Options
from kvproof.check.subjects.vllm.v1_states import STATE_MODES


def options_of(config: SchedulerConfig, length: int, transfers: Options | None) -> Options:
    """The configuration; every option that is not given is off.

    length: of the longest sequence, in tokens. transfers: the part about the KV connector, if there is one.
    """
    return Options(
        scheduler_config=Options(
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            max_model_len=length,
            policy=config.policy,
            async_scheduling=config.async_steps > 0,
            chunked_prefill_enabled=config.chunked,
            enable_chunked_prefill=config.chunked,
            long_prefill_token_threshold=config.long_prefill_threshold,
            prefill_schedule_interval=1,
            watermark=0.0,
            scheduler_reserve_full_isl=True,
        ),
        cache_config=Options(
            num_gpu_blocks=config.num_gpu_blocks,
            block_size=min(config.block_sizes),  # as the engine core sets it
            enable_prefix_caching=config.caching,
            mamba_cache_mode=STATE_MODES[config.caching],
            enable_mamba_shared_prefix_checkpoint=False,
            prefix_cache_retention_interval=config.retention,
        ),
        model_config=Options(max_model_len=length, runner_type="generate"),
        parallel_config=Options(
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
            pipeline_parallel_size=num_stages(config),
            data_parallel_size=1,
            world_size=1,
            data_parallel_rank=0,
            data_parallel_index=0,
        ),
        aux_output_config=Options(),
        observability_config=Options(per_request_spec_decode_metrics="none"),
        kv_transfer_config=transfers,
        kv_events_config=Options(enable_kv_cache_events=True) if config.events else None,
        lora_config=Options(max_loras=config.max_loras) if config.max_loras else None,
        speculative_config=drafting(config),
        ec_manager_config=Options(get_encoder_cache_manager_obj=lambda: None),
        num_speculative_tokens=config.speculative_tokens,
        use_v2_model_runner=config.staggered,
        num_lookahead_tokens=config.lookahead,
        num_prefill_lookahead_tokens=int(config.drafting),
        num_hash_lookahead_tokens=0,
        max_in_flight_tokens=config.max_num_batched_tokens * (1 + config.async_steps),
        max_concurrent_batches=1 + config.async_steps,
    )


def blocks_for_one(options: Options, config: Any) -> int:
    """Blocks that one sequence of the greatest length takes at most in all groups, as the engine sizes its pool."""
    specs = [group.kv_cache_spec for group in config.kv_cache_groups]
    return sum(-(-spec.max_memory_usage_bytes(options) // spec.page_size_bytes) for spec in specs)
