"""The scopes of exhaustive search: how large each one is, and which features it has.

A claim about a scope holds for every run within it, of any length. Scopes are small because most faults already show in
small ones: a wrong refcount needs three sequences and a handful of blocks. Each feature is explored with as few others
as it needs; features that share code (cache and swap) are explored together.
"""

from dataclasses import dataclass
from typing import Literal

from kvproof.check.protocol.manager import Config
from kvproof.spec.compilation import sized_function
from kvproof.spec.sizes import Sizes

Level = Literal["operations", "rules"]


@dataclass(frozen=True)
class Scope:
    """The bounds of one exhaustive search.

    num_tokens: of one sequence. block_size: tokens of a block. window: tokens that a sequence attends to, 0 for all,
    and -c for chunks of c tokens with local attention.
    lookahead: slots that an append reserves beyond its token; at the level of rules, whether entries can be reserved.
    kv_groups: as in a configuration; only subjects have several. num_flights: accesses of one block, by steps and
    transfers, that can be pending at once. level: whether one transition is a rule or a whole operation. reserving:
    whether the manager may keep blocks for itself. claims: whether a search by operations evaluates the claims of the
    specification in each state, in addition to the independent recount; off where there are many states.
    """

    num_gpu_blocks: int
    num_host_blocks: int = 0
    num_seqs: int = 2
    num_tokens: int = 4
    block_size: int = 2
    caching: bool = False
    window: int = 0
    lookahead: int = 0
    fork: bool = True
    swap: bool = False
    kv_groups: tuple[str, ...] = ("full",)
    num_flights: int = 0
    level: Level = "operations"
    reserving: bool = False
    claims: bool = True

    @property
    def num_indexes(self) -> int:
        """The number of table entries that a sequence can have."""
        return self.blocks_for(self.num_tokens + self.lookahead)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold so many tokens."""
        number: int = sized_function("blocks_for", self.block_size)(num_tokens)
        return number

    @property
    def config(self) -> Config:
        """The configuration in which a manager is explored in this scope."""
        return Config(
            block_size=self.block_size,
            num_gpu_blocks=self.num_gpu_blocks,
            num_host_blocks=self.num_host_blocks if self.swap else 0,
            window=self.window if self.window > 0 else None,
            local_chunk=-self.window if self.window < 0 else None,
            caching=self.caching,
            lookahead=self.lookahead,
            kv_groups=self.kv_groups,
        )


def sizes_of(scope: Scope) -> Sizes:
    """The sizes of the specification's state for the scope."""
    return Sizes(
        scope.num_gpu_blocks,
        scope.num_host_blocks,
        scope.block_size,
        scope.num_seqs,
        scope.num_indexes,
        scope.num_flights,
    )


DEFAULT_SCOPE = "tables-4x3x6"
SCOPES: dict[str, Scope] = {
    "tables-4x3x6": Scope(num_gpu_blocks=4, num_seqs=3, num_tokens=6),
    "tables-5x3x8": Scope(num_gpu_blocks=5, num_seqs=3, num_tokens=8),
    "tables-6x4x8": Scope(num_gpu_blocks=6, num_seqs=4, num_tokens=8, claims=False),
    "lookahead": Scope(num_gpu_blocks=5, num_seqs=3, num_tokens=4, lookahead=2),
    "window": Scope(num_gpu_blocks=5, num_seqs=3, num_tokens=6, window=2),
    "swap": Scope(num_gpu_blocks=3, num_host_blocks=3, num_seqs=3, num_tokens=4, swap=True),
    "window-and-swap": Scope(num_gpu_blocks=2, num_host_blocks=2, num_seqs=2, num_tokens=4, window=1, swap=True),
    "cache": Scope(num_gpu_blocks=3, num_seqs=2, num_tokens=4, caching=True),
    "window-and-cache": Scope(num_gpu_blocks=3, num_tokens=3, block_size=1, caching=True, window=2, fork=False),
    "cache-and-swap": Scope(num_gpu_blocks=2, num_host_blocks=2, num_seqs=2, num_tokens=4, caching=True, swap=True),
    "flights": Scope(num_gpu_blocks=3, num_seqs=2, num_tokens=4, num_flights=2),
    "transfers": Scope(2, 1, num_seqs=2, num_tokens=2, block_size=1, swap=True, num_flights=2),
    "transfers-of-tails": Scope(2, 2, num_seqs=2, num_tokens=3, swap=True, num_flights=2),
    "local-attention": Scope(num_gpu_blocks=4, num_seqs=2, num_tokens=6, window=-3),
    "local-attention-and-cache": Scope(3, num_tokens=3, block_size=1, caching=True, window=-2, fork=False),
    "rules-tables": Scope(num_gpu_blocks=3, num_seqs=2, num_tokens=4, level="rules"),
    "rules-three-sequences": Scope(num_gpu_blocks=3, num_seqs=3, num_tokens=2, level="rules"),
    "rules-lookahead": Scope(num_gpu_blocks=3, num_seqs=2, num_tokens=2, lookahead=2, level="rules"),
    "rules-window": Scope(num_gpu_blocks=3, num_seqs=2, num_tokens=4, window=1, level="rules"),
    "rules-local-attention": Scope(num_gpu_blocks=3, num_seqs=2, num_tokens=4, window=-2, level="rules"),
    "rules-swap": Scope(num_gpu_blocks=2, num_host_blocks=2, num_seqs=2, num_tokens=2, swap=True, level="rules"),
    "rules-cache": Scope(num_gpu_blocks=2, num_seqs=2, num_tokens=2, caching=True, reserving=True, level="rules"),
    "rules-flights": Scope(num_gpu_blocks=2, num_seqs=2, num_tokens=2, num_flights=2, level="rules"),
    "rules-transfers": Scope(2, 1, num_seqs=2, num_tokens=1, block_size=1, swap=True, num_flights=1, level="rules"),
    "rules-cache-and-transfers": Scope(
        1, 1, num_seqs=2, num_tokens=1, block_size=1, caching=True, fork=False, swap=True, num_flights=1, level="rules"
    ),
    "rules-window-and-cache": Scope(
        2, num_seqs=2, num_tokens=2, block_size=1, caching=True, window=2, fork=False, level="rules"
    ),
    "rules-cache-and-swap": Scope(
        num_gpu_blocks=2,
        num_host_blocks=1,
        num_seqs=2,
        num_tokens=1,
        block_size=1,
        caching=True,
        fork=False,
        swap=True,
        level="rules",
    ),
}
