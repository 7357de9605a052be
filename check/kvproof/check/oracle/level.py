"""The three levels at which a subject can be judged: a block manager, a whole scheduler, a pool of block ids.

What differs between the levels is a field of `Level`. Code that works at every level takes the record, and asks for it
in one place: `level_of` for a subject, `level_of_config` for a run that has a configuration already.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.oracle.pool import PoolJudge
from kvproof.check.oracle.scheduler.judge import SchedulerJudge
from kvproof.check.protocol.adapter_check import (
    MANAGER_CALLS,
    POOL_CALLS,
    SCHEDULER_CALLS,
    RequiredCalls,
    is_pool_subject,
    is_scheduler_subject,
)
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.manager_operations import ManagerOperation
from kvproof.check.protocol.operations import TypedOperation
from kvproof.check.protocol.pool import PoolConfig, PoolOperation
from kvproof.check.protocol.scheduler import SchedulerConfig, SchedulerOperation
from kvproof.spec.trace import Operation


class LevelJudge(Protocol):
    """The interface of the judges of all levels."""

    coverage: Counter[str]
    notes: Counter[str]

    @property
    def answer(self) -> str:
        """The answer of the subject to the last operation, as text."""
        ...

    def apply(self, operation: Operation) -> bool:
        """Do one operation if it is enabled, and return whether it was. Raises Finding, AdapterError."""
        ...


@dataclass(frozen=True)
class Level:
    """One level at which a subject can be judged.

    config: the type of its configurations. kinds: its operations, by name. calls: what its subjects must have. open:
    opens a subject in a configuration and returns its judge; a third argument gives the identities that several judges
    share. replay_seconds_max: the time limit of one run that is repeated.
    """

    name: str
    config: type[Config]
    kinds: dict[str, type[TypedOperation]]
    calls: RequiredCalls
    open: Callable[..., LevelJudge]
    replay_seconds_max: float


MANAGER = Level("manager", Config, ManagerOperation.kinds(), MANAGER_CALLS, ManagerJudge, 5.0)
SCHEDULER = Level("scheduler", SchedulerConfig, SchedulerOperation.kinds(), SCHEDULER_CALLS, SchedulerJudge, 20.0)
POOL = Level("pool", PoolConfig, PoolOperation.kinds(), POOL_CALLS, PoolJudge, 5.0)
LEVELS = (MANAGER, SCHEDULER, POOL)
OTHER_NAMES = {"scheduler": "loop"}


def level_named(name: str) -> Level:
    """The level of this name; "loop" is another word for "scheduler". Raises ValueError for an unknown name."""
    for level in LEVELS:
        if name in (level.name, OTHER_NAMES.get(level.name)):
            return level
    raise ValueError(f"there is no level {name!r}; the levels are {', '.join(level.name for level in LEVELS)}")


def level_of(subject: Any) -> Level:
    """The level of a subject, by the calls that it has. What is no scheduler and no pool is taken for a manager."""
    if is_scheduler_subject(subject):
        return SCHEDULER
    return POOL if is_pool_subject(subject) else MANAGER


def level_of_config(config: Config) -> Level:
    """The level of a configuration, by its type."""
    return next(level for level in LEVELS if level.config is type(config))


def level_of_operation(name: str) -> Level | None:
    """The level that has an operation of this name; no two have."""
    return next((level for level in LEVELS if name in level.kinds), None)


def typed(operation: Operation) -> TypedOperation:
    """The operation as an instance of its class, with its arguments as they are. Raises KeyError for an unknown one."""
    level = level_of_operation(operation[0])
    if level is None:
        raise KeyError(operation[0])
    return level.kinds[operation[0]](*operation[1:])


def optional_kinds() -> list[str]:
    """The names of the operations that a run can do without, sorted."""
    return sorted(name for level in LEVELS for name, kind in level.kinds.items() if kind.is_optional)
