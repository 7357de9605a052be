"""Steering around what is found already, so that it does not hide what is not.

A fault that shows itself in most runs ends them before any other can. Its shortest run says which features it needs:
fields of the configuration that are not at their plainest, and kinds of operation that a run can do without. Every
second run leaves out one such feature of most faults that were found; the others are drawn as ever, for the next fault
may need the same features as the last. Two findings of one property and mechanism are two if one of them comes without
a feature that the other needs.
"""

from collections.abc import Iterable
from itertools import zip_longest
from random import Random
from typing import Any

from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config
from kvproof.spec.trace import Operation

FEATURE_DEFAULTS: dict[str, Any] = {
    "num_host_blocks": 0,
    "watermark": 0.0,
    "window": None,
    "caching": False,
    "lookahead": 0,
    "chunked": False,
    "group_size": 1,
    "keys": 1,
    "images": False,
    "cross": False,
    "kv_groups": ("full",),
}
OPTIONAL = frozenset(
    {"append", "fork", "free", "preempt", "swap_out", "reset", "share", "reuse", "abort"}
)  # kinds of operation
EVERY = (*FEATURE_DEFAULTS, *sorted(OPTIONAL))
EVERY_ONE = frozenset(EVERY)
STEERED, AVOIDED = 0.5, 0.75  # of the runs; of the faults that were found, in such a run

ALLOWED = ("keys", "images", "cross")
PLAIN = ((None, 0, None), (), None)  # the arguments of a prompt that these are, and where they begin
PROMPTS = {"new": 3, "add": 4}

Features = tuple[str, ...]
KnownFailure = tuple[str, str, Features]  # property, mechanism, and what its shortest run needs


def features_of(config: Config, operations: Iterable[Operation]) -> Features:
    """What a run makes use of and could do without: fields of its configuration, and kinds of operation.

    Keys, images and encoders are what its prompts have, for a configuration only allows them.
    """
    fields = {
        name
        for name, plain in FEATURE_DEFAULTS.items()
        if name not in ALLOWED and getattr(config, name, plain) != plain
    }
    kinds = set()
    for name, *arguments in operations:
        kinds.add(name)
        if name in PROMPTS:
            for feature, (plain, given) in zip(ALLOWED, zip_longest(PLAIN, arguments[PROMPTS[name] :]), strict=True):
                if given and tuple(given) != plain:
                    fields.add(feature)
    return (*(name for name in FEATURE_DEFAULTS if name in fields), *sorted(OPTIONAL & kinds))


def is_duplicate(told: Iterable[KnownFailure], finding: Finding, config: Config, operations: list[Operation]) -> bool:
    """Whether a run shows what is told: the same property and mechanism, with all the features that this needs."""
    kind = finding.kind_of_run(operations)
    same = [features for *one, features in told if tuple(one) == kind]
    return bool(same) and any(set(features_of(config, operations)).issuperset(features) for features in same)


def disabled_features(random: Random, told: Iterable[KnownFailure]) -> frozenset[str]:
    """Features that the next run leaves out: as few as keep it from meeting most of what was told."""
    needed = sorted({features for _, _, features in told if features})
    if not needed or random.random() >= STEERED:
        return frozenset()
    avoided = [features for features in needed if random.random() < AVOIDED]
    if not avoided:
        return frozenset()
    names, kept = [*EVERY], set[str]()
    random.shuffle(names)
    for name in names:
        kept.add(name)
        if any(kept.issuperset(features) for features in avoided):
            kept.remove(name)
    return EVERY_ONE - kept


def plain(fixed: dict[str, Any] | None, without: frozenset[str]) -> dict[str, Any] | None:
    """The fields of a configuration that are kept, with those that are left out at their plainest."""
    if not without:
        return fixed
    return {name: FEATURE_DEFAULTS[name] for name in FEATURE_DEFAULTS if name in without} | (fixed or {})
