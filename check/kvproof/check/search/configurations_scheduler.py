"""Configurations of the loop, drawn anew for each run: those of the manager, and the budgets around it."""

from dataclasses import asdict, fields
from random import Random
from typing import Any

from kvproof.check.oracle.firing import NUM_ENTRIES_MAX
from kvproof.check.protocol.manager import Capabilities, Config
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.search import configurations

NUM_ENTRIES_FOR_TOKENS_MAX = NUM_ENTRIES_MAX - 10  # the rest is for lookahead
OF_THE_MANAGER = frozenset(field.name for field in fields(Config))


def draw(random: Random, capabilities: Capabilities, fixed: dict[str, Any] | None = None) -> SchedulerConfig:
    """A configuration that a scheduler with these capabilities should accept; `fixed` fields are kept."""
    pick, fixed = random.choice, fixed or {}
    of_the_manager = {name: value for name, value in fixed.items() if name in OF_THE_MANAGER}
    drawn = asdict(configurations.draw(random, capabilities, of_the_manager))
    num_entries = drawn["num_gpu_blocks"] // len(drawn["kv_groups"]) + 1
    longest = drawn["block_size"] * min(num_entries, NUM_ENTRIES_FOR_TOKENS_MAX)
    drawn["max_model_len"] = pick((longest, longest, random.randint(1, longest)))
    drawn["max_num_seqs"] = pick((1, 2, 4, 8, 16))
    if capabilities.transfers:
        drawn["transfers"] = pick((False, False, True))
    if capabilities.async_steps and not drawn.get("transfers"):
        drawn["async_steps"] = pick((0, *range(1, capabilities.async_steps + 1)))
    if capabilities.forks_itself:
        drawn["group_size"] = pick((1, 1, 2, 3))
    drawn["preemption"] = pick(("auto", "auto", "auto", "recompute", "swap")) if capabilities.swap else "auto"
    drawn |= fixed
    if drawn.get("transfers"):
        drawn |= {"window": None, "kv_groups": ("full",), "async_steps": 0} | fixed
    if drawn.get("async_steps"):
        drawn |= {"group_size": drawn["group_size"] if capabilities.forks_itself else 1, "cross": False}
    least = drawn["max_num_seqs"]
    if not drawn["chunked"]:
        least = max(least, drawn["max_model_len"])
    drawn["max_num_batched_tokens"] = least + pick((0, 0, 1, 3, 8, 40))
    drawn |= fixed
    return SchedulerConfig(**drawn)
