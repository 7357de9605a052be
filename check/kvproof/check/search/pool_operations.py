"""The operations of a random run of a pool: holders come and go over few blocks and pages, so that pools fill."""

from random import Random
from typing import Any

from kvproof.check.oracle.pool import PoolJudge
from kvproof.check.protocol.manager import Capabilities
from kvproof.check.protocol.pool import PoolConfig, PoolSubject
from kvproof.spec.trace import Operation

RUN_LENGTH = 60
NUM_BLOCKS_MIN, NUM_BLOCKS_MAX = 3, 16
NUM_HOLDERS_MAX = 8
ALONE_SHARE = 0.7  # of the holders that give up
WEIGHTS = {  # holders end less often than they begin, so that pools fill
    "take": (0.3, 1.0),
    "store": (0.3, 1.0, 2.0),
    "find": (0.0, 0.3),
    "reuse": (0.5, 1.0, 2.0),
    "share": (0.3, 1.0),
    "give": (0.3, 0.6, 1.0),
    "forget": (0.0, 0.05),
}


def draw_config(random: Random, capabilities: Capabilities, fixed: dict[str, Any] | None = None) -> PoolConfig:
    """A configuration that the pool should accept; `fixed` fields are kept."""
    drawn: dict[str, Any] = {
        "num_gpu_blocks": random.randint(NUM_BLOCKS_MIN, NUM_BLOCKS_MAX),
        "caching": capabilities.caching and random.random() < 0.7,
    }
    return PoolConfig(**(drawn | (fixed or {})))


class PoolOperations:
    """Draws the operations of one run."""

    def __init__(
        self, subject: PoolSubject, random: Random, config: PoolConfig, without: frozenset[str] = frozenset()
    ) -> None:
        self.random, self.config = random, config
        self.judge = PoolJudge(subject, config)
        self.weights = {kind: random.choice(choices) for kind, choices in WEIGHTS.items()}
        self.weights |= dict.fromkeys(without & self.weights.keys(), 0.0)
        self.num_values = random.choice((1, 2, 2, 3))
        self.longest = max(1, min(config.num_gpu_blocks + 1, random.choice((2, 4, 8))))
        self.num_holders = 0
        self.lists: list[tuple[int, ...]] = []

    def run(self, operations: list[Operation], length: int) -> None:
        """Draw and apply so many operations, keeping those that were enabled."""
        for _ in range(length):
            operation = self.draw()
            operations.append(operation)
            if not self.judge.apply(operation):
                operations.pop()

    def draw(self) -> Operation:
        """The next operation."""
        random, holders = self.random, list(self.judge.holders)
        kinds = ["find", "forget"]
        if len(holders) < NUM_HOLDERS_MAX:
            kinds += ["take", "store", "reuse"]
        if holders:
            kinds.append("give")
        if holders and len(holders) < NUM_HOLDERS_MAX:
            kinds.append("share")
        kind = random.choices(kinds, [self.weights[kind] + 1e-9 for kind in kinds])[0]
        if kind == "give":
            first = random.choice(holders)
            if len(holders) < 2 or random.random() < ALONE_SHARE:
                return kind, first
            others = [holder for holder in holders if holder != first]
            return kind, first, tuple(random.sample(others, random.randint(1, min(2, len(others)))))
        if kind == "find":
            return kind, self._pages()
        if kind == "forget":
            return (kind,)
        self.num_holders += 1
        if kind == "share":
            return kind, random.choice(holders), self.num_holders
        if kind == "take":
            return kind, self.num_holders, random.randint(1, self.longest)
        return kind, self.num_holders, self._pages()

    def _pages(self) -> tuple[int, ...]:
        """A list of pages that may begin like an earlier one."""
        random = self.random
        pages = list(random.choice(self.lists)) if self.lists and random.random() < 0.7 else []
        if random.random() < 0.5:
            pages = pages[: random.randint(0, len(pages))]
        if not pages or random.random() < 0.5:
            pages += [random.randrange(self.num_values) for _ in range(random.randint(1, self.longest))]
        pages = pages[: self.config.num_gpu_blocks + 1]
        if len(self.lists) < 6:
            self.lists.append(tuple(pages))
        return tuple(pages)
