"""Configuration of vLLM's V1 scheduler for drafts, and for steps that are under way at once."""

from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.subjects.loading.stub_modules import no
from kvproof.check.subjects.vllm.v1_scheduler_loader import Options

PIPELINED = 2  # steps ahead, at most


def num_stages(config: SchedulerConfig) -> int:
    """The stages of a pipeline that has so many steps under way; the second model runner has one more than stages."""
    return config.async_steps + (not config.staggered) if config.async_steps > 1 else 1


def ngrams(num_tokens: int) -> Options:
    """The configuration of drafts that are looked up in the text so far: they have no model, KV or slots."""
    return Options(
        num_speculative_tokens=num_tokens,
        max_num_new_slots_for_drafting=0,
        use_eagle=no,
        use_eagle_block_drop=no,
        needs_eagle_block_drop=no,
        use_multi_module_mtp=no,
        use_dflash=no,
        use_dspark=no,
        uses_draft_model=no,
    )
