"""The configuration of a scheduler: budgets of a step, limits of a request, and how groups are preempted.

Source: vLLM 0.9, vllm/config.py, SchedulerConfig.
"""

import enum
from dataclasses import dataclass

from .errors import InvalidValueError, require_at_least


class PreemptionMode(enum.StrEnum):
    """How a running group releases its GPU blocks."""

    RECOMPUTE = "recompute"  # its KV is dropped and its tokens are kept; it waits to be computed again
    SWAP = "swap"  # its blocks move to the host


@dataclass(frozen=True)
class SchedulerConfig:
    """Sizes in tokens, except `max_num_seqs` in sequences.

    max_num_batched_tokens: tokens computed in one step. max_num_seqs: sequences on the GPU, and in one step.
    max_model_len: tokens of one sequence; a longer prompt is ignored. num_lookahead_slots: slots that each decode
    gets beyond its known tokens. chunked_prefill_enabled: a prompt may be computed over several steps, together with
    decodes. preemption_mode: None means recompute for a group of one running sequence, swap for one of several; a
    group of several is swapped in any mode, since their shared prompt cannot be recomputed for each alone.
    """

    max_num_batched_tokens: int = 2048
    max_num_seqs: int = 128
    max_model_len: int = 2048
    num_lookahead_slots: int = 0
    chunked_prefill_enabled: bool = False
    preemption_mode: PreemptionMode | None = None

    def __post_init__(self) -> None:
        require_at_least("max_num_seqs", self.max_num_seqs, 1)
        require_at_least("max_model_len", self.max_model_len, 1)
        require_at_least("num_lookahead_slots", self.num_lookahead_slots, 0)
        require_at_least("max_num_batched_tokens", self.max_num_batched_tokens, 1)
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise InvalidValueError(
                "max_num_batched_tokens",
                self.max_num_batched_tokens,
                f"each of max_num_seqs ({self.max_num_seqs}) sequences may decode one token in each step",
            )
        if not self.chunked_prefill_enabled and self.max_num_batched_tokens < self.max_model_len:
            raise InvalidValueError(
                "max_num_batched_tokens",
                self.max_num_batched_tokens,
                f"without chunked prefill a prompt of max_model_len ({self.max_model_len}) tokens is one step",
            )
        if self.preemption_mode is not None and not isinstance(self.preemption_mode, PreemptionMode):
            modes = ", ".join(mode.value for mode in PreemptionMode)
            raise InvalidValueError("preemption_mode", self.preemption_mode, f"it must be None or one of {modes}")
