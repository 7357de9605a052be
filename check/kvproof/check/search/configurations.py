"""Draw a configuration for each run. Most faults need one flag, so each flag is on in at least a fifth of the runs.

`worlds` says how large the pools and blocks are.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from random import Random
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from kvproof.check.oracle.firing import num_entries_max
from kvproof.check.oracle.level import require_possible
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.features import (
    LOCAL_KV_GROUPS,
    NUM_BLOCKS_MAX,
    block_size_within,
    excludes_loads,
    hybrid_kv_groups,
    in_config_order,
    is_windowed,
    window_drawn,
)
from kvproof.check.protocol.manager import FULL, STATE, Config, PromptKeys, common_block_size
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.protocol.suggestion import did_you_mean
from kvproof.check.search.prompts import NUM_TOKENS_MAX
from kvproof.check.search.worlds import NUM_BLOCKS_MIN, Sizes, draw_sizes, has_large_sizes

AnyConfig = TypeVar("AnyConfig", bound=Config)
NUM_ENTRIES_FOR_LOOKAHEAD = 10
VALUES: dict[Any, str] = {  # of a field of a configuration, by its type
    bool: "true or false",
    int: "an integer",
    PromptKeys: "an integer",
    float: "a number",
    str: "a text",
    tuple: "a list",
    NoneType: "none",
}
ENCODER_ROOMS = (3, 4, 6, 8)  # embeddings; the longest image of a small run has three
BESIDE_NO_DRAFTS = "connector", "loads_in_step", "load_failures", "repeated_reports"  # drafts are judged without these
BESIDE_NO_CONNECTOR = "window", "local_chunk", "kv_groups"  # a connector is judged without these
ONE_FULL_GROUP: dict[str, Any] = {"window": None, "local_chunk": None, "kv_groups": (FULL,)}
THEMED_RUNS = 0.25  # share of the runs of a scheduler that has themes
MANAGER_FIELDS = frozenset(field.name for field in fields(Config))


def draw(
    random: Random,
    capabilities: Capabilities,
    fixed: dict[str, Any] | None = None,
    sizes: Sizes = draw_sizes,
) -> Config:
    """A configuration that a subject with these capabilities should accept; `fixed` fields are kept.

    sizes: draws the slots of a block and the number of GPU blocks.
    """
    fixed = fixed or {}
    block_size, num_blocks = sizes(random)
    block_size = block_size_within(block_size, capabilities)
    drawn: dict[str, Any] = {
        "block_size": fixed.get("block_size", common_block_size(fixed.get("kv_groups", ()), block_size)),
        "num_gpu_blocks": fixed.get("num_gpu_blocks", num_blocks),
    }
    for feature in in_config_order():
        is_possible = feature.can_be_had(capabilities)
        drawn[feature.field] = feature.draw(random, drawn, fixed) if is_possible else feature.off
    if drawn["local_chunk"]:
        drawn |= {"window": None, "drafting": False}
        if "kv_groups" not in fixed:
            drawn["kv_groups"] = random.choice(LOCAL_KV_GROUPS) if capabilities.kv_groups else (FULL,)
    if len(groups := drawn["kv_groups"]) > 1:
        drawn["num_gpu_blocks"] = max(num_blocks, random.randint(NUM_BLOCKS_MIN, NUM_BLOCKS_MAX * len(groups)))
        drawn["window"] = window_drawn(random, drawn) if any(map(is_windowed, groups)) else None
    if "kv_groups" not in fixed and (capabilities.block_sizes or capabilities.states):
        drawn |= hybrid_kv_groups(random, drawn, capabilities)
    drawn |= fixed
    drawn["kv_groups"] = tuple(drawn["kv_groups"])
    return with_retention(Config(**settled(drawn, capabilities, fixed)), fixed)


def draw_for_scheduler(
    random: Random, capabilities: Capabilities, fixed: dict[str, Any] | None = None, sizes: Sizes = draw_sizes
) -> SchedulerConfig:
    """A configuration that a scheduler with these capabilities should accept; `fixed` fields are kept."""
    pick, fixed = random.choice, with_theme(random, capabilities, fixed or {})
    manager_fixed = {name: value for name, value in fixed.items() if name in MANAGER_FIELDS}
    config = draw(random, capabilities, manager_fixed, sizes)
    drawn, is_large = asdict(config), has_large_sizes(config)
    num_entries = drawn["num_gpu_blocks"] // len(drawn["kv_groups"]) + 1
    num_most = (num_entries_max(config) - NUM_ENTRIES_FOR_LOOKAHEAD) * min(config.block_sizes)
    longest = min(drawn["block_size"] * num_entries, num_most)
    longest = min(longest, NUM_TOKENS_MAX) if is_large else longest
    held = longest_held(config, longest, capabilities.num_spare) if capabilities.holds_longest else longest
    drawn["max_model_len"] = pick((held, longest if config.window else held, random.randint(1, held)))
    if capabilities.encodes_images:  # such a subject is there for its images
        drawn["images"] = drawn["images"] or pick((False, True, True, True))
    drawn["max_num_seqs"] = pick((1, 8, 16, 32, 64) if is_large else (1, 2, 4, 8, 16))
    if capabilities.transfers:
        drawn["transfers"] = pick((False, False, True))
        drawn["sends_aborted"] = drawn["transfers"] and capabilities.sends_aborted and pick((False, True))
    if capabilities.async_steps:
        drawn["async_steps"] = pick((0, *range(1, capabilities.async_steps + 1)))
    if capabilities.staggers and drawn.get("async_steps", 0) > 1:
        drawn["staggered"] = pick((False, True))
    if capabilities.forks_itself:
        drawn["group_size"] = pick((1, 1, 2, 3))
    drawn["preemption"] = pick(("auto", "auto", "auto", "recompute", "swap")) if capabilities.swap else "auto"
    if len(capabilities.policies) > 1:
        drawn["policy"] = pick(capabilities.policies)
    if capabilities.long_prefills and drawn["chunked"]:
        drawn["long_prefill_threshold"] = pick((0, 0, random.randint(1, drawn["max_model_len"])))
    if capabilities.max_loras and drawn["keys"] != PromptKeys.TOKENS:
        drawn["max_loras"] = pick((0, 0, 1, 2))
    if capabilities.partial_prefills > 1 and drawn["chunked"]:
        drawn["partial_prefills"] = pick((1, *range(1, capabilities.partial_prefills + 1)))
    if capabilities.connectors and not drawn.get("transfers"):
        drawn["connector"] = pick((*(("", "") if capabilities.transfers else ()), *capabilities.connectors))
        if capabilities.hybrid_transfers and not has_connector(fixed, capabilities):
            drawn["connector"] = ""
        drawn["host_slots"] = pick((1, 2, 3, 4, 6, 8, 16))
    if capabilities.speculative_tokens and not any(map(drawn.get, BESIDE_NO_DRAFTS)):
        num_drafts = pick((0, *range(1, capabilities.speculative_tokens + 1)))
        drawn["speculative_tokens"] = pick((0, 0, num_drafts)) if drawn.get("transfers") else num_drafts
    drawn = without_what_excludes(drawn | fixed, capabilities, fixed)
    if drawn.get("async_steps"):
        drawn |= {"group_size": drawn["group_size"] if capabilities.forks_itself else 1, "cross": False}
    if drawn["preemption"] == "swap" and capabilities.swaps_into_room:
        num_entries = -(-(drawn["max_model_len"] + drawn["lookahead"]) // drawn["block_size"])
        num_host_blocks = max(drawn["num_host_blocks"], drawn["max_num_seqs"] * num_entries)
        drawn |= {"chunked": False, "partial_prefills": 1, "num_host_blocks": num_host_blocks} | fixed
    least = max(drawn["max_num_seqs"], 1 + drawn.get("speculative_tokens", 0))
    if not drawn["chunked"]:
        least = max(least, drawn["max_model_len"])
    drawn["max_num_batched_tokens"] = least + pick((0, 3, 40, 256, 2_048) if is_large else (0, 0, 1, 3, 8, 40))
    if drawn.get("transfers") and not drawn.get("speculative_tokens"):
        draw_loads(random, drawn, capabilities, fixed)
    if capabilities.encodes_images and drawn["images"]:
        drawn["encoder_room"] = pick((0, 0, *ENCODER_ROOMS))
    drawn |= between_steps(random, capabilities, drawn, fixed) | fixed
    return with_retention(SchedulerConfig(**drawn), fixed)


BESIDE_NO_SESSIONS: dict[str, Any] = {  # sessions are judged without these
    "transfers": False,
    "sends_aborted": False,
    "loads_in_step": False,
    "repeated_reports": False,
    "load_failures": "",
    "connector": "",
    "speculative_tokens": 0,
    "async_steps": 0,
    "staggered": False,
    "lookahead": 0,
    "drafting": False,
    "images": False,
    "retention": None,
}


def between_steps(
    random: Random, capabilities: Capabilities, drawn: dict[str, Any], fixed: dict[str, Any]
) -> dict[str, Any]:
    """Draw what the engine asks of its scheduler between steps, and what it does without for that."""
    possible = {"pauses": capabilities.pauses, "resets": capabilities.reset, "sessions": capabilities.sessions}
    possible["unpublished"] = capabilities.unpublished
    asked: dict[str, Any] = {}
    for name, can_be_had in possible.items():
        if can_be_had:
            asked[name] = random.choice((False, False, False, True))
    if asked.get("sessions") and not fixed.get("sessions"):
        asked["sessions"] = not any(map(fixed.get, BESIDE_NO_SESSIONS))
    if fixed.get("sessions", asked.get("sessions")):
        asked |= {name: value for name, value in BESIDE_NO_SESSIONS.items() if name in drawn}
    return asked


def with_theme(random: Random, capabilities: Capabilities, fixed: dict[str, Any]) -> dict[str, Any]:
    """The fixed fields and, in some of the runs, features that seldom come together when each is drawn by itself.

    They exclude others, or need several others. A theme that contradicts a fixed field is left out.
    """
    loads = {"transfers": True, "connector": "", "speculative_tokens": 0}
    themes: list[dict[str, Any]] = []
    for policy in capabilities.load_failures:
        fails = loads | ONE_FULL_GROUP | {"load_failures": policy}
        themes.append(fails | {"loads_in_step": False})
        if capabilities.loads_in_step:
            themes.append(fails | {"loads_in_step": True, "caching": True})
    if capabilities.hybrid_transfers and capabilities.states:
        states = {"window": None, "local_chunk": None, "caching": True, "load_failures": ""}
        themes += [loads | states | {"kv_groups": groups} for groups in ((STATE,), (FULL, STATE))]
    if themes and capabilities.speculative_tokens and capabilities.async_steps:
        ahead = {name: random.randint(1, getattr(capabilities, name)) for name in ("speculative_tokens", "async_steps")}
        themes.append({"transfers": False, "connector": ""} | ahead)
    if capabilities.encodes_images and capabilities.long_prefills:  # who runs comes to images while others hold theirs
        short = {"encoder_room": random.choice(ENCODER_ROOMS), "long_prefill_threshold": random.randint(1, 4)}
        themes.append({"images": True, "chunked": True} | short)
    if not themes or random.random() >= THEMED_RUNS:
        return fixed
    theme = random.choice(themes)
    return fixed if any(fixed.get(name, value) != value for name, value in theme.items()) else theme | fixed


def longest_held(config: Config, longest: int, num_more: int = 0) -> int:
    """The longest sequence up to this length for which the pool has blocks in all groups, with some to spare.

    num_more: blocks that the subject keeps in addition.
    """
    num_spare = (
        num_more + 1 if config.kv_groups == (FULL,) and not config.window else num_more + 1 + len(config.kv_groups)
    )

    def num_blocks(num_tokens: int) -> int:
        return sum(-(-(num_tokens + 1) // size) for size in config.block_sizes)

    return max(1, bisect_right(range(1, longest + 1), config.num_gpu_blocks - num_spare, key=num_blocks))


def draw_loads(random: Random, drawn: dict[str, Any], capabilities: Capabilities, fixed: dict[str, Any]) -> None:
    """Draw whether KV is loaded within a step, whether loads fail, and whether they are reported twice.

    Loads within a step fail with one group of full attention only, so half of these configurations have one.
    """

    def is_hybrid() -> bool:
        is_single = len(drawn["kv_groups"]) == 1 and not has_sizes(drawn["kv_groups"])
        return bool(drawn["window"] or drawn["local_chunk"]) or not is_single

    if capabilities.loads_in_step and (capabilities.hybrid_transfers or not is_hybrid()):
        drawn["loads_in_step"] = random.choice((False, False, True))
    if capabilities.repeated_reports:
        drawn["repeated_reports"] = random.choice((False, False, False, True))
    if fixed.get("loads_in_step", drawn.get("loads_in_step")) and is_hybrid():
        drawn |= (ONE_FULL_GROUP if random.random() < 0.5 else {}) | fixed
        if is_hybrid():
            return
    is_windowed = bool(drawn["window"] or drawn["local_chunk"]) and len(drawn["kv_groups"]) == 1
    if capabilities.load_failures and not is_windowed and not has_sizes(drawn["kv_groups"]):
        drawn["load_failures"] = random.choice(("", *capabilities.load_failures))


def without_what_excludes(drawn: dict[str, Any], capabilities: Capabilities, fixed: dict[str, Any]) -> dict[str, Any]:
    """What was drawn for a scheduler, without one of two things that are not judged together; fixed fields stay."""
    if fixed.get("speculative_tokens"):
        drawn |= {"connector": ""} | fixed
    elif any(map(drawn.get, BESIDE_NO_DRAFTS)):
        drawn["speculative_tokens"] = 0
    if drawn.get("connector") and "transfers" not in fixed:
        drawn["transfers"] = drawn["sends_aborted"] = False
    if drawn.get("speculative_tokens") and has_sizes(drawn["kv_groups"]):
        plain = {"window": None, "local_chunk": None, "kv_groups": (FULL,)}
        drawn |= (plain if fixed.get("speculative_tokens") else {"speculative_tokens": 0}) | fixed
    if drawn.get("speculative_tokens") and drawn.get("transfers"):
        drawn |= ONE_FULL_GROUP | {"drafting": False} | fixed
    if capabilities.speculative_tokens and capabilities.lookahead:
        num_drafts = drawn.get("speculative_tokens", 0)
        looks_ahead = num_drafts > 0 and drawn["lookahead"] > 0
        drawn |= {"lookahead": num_drafts * looks_ahead, "drafting": drawn["drafting"] and looks_ahead} | fixed
    is_plain = bool(drawn.get("connector")) and not has_connector(drawn, capabilities)
    if is_plain or (drawn.get("transfers") and not capabilities.hybrid_transfers):
        drawn |= {"window": None, "local_chunk": None, "kv_groups": ("full",)} | fixed
    if drawn.get("connector") and "events" not in fixed:
        drawn["events"] = 0
    return drawn


def has_connector(fields: dict[str, Any], can: Capabilities) -> bool:
    """Whether a connector is judged with the window and the KV groups among these fields."""
    kv_groups = fields.get("kv_groups") or (FULL,)
    if fields.get("local_chunk") or has_sizes(kv_groups):
        return False
    return can.hybrid_connectors or not any(map(fields.get, BESIDE_NO_CONNECTOR)) or tuple(kv_groups) == (FULL,)


def has_sizes(kv_groups: Sequence[str]) -> bool:
    """Whether KV groups have states or name sizes of their blocks."""
    return any(group.startswith(STATE) or ":" in group for group in kv_groups)


def check_fixed(fixed: dict[str, Any], kind: type[Config] = Config) -> None:
    """Raise ValueError unless these fields make a configuration of this kind."""
    if foreign := sorted(fixed.keys() - kind.__dataclass_fields__.keys()):
        known = list(kind.__dataclass_fields__)
        question = did_you_mean(str(foreign[0]), known)
        raise ValueError(f"a configuration has no field {foreign[0]!r}{question}; it has {', '.join(known)}")
    if ":" in "".join(fixed.get("kv_groups", ())) and "block_size" not in fixed:
        fixed = fixed | {"block_size": common_block_size(fixed["kv_groups"], 1)}
    if "keys" in fixed and fixed["keys"] not in [*PromptKeys]:
        raise ValueError(f"keys is 1 (tokens only), 2 (adapters) or 3 (adapters and salts); {fixed['keys']} was given")
    types = get_type_hints(kind)
    for name, value in fixed.items():
        try:
            msgspec.convert(value, types[name])
        except msgspec.ValidationError:
            kinds = get_args(types[name]) if isinstance(types[name], UnionType) else [types[name]]
            words = " or ".join(VALUES[get_origin(one) or one] for one in kinds)
            raise ValueError(f"{name} is {words}; {value!r} was given") from None
    require_possible(msgspec.convert({**asdict(kind()), **fixed}, kind))


def with_retention(config: AnyConfig, fixed: dict[str, Any]) -> AnyConfig:
    """The configuration without a retention that makes no difference; a fixed one stays."""
    return config if config.forgets or "retention" in fixed else replace(config, retention=None)


EXCLUDING = ("window", "caching", "prefixes", "cross")  # fields, and capabilities, of which some exclude others


def settled(drawn: dict[str, Any], caps: Capabilities, fixed: dict[str, Any]) -> dict[str, Any]:
    """Switch off one of two drawn flags that exclude each other; a fixed one stays."""
    if drawn["window"] and drawn["caching"] and not caps.window_with_caching:
        drawn["window" if "caching" in fixed else "caching"] = None if "caching" in fixed else False
    if drawn["prefixes"] and fixed.get("prefixes"):
        drawn["window"], drawn["caching"] = fixed.get("window"), fixed.get("caching", False)
    elif drawn["prefixes"]:
        drawn["prefixes"] = not drawn["window"] and not drawn["caching"]
    if drawn["cross"] and (drawn["window"] or drawn["caching"] or len(drawn["kv_groups"]) > 1):
        if fixed.get("cross"):
            drawn["window"], drawn["caching"], drawn["kv_groups"] = None, False, (FULL,)
        else:
            drawn["cross"] = False
    if "loads" not in fixed and excludes_loads(drawn.__getitem__):
        drawn["loads"] = 0
    if drawn["loads"] > 1 and "chunked" not in fixed:
        drawn["chunked"] = True
    if drawn["events"] and "events" not in fixed and (drawn["embeddings"] or ":" in "".join(drawn["kv_groups"])):
        drawn["events"] = 0  # of prompts without tokens and of blocks of different sizes no events are judged
    if drawn["events"] and "embeddings" not in fixed:
        drawn["embeddings"] = False
    is_plain = not (drawn["window"] or drawn["local_chunk"]) and tuple(drawn["kv_groups"]) == (FULL,)
    if "ranks" not in fixed and not is_plain:
        drawn["ranks"] = 1
    if drawn["keys"] == PromptKeys.ADAPTERS_AND_SALTS and not caps.salts:
        drawn["keys"] = PromptKeys.ADAPTERS
    return drawn
