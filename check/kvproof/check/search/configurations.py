"""Configurations drawn anew for each run: most faults need one flag, so each is on in at least a fifth of the runs."""

from dataclasses import asdict
from random import Random
from typing import Any

import msgspec

from kvproof.check.protocol.manager import FULL, KINDS, WINDOW, Capabilities, Config

BLOCK_SIZES = (1, 2, 2, 3, 4)
KV_GROUPS = ((FULL, WINDOW), (FULL, WINDOW), (WINDOW, FULL), (FULL, WINDOW, WINDOW), (FULL, FULL))
NUM_BLOCKS_MIN, NUM_BLOCKS_MAX = 3, 16

LEAST = {"block_size": 1, "num_gpu_blocks": 1, "num_host_blocks": 0, "window": 1, "lookahead": 0, "group_size": 1}


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
    if caps.kv_groups:
        drawn |= _several_kv_groups(random, drawn, fixed)
    drawn |= fixed
    drawn["kv_groups"] = tuple(drawn.get("kv_groups", (FULL,)))
    return Config(**settled(drawn, caps, fixed))


def _several_kv_groups(random: Random, drawn: dict[str, Any], fixed: dict[str, Any]) -> dict[str, Any]:
    """In half of the configurations, several KV groups; a window if one of them has it, and more blocks."""
    allowed = [g for g in KV_GROUPS if "window" not in fixed or (WINDOW in g) == (fixed["window"] is not None)]
    groups = fixed["kv_groups"] if "kv_groups" in fixed else random.choice((*allowed, *[(FULL,)] * len(allowed)))
    if len(groups) < 2:
        return {"kv_groups": tuple(groups)}
    return {
        "kv_groups": tuple(groups),
        "num_gpu_blocks": random.randint(NUM_BLOCKS_MIN, NUM_BLOCKS_MAX * len(groups)),
        "window": random.randint(1, 3 * drawn["block_size"] + 1) if WINDOW in groups else None,
    }


def check_fixed(fixed: dict[str, Any]) -> None:
    """Raise ValueError unless these fields make a configuration."""
    if foreign := sorted(fixed.keys() - Config.__dataclass_fields__.keys()):
        raise ValueError(
            f"a configuration has no field {foreign[0]!r}; it has {', '.join(Config.__dataclass_fields__)}"
        )
    try:
        config = asdict(msgspec.convert({**asdict(Config()), **fixed}, Config))
    except msgspec.ValidationError as error:
        raise ValueError(f"this makes no configuration: {error}") from None
    for name, least in LEAST.items():
        if config[name] is not None and config[name] < least:
            raise ValueError(f"{name} is at least {least}; {config[name]} was given")
    if not 0 <= config["watermark"] <= 1:
        raise ValueError(f"watermark is a fraction of the GPU blocks, 0 to 1; {config['watermark']} was given")
    if not config["kv_groups"] or not set(config["kv_groups"]) <= set(KINDS):
        raise ValueError(f"kv_groups are of {' or '.join(KINDS)}; {', '.join(config['kv_groups'])} was given")
    if config["keys"] not in (1, 2, 3):
        raise ValueError(f"keys is 1 (nothing), 2 (adapters) or 3 (and salts); {config['keys']} was given")


def settled(drawn: dict[str, Any], caps: Capabilities, fixed: dict[str, Any]) -> dict[str, Any]:
    """Give way where two drawn flags exclude each other; what is fixed stays."""
    if drawn["window"] and drawn["caching"] and not caps.window_with_caching:
        drawn["window" if "caching" in fixed else "caching"] = None if "caching" in fixed else False
    if drawn["cross"] and (drawn["window"] or drawn["caching"] or len(drawn["kv_groups"]) > 1):
        if fixed.get("cross"):
            drawn["window"], drawn["caching"], drawn["kv_groups"] = None, False, (FULL,)
        else:
            drawn["cross"] = False
    if drawn["keys"] == 3 and not caps.salts:
        drawn["keys"] = 2
    return drawn
