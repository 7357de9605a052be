"""A shorter run of a pool that refutes the same property in the same way; see `delta_debugging`."""

from collections.abc import Callable
from typing import cast

from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import ManagerSubject
from kvproof.check.protocol.pool import PoolConfig, PoolSubject
from kvproof.check.search.shrinking.delta_debugging import Minimiser
from kvproof.spec.trace import Operation


def minimise_pool(
    make: Callable[[], PoolSubject], config: PoolConfig, operations: list[Operation], finding: Finding, seconds: float
) -> tuple[PoolConfig, list[Operation], Finding]:
    """The smallest run found within `seconds` that refutes the same property in the same way."""
    minimiser = Minimiser(cast(Callable[[], ManagerSubject], make), config, list(operations), finding)
    minimiser.run(seconds)
    return cast(PoolConfig, minimiser.config), minimiser.operations, minimiser.finding
