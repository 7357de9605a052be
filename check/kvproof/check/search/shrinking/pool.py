"""A shorter run of a pool that refutes the same property in the same way; see `delta_debugging`."""

from collections.abc import Callable, Iterator
from typing import cast

from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import ManagerSubject
from kvproof.check.protocol.pool import PoolConfig, PoolSubject
from kvproof.check.search.shrinking.delta_debugging import Minimiser
from kvproof.spec.trace import Operation


class PoolMinimiser(Minimiser):
    """Shrinks one counterexample of a pool until a deadline."""

    def simpler(self, operation: Operation) -> Iterator[Operation]:
        """Operations of the same name that say less."""
        match operation:
            case ("take", holder, num_blocks) if num_blocks > 1:
                yield "take", holder, 1
                yield "take", holder, num_blocks - 1
            case ("store" | "reuse" as name, holder, pages):
                yield from ((name, holder, fewer) for fewer in _fewer(pages))
            case ("give", holder, others) if others:
                yield "give", holder
                yield from (("give", holder, others[:at] + others[at + 1 :]) for at in range(len(others)))
            case ("find", pages):
                yield from (("find", fewer) for fewer in _fewer(pages))


def _fewer(pages: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for keep in sorted({1, len(pages) // 2, len(pages) - 1}):
        if 0 < keep < len(pages):
            yield pages[:keep]
    if any(pages):
        yield (0,) * len(pages)


def minimise_pool(
    make: Callable[[], PoolSubject], config: PoolConfig, operations: list[Operation], finding: Finding, seconds: float
) -> tuple[PoolConfig, list[Operation], Finding]:
    """The smallest run found within `seconds` that refutes the same property in the same way."""
    minimiser = PoolMinimiser(cast(Callable[[], ManagerSubject], make), config, list(operations), finding)
    minimiser.run(seconds)
    return cast(PoolConfig, minimiser.config), minimiser.operations, minimiser.finding
