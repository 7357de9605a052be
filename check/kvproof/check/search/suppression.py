"""Disable features that known failures need, so that these failures do not hide others.

A fault that shows itself in most runs ends them before any other fault can. The shortest run of a finding says which
features it needs: fields of the configuration that are switched on, and kinds of operation that a run can do without.
Every second run disables one such feature of most known failures. The other runs are drawn as before, because the next
fault may need the same features as the last one. Two findings of one property and mechanism are different if one of
them occurs without a feature that the other one needs.
"""

from collections.abc import Iterable
from random import Random
from typing import Any

from kvproof.check.oracle.level import optional_kinds
from kvproof.check.oracle.replay import Counterexample, features_used
from kvproof.check.protocol import features
from kvproof.check.protocol.manager import Config
from kvproof.spec.trace import Operation

SUPPRESSED_RUNS, SUPPRESSED_FAILURES = 0.5, 0.75  # shares: of the runs, and of the known failures in such a run

Features = tuple[str, ...]
KnownFailure = tuple[str, str, Features]  # property, mechanism, and the features of its shortest run


def every_feature() -> Features:
    """The names of all features: fields of the configuration, then kinds of operation."""
    return (*(feature.field for feature in features.in_config_order()), *optional_kinds())


def features_of(config: Config, operations: Iterable[Operation]) -> Features:
    """The features that a run uses and could do without."""
    operations = list(operations)
    used = features_used(config, operations) | {operation[0] for operation in operations}
    return tuple(name for name in every_feature() if name in used)


def unused_features(config: Config, operations: Iterable[Operation]) -> frozenset[str]:
    """The features that a run does not use."""
    return frozenset(every_feature()) - frozenset(features_of(config, operations))


def is_duplicate(known: Iterable[KnownFailure], found: Counterexample) -> bool:
    """Whether a known failure has the finding's property and mechanism, and needs only features of this run."""
    same = [needed for *one, needed in known if tuple(one) == found.kind]
    used = set(features_of(found.config, found.operations)) if same else set[str]()
    return any(used.issuperset(needed) for needed in same)


def disabled_features(random: Random, known: Iterable[KnownFailure]) -> frozenset[str]:
    """The features that the next run disables: as few as keep it from repeating most of the known failures."""
    needed = sorted({names for _, _, names in known if names})
    if not needed or random.random() >= SUPPRESSED_RUNS:
        return frozenset()
    avoided = [names for names in needed if random.random() < SUPPRESSED_FAILURES]
    if not avoided:
        return frozenset()
    every = every_feature()
    shuffled, enabled = [*every], set[str]()
    random.shuffle(shuffled)
    for name in shuffled:
        enabled.add(name)
        if any(enabled.issuperset(names) for names in avoided):
            enabled.remove(name)
    return frozenset(every) - enabled


def plain(fixed: dict[str, Any] | None, disabled: frozenset[str]) -> dict[str, Any] | None:
    """The fixed fields of a configuration, and each disabled feature at the value that switches it off."""
    if not disabled:
        return fixed
    return {f.field: f.off for f in features.in_config_order() if f.field in disabled} | (fixed or {})
