"""How the runs of each level are searched: one record for each level, which every search takes."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from kvproof.check.oracle.level import ENCODER, MANAGER, PAIR, POOL, SCHEDULER, STORE, Level, LevelJudge, level_of
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import Assumption, Config
from kvproof.check.protocol.scopes import DEFAULT_SCOPE, SCOPES, Scope
from kvproof.check.search import (
    configurations,
    encoder_operations,
    manager_operations,
    pair_operations,
    pool_operations,
    scheduler_operations,
    store_operations,
)
from kvproof.check.search.exhaustive import manager, pool, store
from kvproof.check.search.result import MovedLists
from kvproof.check.search.worlds import Sizes, draw_sizes
from kvproof.spec.trace import Operation


class OperationGenerator(Protocol):
    """Draws the operations of one run and applies them to the judge of the subject that it opened."""

    @property
    def judge(self) -> LevelJudge:
        """The judge of the run."""
        ...

    pause: Callable[[], None]  # called after each part of the run

    @property
    def moved(self) -> Sequence[MovedLists]:
        """The lists of the steps so far that move blocks, where the level has such lists."""
        ...

    def run(self, operations: list[Operation], length: int) -> None:
        """Draw and apply about so many operations, and append each to the list before it is applied. Raises Finding."""
        ...

    def wanted(self) -> Mapping[str, list[int]]:
        """The kinds of operation that are enabled now and that the run wants, each with what it may be about."""
        ...

    def concrete(self, kind: str, about: list[int]) -> Operation:
        """An operation of a wanted kind."""
        ...

    def draw_from(self, random: Random) -> None:
        """Let this make the random choices of all operations from now on."""
        ...


class DrawConfig(Protocol):
    """Draws a configuration that a subject with these capabilities should accept, and keeps the fixed fields.

    sizes: draws the slots of a block and the number of blocks.
    """

    def __call__(
        self, random: Random, capabilities: Capabilities, fixed: dict[str, Any] | None = None, sizes: Sizes = draw_sizes
    ) -> Any: ...


@dataclass(frozen=True)
class Exhaustive:
    """How a small scope of a level is searched exhaustively.

    check: raises Unsupported unless a subject can be searched in a scope. enabled: for a scope and a subject, the
    function from a judge to every operation that is enabled. state_key: equal for states that differ only in names.
    assumption: what the search assumes of a subject. gate, hunted, short: the scopes, by name, that a gate, a hunt and
    a conformance test search. named, default: the scopes that can be searched by their names, and the one that is
    searched if none is named.
    """

    config_of: Callable[[Scope], Config]
    check: Callable[[Any, Scope], None]
    enabled: Callable[[Scope, Any], Callable[[Any], Iterator[Operation]]]
    state_key: Callable[[Any], Hashable]
    assumption: Assumption
    gate: Mapping[str, Scope]
    hunted: Mapping[str, Scope]
    short: Mapping[str, Scope]
    named: Mapping[str, Scope] = field(default_factory=lambda: SCOPES)
    default: str = DEFAULT_SCOPE


@dataclass(frozen=True)
class Strategy:
    """How the runs of one level are searched.

    judge: the name of the random walk in results. generator: opens a subject in a configuration; the last argument
    names the features that the run disables. run_length: operations of one run in a small world, roughly.
    """

    level: Level
    judge: str
    draw_config: DrawConfig
    generator: Callable[[Any, Random, Any, frozenset[str]], OperationGenerator]
    run_length: int
    _exhaustive: Exhaustive | None = None

    @property
    def can_explore(self) -> bool:
        """Whether the scopes of this level can be searched exhaustively."""
        return self._exhaustive is not None

    @property
    def no_scopes(self) -> str:
        """What a message says of a level that has no exhaustive search."""
        return f"{self.level.name}s are not searched exhaustively"

    @property
    def exhaustive(self) -> Exhaustive:
        """How scopes are searched exhaustively. Raises ValueError for a level that has no such search."""
        if self._exhaustive is None:
            raise ValueError(self.no_scopes)
        return self._exhaustive


MANAGERS = Strategy(
    MANAGER,
    "walker",
    configurations.draw,
    manager_operations.ManagerOperations,
    manager_operations.RUN_LENGTH,
    Exhaustive(
        lambda scope: scope.config,
        manager.check_scope,
        lambda scope, subject: manager.EnabledOperations(scope).enabled,
        manager.state_key,
        manager.BLOCK_SYMMETRY,
        manager.GATE_SCOPES,
        manager.HUNTED_SCOPES,
        manager.SHORT_SCOPES,
    ),
)
SCHEDULERS = Strategy(
    SCHEDULER,
    "loop",
    configurations.draw_for_scheduler,
    scheduler_operations.SchedulerOperations,
    scheduler_operations.RUN_LENGTH,
)
POOLS = Strategy(
    POOL,
    "pool",
    pool_operations.draw_config,
    pool_operations.PoolOperations,
    pool_operations.RUN_LENGTH,
    Exhaustive(
        pool.config_of,
        pool.check_scope,
        lambda scope, subject: pool.EnabledPoolOperations(scope, subject).enabled,
        pool.state_key,
        pool.SHOWN_ORDER,
        pool.GATE_SCOPES,
        pool.HUNTED_SCOPES,
        pool.SHORT_SCOPES,
    ),
)
STORES = Strategy(
    STORE,
    "store",
    store_operations.draw_config,
    store_operations.StoreOperations,
    store_operations.RUN_LENGTH,
    Exhaustive(
        store.config_of,
        store.check_scope,
        lambda scope, subject: store.EnabledStoreOperations(scope, subject).enabled,
        store.state_key,
        store.SHOWN_ORDER,
        store.GATE_SCOPES,
        store.HUNTED_SCOPES,
        store.SHORT_SCOPES,
        store.HUNTED_SCOPES,
        store.DEFAULT_SCOPE,
    ),
)
ENCODERS = Strategy(
    ENCODER,
    "encoder",
    encoder_operations.draw_config,
    encoder_operations.EncoderOperations,
    encoder_operations.RUN_LENGTH,
)
PAIRS = Strategy(
    PAIR,
    "pair",
    pair_operations.draw_config,
    pair_operations.PairOperations,
    pair_operations.RUN_LENGTH,
)
ALL = MANAGERS, SCHEDULERS, POOLS, STORES, ENCODERS, PAIRS
STRATEGIES = {strategy.level.name: strategy for strategy in ALL}


def strategy_of(subject: Any) -> Strategy:
    """The strategy for the level of a subject."""
    return STRATEGIES[level_of(subject).name]
