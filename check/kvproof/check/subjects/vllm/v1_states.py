"""What the releases of vLLM's V1 scheduler do with states (Mamba), and with KV of several groups from elsewhere."""

import inspect
from typing import Any

from kvproof.check.protocol.manager import Unsupported
from kvproof.check.protocol.scheduler import SchedulerConfig

NOT_VERIFIED = "External KV connector is not verified yet"  # in a scheduler, of transfers with states in a prefix cache
STATE_MODES = "none", "align"  # how states are kept, without and with a prefix cache


def loads_groups(scheduler: Any) -> bool:
    """Whether KV that has arrived may be that of several KV cache groups; a release that cannot takes one apart."""
    arrived = inspect.getsource(scheduler.Scheduler._update_waiting_for_remote_kv)
    return hasattr(scheduler, "SupportsHMA") and "(block_ids,)" not in arrived


def cuts_at_states(scheduler: Any) -> str:
    """The text of the method that cuts chunks where states are kept; empty before 0.15."""
    method = getattr(scheduler.Scheduler, "_mamba_block_aligned_split", None)
    return inspect.getsource(method) if method else ""


def check_states(cuts: str, config: SchedulerConfig) -> None:
    """Raise Unsupported for what a release refuses with states in a prefix cache, by assertions of its own.

    cuts: the text of the method that cuts chunks.
    """
    if not config.caching:
        return
    bounds = config.max_num_batched_tokens, config.long_prefill_threshold or config.block_size
    if "max_prefill_tokens" not in cuts and min(bounds) < config.block_size:
        raise Unsupported("a chunk has room for the block of a state")
    if config.transfers and NOT_VERIFIED in cuts:
        raise Unsupported("transfers with states in a prefix cache")
