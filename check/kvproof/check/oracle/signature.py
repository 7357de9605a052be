"""What a run adds to the identity of the finding in which it ends: the features of the configuration that it uses."""

from collections.abc import Iterable

from kvproof.check.oracle.level import typed
from kvproof.check.protocol import features
from kvproof.check.protocol.manager import Config
from kvproof.spec.trace import Operation


def features_used(config: Config, operations: Iterable[Operation]) -> set[str]:
    """The fields of the configuration that the run uses and could do without.

    Keys, images and encoders are used by prompts; the configuration only allows them.
    """
    used = {f.field for f in features.FEATURES if not f.argument and f.is_on(config)}
    by_argument = {f.argument: f.field for f in features.FEATURES if f.argument}
    for operation in map(typed, operations):
        used.update(field for argument, field in by_argument.items() if operation.has(argument))
    return used
