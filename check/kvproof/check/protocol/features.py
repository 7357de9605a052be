"""The configuration features: one row for each optional field of `Config`.

A feature is a field of the configuration that a run can do without. Its row says how a message names it, which
capability a subject needs for it, how its value is drawn, and which simpler values are tried when a run is shrunk.
Drawing, shrinking, suppression, `--fix` and the checks of an adapter all follow the rows, so a new feature needs one
field in `Config` (with its default: the value that switches the feature off) and one row in `FEATURES`.

`SIZES` are fields that every configuration has. They can be shrunk, but not switched off; so can the settings that a
level adds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, partial
from random import Random
from typing import Any

from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import (
    FULL,
    LOCAL,
    STATE,
    WINDOW,
    Assumption,
    Config,
    PromptKeys,
    Unsupported,
)

NUM_BLOCKS_MAX = 16  # of a configuration that is drawn, on each device and for each KV group
KV_GROUPS = ((FULL, WINDOW), (FULL, WINDOW), (WINDOW, FULL), (FULL, WINDOW, WINDOW), (FULL, FULL))
LONG_WINDOW_SHARE = 1 / 6  # of the windows: those of more than about three blocks
LOCAL_SHARE = 0.2  # of the configurations that can have local attention
STATE_SHARE = 0.2  # of the configurations that can have states
STATES_ALONE_SHARE = 0.3  # of those with states: without another KV group
BLOCK_SIZES_SHARE = 0.4  # of the configurations with several KV groups that can have blocks of different sizes
EVENTS_SHARE = 0.3  # of the configurations with a prefix cache that can have events
LOCAL_KV_GROUPS = ((FULL,), (FULL, LOCAL), (LOCAL, FULL), (FULL, LOCAL, LOCAL))


def rank_of(value: Any) -> float:
    """A number for the value of a setting; the plainest has the smallest."""
    return len(value) if isinstance(value, tuple | list) else 0 if value is None else float(value)


NUM_TRIED_ALL = 20  # of a small number, every smaller one is tried


def smaller_sizes(least: int, size: int) -> Sequence[int]:
    """Sizes to try in the place of a size, the smallest first: all smaller ones, or some if there are many."""
    if size - least <= NUM_TRIED_ALL:
        return range(least, size)
    some = {least, 1, 2, 3, 4, 6, 8, 12, 16, size // 8, size // 4, size // 2, size - size // 4, size - size // 16}
    return sorted(one for one in some | {size - size // 64, size - 1} if least <= one < size)


Fields = Mapping[str, Any]
Draw = Callable[[Random, Fields, Fields], Any]


@dataclass(frozen=True)
class Setting:
    """A field of a configuration that can be shrunk.

    field: its name. simpler: given a configuration, the values to try in its place, the simplest first. least: the
    smallest value that `--fix` accepts, if the value is a number. rank: a number for a value; the plainest has the
    smallest.
    """

    field: str
    simpler: Callable[[Any], Iterable[Any]]
    least: int | None = None
    rank: Callable[[Any], float] = rank_of


@dataclass(frozen=True)
class Feature(Setting):
    """A field of a configuration that a run can do without.

    phrase: what a message calls the feature, to follow "has no". capability: the field of `Capabilities` that a subject
    must have for it. draw: a value, given a source of randomness, the fields drawn so far, which are those before it in
    `Config`, and the fields that the user fixed; it is called only if the subject has the capability. uses: whether a
    value makes use of the feature. argument: the argument of `new` and `add` by which a prompt uses the feature, if the
    configuration only allows it.
    """

    phrase: str = ""
    capability: str = ""
    draw: Draw = lambda random, drawn, fixed: None
    uses: Callable[[Any], bool] = bool
    argument: str = ""

    @property
    def off(self) -> Any:
        """The value that switches the feature off: the default of the field in `Config`."""
        return DEFAULTS[self.field]

    def is_on(self, config: Config) -> bool:
        """Whether the configuration uses the feature, or allows its prompts to."""
        return self.uses(getattr(config, self.field))

    def can_be_had(self, capabilities: Capabilities) -> bool:
        """Whether a subject with these capabilities has the feature."""
        return bool(getattr(capabilities, self.capability))


def one_or_fewer_kv_groups(groups: tuple[str, ...]) -> Iterable[tuple[str, ...]]:
    """Each KV group alone, then all but one, then all with blocks of one size; a group alone names no size."""
    kinds = tuple(group.partition(":")[0] for group in groups)
    if len(groups) > 1:
        yield from ((kind,) for kind in kinds)
        yield from (groups[:at] + groups[at + 1 :] for at in range(len(groups)))
    if kinds != groups:
        yield kinds


def is_windowed(group: str) -> bool:
    """Whether an entry of `kv_groups` is one of a sliding window."""
    return group.startswith(WINDOW)


def hybrid_kv_groups(random: Random, drawn: Fields, can: Capabilities) -> dict[str, Any]:
    """The KV groups that were drawn, and their window; in some configurations one has states, or smaller blocks.

    The smaller blocks are mostly those of a window, which then often needs not all of them between two boundaries.
    """
    groups, block_size, window = list(drawn["kv_groups"]), drawn["block_size"], drawn["window"]
    if drawn["cross"] or drawn["local_chunk"] or (len(groups) == 1 and window):
        return {}
    if can.states and random.random() < STATE_SHARE:
        if len(groups) == 1 or groups.count(FULL) > 1:
            groups[-1:] = [STATE] if random.random() < STATES_ALONE_SHARE else [FULL, STATE]
        else:
            groups.append(STATE)
    smaller = [size for size in range(1, block_size) if block_size % size == 0]
    if can.block_sizes and len(groups) > 1 and smaller and random.random() < BLOCK_SIZES_SHARE:
        windowed = [at for at, group in enumerate(groups) if is_windowed(group)]
        at = random.choice(windowed if windowed and random.random() < 0.7 else range(len(groups)))
        groups[at] += f":{random.choice((smaller[0], random.choice(smaller)))}"
        if at in windowed and random.random() < 0.5:
            window = random.randint(2, block_size)
    return {"kv_groups": tuple(groups), "window": window}


def window_drawn(random: Random, drawn: Fields) -> int:
    """The tokens of a window: up to a little more than three blocks, in some of the configurations up to twelve."""
    tokens = random.randint(1, 3 * drawn["block_size"] + 1)
    return random.randint(tokens, 12 * drawn["block_size"]) if random.random() < LONG_WINDOW_SHARE else tokens


def _group_size_drawn(random: Random, drawn: Fields, fixed: Fields) -> int:
    """Groups of several sequences in a quarter of the configurations, of two in half of these."""
    return random.choice((2, 2, 3, 4)) if random.random() < 0.25 else 1


def _watermark_drawn(random: Random, drawn: Fields, fixed: Fields) -> float:
    """The part of the blocks that is held back, in most configurations; of many blocks it may be as small as 0.01."""
    watermark = random.choice((0.0, 0.0, 0.1, 0.2, 0.34))
    if watermark and drawn["num_gpu_blocks"] > NUM_BLOCKS_MAX:
        return random.choice((watermark, watermark, 0.01, 0.05))
    return watermark


def _local_chunk_drawn(random: Random, drawn: Fields, fixed: Fields) -> int | None:
    """The tokens of a chunk, one to four blocks, in some of the configurations; where a group has it, in all."""
    if "local_chunk" in fixed:
        return fixed["local_chunk"]  # type: ignore[no-any-return]
    groups = fixed.get("kv_groups", (FULL,))
    is_possible = len(groups) == 1 and not fixed.get("window") and not drawn["drafting"]
    if LOCAL not in groups and not (is_possible and random.random() < LOCAL_SHARE):
        return None
    return int(drawn["block_size"]) * random.randint(1, 4)


def _kv_groups_drawn(random: Random, drawn: Fields, fixed: Fields) -> tuple[str, ...]:
    """Several KV groups in half of the configurations; with a windowed group only if the fixed window allows it."""
    if "kv_groups" in fixed:
        return tuple(fixed["kv_groups"])
    allowed = [g for g in KV_GROUPS if "window" not in fixed or (WINDOW in g) == (fixed["window"] is not None)]
    return random.choice((*allowed, *[(FULL,)] * len(allowed)))


def _hash_seed_drawn(random: Random, drawn: Fields, fixed: Fields) -> int:
    """A seed, in some of the configurations with a prefix cache."""
    return random.choice((0, 0, 0, 1, 2, random.randrange(1 << 32))) if drawn["caching"] else 0


def _retention_drawn(random: Random, drawn: Fields, fixed: Fields) -> int | None:
    """In half of the configurations 0: only where a prompt ends or was left. Else at an interval, or everywhere."""
    return random.choice((0, 0, 0, None, drawn["block_size"] * random.randint(1, 4), None))


def _events_drawn(random: Random, drawn: Fields, fixed: Fields) -> int:
    """Events of either mode, in some of the configurations with a prefix cache."""
    return random.choice((1, 2)) if drawn["caching"] and random.random() < EVENTS_SHARE else 0


def _loads_drawn(random: Random, drawn: Fields, fixed: Fields) -> int:
    """In some of the configurations KV comes from elsewhere; in a step of its own, prompts have chunks."""
    return random.choice((0, 0, 0, 1, 2))


def _prefixes_drawn(random: Random, drawn: Fields, fixed: Fields) -> bool:
    """Named prefixes, in half of the configurations without a prefix cache and a window."""
    return not drawn["caching"] and not drawn["window"] and random.random() < 0.5


DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(Config)}

FEATURES: tuple[Feature, ...] = (  # in the order in which shrinking tries them
    Feature(
        "kv_groups",
        lambda config: one_or_fewer_kv_groups(config.kv_groups),
        phrase="several KV groups",
        capability="kv_groups",
        draw=_kv_groups_drawn,
        uses=lambda groups: len(groups) > 1,
    ),
    Feature(
        "drafting",
        lambda config: (False,),
        phrase="drafting",
        capability="drafting",
        draw=lambda random, drawn, fixed: drawn["caching"] and random.random() < 0.3,
    ),
    Feature(
        "group_size",
        lambda config: (1,),
        least=1,
        phrase="groups of several waiting sequences",
        capability="waiting_groups",
        draw=_group_size_drawn,
        uses=lambda size: size > 1,
    ),
    Feature(
        "keys",
        lambda config: [keys for keys in PromptKeys if keys < config.keys],
        phrase="adapters",
        capability="adapters",
        draw=lambda random, drawn, fixed: random.choice((PromptKeys.TOKENS, *PromptKeys)),
        uses=lambda keys: keys > PromptKeys.TOKENS,
        argument="key",
    ),
    Feature(
        "images",
        lambda config: (False,),
        phrase="images",
        capability="images",
        draw=lambda random, drawn, fixed: random.random() < 0.3,
        argument="images",
    ),
    Feature(
        "cross",
        lambda config: (False,),
        phrase="cross-attention",
        capability="cross",
        draw=lambda random, drawn, fixed: random.random() < 0.25,
        argument="encoder",
    ),
    Feature(
        "watermark",
        lambda config: (0.0,),
        phrase="watermark",
        capability="watermark",
        draw=_watermark_drawn,
    ),
    Feature(
        "chunked",
        lambda config: (False,),
        phrase="chunked prompts",
        capability="chunked",
        draw=lambda random, drawn, fixed: random.random() < 0.5,
    ),
    Feature(
        "lookahead",
        lambda config: range(config.lookahead),
        least=0,
        phrase="lookahead",
        capability="lookahead",
        draw=lambda random, drawn, fixed: random.choice((0, 0, 0, 1, 2, 5)),
    ),
    Feature(
        "caching",
        lambda config: (False,),
        phrase="prefix cache",
        capability="caching",
        draw=lambda random, drawn, fixed: random.random() < 0.6,
    ),
    Feature(
        "window",
        lambda config: (None, *smaller_sizes(1, config.window or 1)),
        least=1,
        phrase="sliding window",
        capability="window",
        draw=lambda random, drawn, fixed: window_drawn(random, drawn) if random.random() < 0.3 else None,
    ),
    Feature(
        "local_chunk",
        lambda config: (
            None,
            *(config.block_size * num for num in smaller_sizes(1, (config.local_chunk or 0) // config.block_size)),
        ),
        least=1,
        phrase="chunked local attention",
        capability="local_attention",
        draw=_local_chunk_drawn,
    ),
    Feature(
        "hash_seed",
        lambda config: smaller_sizes(0, config.hash_seed),
        least=0,
        phrase="hash seeds",
        capability="hash_seeds",
        draw=_hash_seed_drawn,
    ),
    Feature(
        "prefixes",
        lambda config: (False,),
        phrase="named prefixes",
        capability="prefixes",
        draw=_prefixes_drawn,
        argument="prefix",
    ),
    Feature(
        "retention",
        lambda config: (
            None,
            *(config.block_size * num for num in smaller_sizes(0, (config.retention or 0) // config.block_size)),
        ),
        least=0,
        rank=lambda interval: 0 if interval is None else 1 + interval,
        phrase="retention of what windows and states read",
        capability="retention",
        draw=_retention_drawn,
        uses=lambda interval: interval is not None,
    ),
    Feature(
        "embeddings",
        lambda config: (False,),
        phrase="prompts that are embeddings",
        capability="embeddings",
        draw=lambda random, drawn, fixed: not (drawn["images"] or drawn["cross"]) and random.random() < 0.2,
    ),
    Feature(
        "ranks",
        lambda config: range(1, config.ranks),
        phrase="context parallelism",
        capability="context_parallel",
        draw=lambda random, drawn, fixed: random.choice((1, 1, 2, 4)) if drawn["block_size"] % 4 == 0 else 1,
        uses=lambda ranks: ranks > 1,
    ),
    Feature(
        "events",
        lambda config: range(config.events),
        least=0,
        phrase="events",
        capability="block_events",
        draw=_events_drawn,
    ),
    Feature(
        "loads",
        lambda config: range(config.loads),
        least=0,
        phrase="KV from elsewhere",
        capability="loads",
        draw=_loads_drawn,
        argument="elsewhere",
    ),
    Feature(
        "num_host_blocks",
        lambda config: smaller_sizes(0, config.num_host_blocks),
        least=0,
        phrase="swapping",
        capability="swap",
        draw=lambda random, drawn, fixed: (
            random.randint(1, max(NUM_BLOCKS_MAX, drawn["num_gpu_blocks"])) if random.random() < 0.5 else 0
        ),
    ),
)
SIZES = (
    Setting("block_size", lambda config: smaller_sizes(1, config.block_size), least=1),
    Setting("num_gpu_blocks", lambda config: smaller_sizes(1, config.num_gpu_blocks), least=1),
)


@cache
def in_config_order() -> tuple[Feature, ...]:
    """The features in the order of their fields."""
    names = list(DEFAULTS)
    return tuple(sorted(FEATURES, key=lambda feature: names.index(feature.field)))


def missing(config: Config, capabilities: Capabilities) -> list[str]:
    """The features that a configuration uses and the capabilities do not have, by their phrases."""
    lacking = [f.phrase for f in in_config_order() if f.is_on(config) and not f.can_be_had(capabilities)]
    if len({*config.block_sizes}) > 1 and not capabilities.block_sizes:
        lacking.append("KV groups with blocks of different sizes")
    if config.has_states and not capabilities.states:
        lacking.append("KV groups with states")
    if config.block_size != block_size_within(config.block_size, capabilities):
        lacking.append(f"blocks of {config.block_size} slot{'s' * (config.block_size > 1)}")
    return lacking


def sizes_assumed(capabilities: Capabilities) -> tuple[Assumption, ...]:
    """What every report says of a subject that cannot have blocks of every size: its judges saw no other."""
    least, most = capabilities.block_size_min, capabilities.block_size_max
    bounds = ([f"at least {least}"] if least > 1 else []) + ([] if most is None else [f"at most {most}"])
    return (Assumption("block-size", f"A block has {' and '.join(bounds)} slots."),) if bounds else ()


def block_size_within(block_size: int, capabilities: Capabilities) -> int:
    """The size that a block can have by the capabilities which is nearest to a size."""
    most = capabilities.block_size_max
    return max(capabilities.block_size_min, block_size if most is None else min(block_size, most))


def require_capable(name: str, config: Config, capabilities: Capabilities) -> None:
    """Raise Unsupported if the configuration uses a feature, or two together, that the capabilities do not have.

    name: the subject, for the message.
    """
    lacking = missing(config, capabilities)
    if config.keys > PromptKeys.ADAPTERS and not capabilities.salts:
        lacking.append("salts")
    if config.window and config.caching and not capabilities.window_with_caching:
        lacking.append("sliding window together with a prefix cache")
    if config.prefixes and (config.window or config.caching):
        lacking.append("named prefixes together with a sliding window or a prefix cache")
    if lacking:
        raise Unsupported(f"{name} has no {', no '.join(lacking)}")
    require_loads(config)


def excludes_loads(value_of: Callable[[str], Any]) -> bool:
    """Whether KV from elsewhere is not judged beside the fields with these values."""
    return value_of("group_size") > 1 or any(map(value_of, ("num_host_blocks", "cross", "prefixes")))


def require_loads(config: Config) -> None:
    """Raise Unsupported if KV from elsewhere is not judged together with the rest of a configuration."""
    if config.loads and excludes_loads(partial(getattr, config)):
        raise Unsupported("KV from elsewhere is judged of single sequences, without swap, encoders and named prefixes")
    if config.loads > 1 and not config.chunked:
        raise Unsupported("where a step loads and computes nothing, a prompt is computed in several steps")


def capabilities_used(config: Config) -> dict[str, Any]:
    """The capabilities of features, each with whether the configuration uses it."""
    return {feature.capability: feature.is_on(config) for feature in FEATURES}
