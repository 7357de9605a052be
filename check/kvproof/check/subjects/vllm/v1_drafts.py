"""Configuration of vLLM's V1 scheduler for drafts, and for steps that are under way at once."""

from kvproof.check.protocol.manager import Unsupported
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.subjects.loading.stub_modules import no
from kvproof.check.subjects.vllm.v1_scheduler_loader import Options, yes

PIPELINED = 2  # steps ahead, at most


def num_stages(config: SchedulerConfig) -> int:
    """The stages of a pipeline that has so many steps under way; the second model runner has one more than stages."""
    return config.async_steps + (not config.staggered) if config.async_steps > 1 else 1


def require_slots_of_drafts(config: SchedulerConfig) -> None:
    """Raise Unsupported unless slots are looked ahead for each draft, or for none; with `drafting`, for each."""
    if config.lookahead not in ((config.speculative_tokens,) if config.drafting else (0, config.speculative_tokens)):
        raise Unsupported("there are as many lookahead slots as drafts, or none")


def blocks_of_drafts(config: SchedulerConfig) -> int:
    """The blocks of one step of a sequence with drafts; from 0.31 on a load leaves them free, also of an idle pool."""
    num_tokens = 1 + config.speculative_tokens + config.lookahead if config.speculative_tokens else 0
    return sum(-(-num_tokens // size) for size in config.block_sizes)


def drafting(config: SchedulerConfig) -> Options | None:
    """The configuration of drafts.

    Without lookahead slots they are looked up in the text so far: there is no model, KV or slot. With these, a draft
    model makes them, and with `drafting` it is EAGLE.
    """
    if not config.speculative_tokens:
        return None
    is_eagle, is_another = (yes, no) if config.drafting else (no, yes if config.lookahead else no)
    return Options(
        num_speculative_tokens=config.speculative_tokens,
        max_num_new_slots_for_drafting=0,
        use_eagle=is_eagle,
        use_eagle_block_drop=is_eagle,
        needs_eagle_block_drop=is_eagle,
        use_multi_module_mtp=no,
        use_dflash=no,
        use_dspark=no,
        uses_draft_model=is_another,
    )
