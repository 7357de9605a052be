"""The operations of a random run of a pool: holders come and go over few blocks and pages, so that pools fill.

In half of the small runs holders mostly share what others have: then one block has many holders, who give it up in one
call or one after another. An allocation mostly fits into what is free, as engines look first; one that does not is
refused, which is asked often enough.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from kvproof.check.oracle.pool import PoolJudge
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.pool import PoolConfig, PoolSubject
from kvproof.check.search.operations_by_kind import DrawnRun, do_nothing
from kvproof.check.search.worlds import NUM_AT_A_TIME, Sizes, draw_sizes, draw_values, has_large_sizes, log_uniform
from kvproof.spec.trace import Operation

RUN_LENGTH = 60
NUM_HOLDERS_MAX = 8  # in a small world
ALONE_SHARES = 0.3, 0.7  # of the holders that give up: those that do so in a call of their own
FITTING_SHARE = 0.8  # of the allocations that would be refused: those that ask for all that is free, or are left out
WEIGHTS = {  # holders end less often than they begin, so that pools fill
    "take": (0.3, 1.0),
    "store": (0.3, 1.0, 2.0),
    "find": (0.0, 0.3),
    "reuse": (0.5, 1.0, 2.0),
    "share": (0.3, 1.0),
    "give": (0.3, 0.6, 1.0),
    "forget": (0.0, 0.05),
}
HOLDERS_SHARE = {"take": 0.3, "store": 1.0, "find": 0.1, "reuse": 1.0, "share": 2.0, "give": 1.0}
GIVE_AGAIN = (0.0, 0.1, 0.3)


def draw_config(
    random: Random, capabilities: Capabilities, fixed: dict[str, Any] | None = None, sizes: Sizes = draw_sizes
) -> PoolConfig:
    """A configuration that the pool should accept; `fixed` fields are kept."""
    drawn: dict[str, Any] = {
        "num_gpu_blocks": sizes(random)[1],
        "caching": capabilities.caching and random.random() < 0.7,
    }
    return PoolConfig(**(drawn | (fixed or {})))


class PoolOperations(DrawnRun):
    """Draws the operations of one run."""

    judge: PoolJudge

    def __init__(
        self, subject: PoolSubject, random: Random, config: PoolConfig, without: frozenset[str] = frozenset()
    ) -> None:
        self.random, self.config = random, config
        self.judge = PoolJudge(subject, config)
        self.weights = {kind: random.choice(choices) for kind, choices in WEIGHTS.items()}
        if capabilities_of(subject).ignores_double_free:
            self.weights["give_again"] = random.choice(GIVE_AGAIN)
        is_large, pick = has_large_sizes(config), random.choice
        if not is_large:
            self.weights |= pick(({}, HOLDERS_SHARE))
        self.weights |= dict.fromkeys(without & self.weights.keys(), 0.0)
        self.alone_share = pick(ALONE_SHARES)
        self.values, _ = draw_values(random)
        self.longest = max(1, min(config.num_gpu_blocks + 1, pick((2, 8, 40, 200)) if is_large else pick((2, 4, 8))))
        self.num_holders, self.num_holders_max = 0, pick(NUM_AT_A_TIME) if is_large else NUM_HOLDERS_MAX
        self.pause: Callable[[], None] = do_nothing
        self.lists: list[tuple[int, ...]] = []

    def draw(self) -> Operation:
        """The next operation."""
        kinds = self.candidates()
        if "take" in kinds and not self.num_free and self.random.random() < FITTING_SHARE:
            del kinds["take"], kinds["store"]
        kind = self.random.choices([*kinds], [self.weights[kind] + 1e-9 for kind in kinds])[0]
        return self.concrete(kind, kinds[kind])

    def candidates(self) -> dict[str, list[int]]:
        """The kinds of operation that may be drawn now, each with the holders that it may be about."""
        holders = list(self.judge.holders)
        has_room = len(holders) < self.num_holders_max
        kinds: dict[str, list[int]] = {"find": [], "forget": []}
        if has_room:
            kinds["take"] = kinds["store"] = kinds["reuse"] = []
        if holders:
            kinds["give"] = holders
        if holders and has_room:
            kinds["share"] = holders
        if self.weights.get("give_again") and self.judge.can_give_again():
            kinds["give_again"] = []
        return kinds

    def concrete(self, kind: str, about: list[int]) -> Operation:
        """An operation of the kind, about one of these holders."""
        random = self.random
        if kind == "give":
            first = random.choice(about)
            if len(about) < 2 or random.random() < self.alone_share:
                return kind, first
            others = [holder for holder in about if holder != first]
            return kind, first, tuple(random.sample(others, random.randint(1, min(2, len(others)))))
        if kind == "find":
            return kind, self._pages()
        if kind in ("forget", "give_again"):
            return (kind,)
        self.num_holders += 1
        if kind == "share":
            return kind, random.choice(about), self.num_holders
        if kind == "take":
            return kind, self.num_holders, self._fitting(self._count())
        pages = self._pages()
        return kind, self.num_holders, pages[: self._fitting(len(pages))] if kind == "store" else pages

    def _fitting(self, num_blocks: int) -> int:
        """So many blocks, or mostly all that are free if there are fewer."""
        if 0 < self.num_free < num_blocks and self.random.random() < FITTING_SHARE:
            return self.num_free
        return num_blocks

    @property
    def num_free(self) -> int:
        """The blocks that the pool shows as free."""
        return self.judge.explainer.observed.free[0]

    def _count(self) -> int:
        """How many blocks or pages an operation asks for."""
        if self.longest > NUM_HOLDERS_MAX:
            return log_uniform(self.random, 1, self.longest)
        return self.random.randint(1, self.longest)

    def _pages(self) -> tuple[int, ...]:
        """A list of pages that may begin like an earlier one."""
        random = self.random
        pages = list(random.choice(self.lists)) if self.lists and random.random() < 0.7 else []
        if random.random() < 0.5:
            pages = pages[: random.randint(0, len(pages))]
        if not pages or random.random() < 0.5:
            pages += random.choices(self.values, k=self._count())
        pages = pages[: self.config.num_gpu_blocks + 1]
        if len(self.lists) < 6:
            self.lists.append(tuple(pages))
        return tuple(pages)
