"""Steering around what is found already, so that it does not hide what is not.

A fault that shows itself in most runs ends them before any other can. Its shortest run says which features it needs:
fields of the configuration that are not at their plainest, and kinds of operation that a run can do without. In three
runs of four one such feature of a fault that was found is left out; the fourth is drawn as ever, for a second fault may
need the same features as the first.
"""

from collections.abc import Iterable
from random import Random
from typing import Any

from kvproof.check.subject import Config
from kvproof.spec.trace import Operation

PLAINEST: dict[str, Any] = {
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
}
OPTIONAL = frozenset({"fork", "preempt", "swap_out", "reset", "share", "reuse", "abort"})  # kinds of operation
EVERY = (*PLAINEST, *sorted(OPTIONAL))
EVERY_ONE = frozenset(EVERY)
STEERED = 0.75  # of the runs, for each fault that was found

Features = tuple[str, ...]


def features_of(config: Config, operations: Iterable[Operation]) -> Features:
    """What a run makes use of and could do without: fields of its configuration, and kinds of operation."""
    fields = [name for name, plain in PLAINEST.items() if getattr(config, name, plain) != plain]
    return (*fields, *sorted(OPTIONAL & {operation[0] for operation in operations}))


def left_out(random: Random, found: Iterable[Features]) -> frozenset[str]:
    """Features that the next run leaves out: as few as keep it from meeting most of what was found."""
    avoided = [features for features in found if features and random.random() < STEERED]
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
    return {name: PLAINEST[name] for name in PLAINEST if name in without} | (fixed or {})
