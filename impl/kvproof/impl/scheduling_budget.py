"""The token and sequence budgets of one step."""

from .errors import InvalidValueError
from .scheduler_config import SchedulerConfig


class SchedulingBudget:
    """The part of the budgets of one step that is left. Tokens that were hit in the prefix cache cost nothing."""

    __slots__ = ("num_seqs_left", "num_tokens_left")

    def __init__(self, config: SchedulerConfig) -> None:
        self.num_tokens_left = config.max_num_batched_tokens
        self.num_seqs_left = config.max_num_seqs

    def can_schedule(self, num_tokens: int, num_seqs: int) -> bool:
        """Whether this much is left; at least one token is scheduled."""
        return 0 < num_tokens <= self.num_tokens_left and num_seqs <= self.num_seqs_left

    def spend(self, num_tokens: int, num_seqs: int) -> None:
        """Subtract it from the budgets. Raises InvalidValueError if they do not allow it."""
        if not self.can_schedule(num_tokens, num_seqs):
            left = f"{self.num_tokens_left} tokens of {self.num_seqs_left} sequences are left"
            raise InvalidValueError("tokens of sequences", (num_tokens, num_seqs), left)
        self.num_tokens_left -= num_tokens
        self.num_seqs_left -= num_seqs
