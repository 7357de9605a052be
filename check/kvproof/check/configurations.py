"""Configurations drawn anew for each run: most faults need one flag, so each is on in at least a fifth of the runs."""

from random import Random
from typing import Any

from kvproof.check.subject import Capabilities, Config

BLOCK_SIZES = (1, 2, 2, 3, 4)
NUM_BLOCKS_MIN, NUM_BLOCKS_MAX = 3, 16


def draw(random: Random, capabilities: Capabilities, fixed: dict[str, Any] | None = None) -> Config:
    """A configuration that a subject with these capabilities should accept; `fixed` fields are kept."""
    pick, caps, fixed = random.choice, capabilities, fixed or {}
    block_size = fixed.get("block_size", pick(BLOCK_SIZES))
    drawn: dict[str, Any] = {"block_size": block_size, "num_gpu_blocks": random.randint(NUM_BLOCKS_MIN, NUM_BLOCKS_MAX)}
    drawn["caching"] = caps.caching and random.random() < 0.6
    if caps.swap and random.random() < 0.5:
        drawn["num_host_blocks"] = random.randint(1, NUM_BLOCKS_MAX)
    if caps.watermark:
        drawn["watermark"] = pick((0.0, 0.0, 0.1, 0.2, 0.34))
    if caps.waiting_groups:
        drawn["group_size"] = pick((1, 1, 1, 2))
    if caps.lookahead:
        drawn["lookahead"] = pick((0, 0, 0, 1, 2, 5))
    drawn["chunked"] = caps.chunked and random.random() < 0.5
    window = random.randint(1, 3 * block_size + 1) if caps.window and random.random() < 0.3 else None
    drawn["window"] = window
    drawn["keys"] = pick((1, 1, 2, 3)) if caps.adapters else 1
    drawn["images"] = caps.images and random.random() < 0.3
    drawn["cross"] = caps.cross and random.random() < 0.25
    drawn |= fixed
    return Config(**settled(drawn, caps, fixed))


def settled(drawn: dict[str, Any], caps: Capabilities, fixed: dict[str, Any]) -> dict[str, Any]:
    """Give way where two drawn flags exclude each other; what is fixed stays."""
    if drawn["window"] and drawn["caching"] and not caps.window_with_caching:
        drawn["window" if "caching" in fixed else "caching"] = None if "caching" in fixed else False
    if drawn["cross"] and (drawn["window"] or drawn["caching"]):
        if fixed.get("cross"):
            drawn["window"], drawn["caching"] = None, False
        else:
            drawn["cross"] = False
    if drawn["keys"] == 3 and not caps.salts:
        drawn["keys"] = 2
    return drawn
