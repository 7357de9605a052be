"""The levels at which a subject can be judged: manager, scheduler, pool of block ids, store, encoder outputs, pair.

What differs between the levels is a field of `Level`. Code that works at every level takes the record, and asks for it
in one place: `level_of` for a subject, `level_of_config` for a run that has a configuration already, and
`level_of_operation` for a trace.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Protocol

from kvproof.check.oracle.coverage import OWN, PROPERTIES, Facts, Need
from kvproof.check.oracle.encoder.coverage import ENCODER_NEEDS, ENCODER_WITNESSES
from kvproof.check.oracle.encoder.judge import EncoderJudge, frame_of_encoder
from kvproof.check.oracle.encoder.rules import EncoderRules
from kvproof.check.oracle.firing import LONG_TABLE, SpecRunner
from kvproof.check.oracle.frame import frame_of, frame_of_pool
from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.oracle.manager.coverage import MANAGER_WITNESSES
from kvproof.check.oracle.pair.coverage import PAIR_NEEDS, PAIR_WITNESSES
from kvproof.check.oracle.pair.judge import PairJudge, frame_of_pair
from kvproof.check.oracle.pair.rules import PairRules
from kvproof.check.oracle.pool import PoolJudge
from kvproof.check.oracle.pool_coverage import POOL_NEEDS, POOL_WITNESSES
from kvproof.check.oracle.scheduler.coverage import SCHEDULER_WITNESSES
from kvproof.check.oracle.scheduler.judge import SchedulerJudge
from kvproof.check.oracle.store.coverage import STORE_NEEDS, STORE_WITNESSES
from kvproof.check.oracle.store.judge import StoreJudge, frame_of_store
from kvproof.check.oracle.store.rules import StoreRules
from kvproof.check.protocol import features
from kvproof.check.protocol.adapter_check import MANAGER_CALLS, RequiredCalls, capabilities_of, check_adapter
from kvproof.check.protocol.block_events import ClearedBlocks, RemovedBlock, StoredBlock
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.encoder import (
    ENCODER_CALLS,
    ENCODER_SETTINGS,
    EncoderConfig,
    EncoderObservation,
    EncoderOperation,
    Input,
)
from kvproof.check.protocol.features import Setting
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import (
    Admitted,
    Config,
    Observation,
    Refused,
    Reserved,
    Scheduled,
    Unsupported,
    fault_of_kv_groups,
)
from kvproof.check.protocol.manager_operations import ManagerOperation
from kvproof.check.protocol.operations import TypedOperation
from kvproof.check.protocol.own_property import OWN_PROPERTY, OwnState
from kvproof.check.protocol.pair import (
    DEADLY,
    LOSSY,
    PAIR_CALLS,
    PAIR_SETTINGS,
    SLOW,
    WEATHERS,
    Layer,
    Offer,
    OnWire,
    PairConfig,
    PairLoad,
    PairStep,
    Piece,
    Reported,
    Sent,
)
from kvproof.check.protocol.pair_operations import PairOperation
from kvproof.check.protocol.pool import POOL_CALLS, Cleared, PoolConfig, PoolOperation, Removed, Stored
from kvproof.check.protocol.scheduler import (
    LIMITS,
    SCHEDULER_CALLS,
    Access,
    Chunk,
    HostStore,
    Load,
    ScheduledStep,
    SchedulerConfig,
)
from kvproof.check.protocol.scheduler_operations import SchedulerOperation
from kvproof.check.protocol.store import (
    STORE_CALLS,
    STORE_SETTINGS,
    Asked,
    Copied,
    Staged,
    StoreConfig,
    StoreObservation,
    StoreOperation,
)
from kvproof.reports.frames import StepFrame
from kvproof.spec.store.machine import STORES
from kvproof.spec.systems import BLOCK_MANAGERS, System
from kvproof.spec.text.identity import Identities
from kvproof.spec.trace import Operation

Witnesses = Mapping[str, Callable[[Capabilities], bool]]


class LevelJudge(Protocol):
    """The interface of the judges of all levels.

    is_sparse: whether a call is judged only by what costs the same in every pool. Who makes a judge sparse calls
    `compare_all` from time to time.
    """

    coverage: Counter[str]
    notes: Counter[str]
    is_sparse: bool

    @property
    def answer(self) -> str:
        """The answer of the subject to the last operation, as text."""
        ...

    def apply(self, operation: Operation) -> bool:
        """Do one operation if it is enabled, and return whether it was. Raises Finding, AdapterError."""
        ...

    def compare_all(self, context: str) -> None:
        """Compare everything that the subject shows. context: the operation before. Raises Finding, AdapterError."""
        ...


@cache
def compile_rules() -> None:
    """Compile the rules that judges of block managers run; a judge of any sizes then needs no time for it."""
    SpecRunner(Config(), Identities(), Counter())


@cache
def compile_rules_of_stores() -> None:
    """Compile the rules that judges of stores run."""
    StoreRules(StoreConfig(), Counter())


@cache
def compile_rules_of_encoders() -> None:
    """Compile the rules that judges of caches of encoder outputs run."""
    EncoderRules(EncoderConfig(), Counter())


@cache
def compile_rules_of_pairs() -> None:
    """Compile the rules that judges of pairs run."""
    PairRules(PairConfig(), Counter())


@dataclass(frozen=True)
class Level:
    """One level at which a subject can be judged.

    name: as results and users write it. config: the type of its configurations. kinds: its operations, by name. calls:
    what its subjects must have. open: opens a subject in a configuration and returns its judge; a third argument gives
    the identities that several judges share. frame: draws the state of a judge, and the finding that ended its run.
    witnesses: situations, each with the condition under which a long walk of a subject with some capabilities must
    reach it; a walk that does not reach them proves nothing. begins_with: the witness that every walk reaches. needs:
    of the properties whose row in `coverage` does not name the level. other_needs: why it does not decide the
    properties without a need. settings: fields of a configuration that can be shrunk, in addition to features and
    sizes. answers: the types of tuples that its subjects return. other_name: a second name of the level.
    replay_seconds_max: the time limit of one run that is repeated. compile: compiles the rules that its judges run, for
    all sizes. system: the specification that it is judged by, and that is proved for it.
    """

    name: str
    config: type[Config]
    kinds: dict[str, type[TypedOperation]]
    calls: RequiredCalls
    open: Callable[..., LevelJudge]
    frame: Callable[[Any, Finding | None], StepFrame]
    witnesses: Witnesses
    begins_with: str = "admitted"
    needs: Mapping[str, Need] = field(default_factory=dict)
    other_needs: str = "not judged at this level"
    settings: tuple[Setting, ...] = ()
    answers: tuple[type, ...] = ()
    other_name: str = ""
    replay_seconds_max: float = 5.0
    compile: Callable[[], object] = compile_rules
    system: System = BLOCK_MANAGERS

    def unsupported(self, property: str, facts: Facts) -> str | None:
        """Why this level cannot decide a property for a subject; None if it can."""
        if property == OWN_PROPERTY:
            return OWN.unfulfilled(facts)
        need = PROPERTIES[property].get(self.name) or self.needs.get(property)
        return self.other_needs if need is None else need.unfulfilled(facts)

    def facts_of(self, subject: Any) -> Facts:
        """The facts about a subject. It is opened in the default configuration, to see whether it reports refcounts."""
        try:
            config = self.config()
            size = features.block_size_within(config.block_size, capabilities_of(subject))
            subject.open(replace(config, block_size=size))
            return Facts(capabilities_of(subject), subject.observe().refs is not None)
        except Unsupported:
            return Facts(capabilities_of(subject))
        except Exception:  # a finding, which is for the judges to make
            return Facts(capabilities_of(subject))

    def expected_witnesses(self, capabilities: Capabilities, fixed: Mapping[str, Any] | None = None) -> dict[str, bool]:
        """The witnesses, each with whether a long walk of a subject with these capabilities must reach it.

        fixed: fields of the configuration that every run keeps; they may exclude a witness.
        """
        excluded = self.excluded_witnesses(fixed or {})
        return {
            name: is_expected(capabilities) and name not in excluded for name, is_expected in self.witnesses.items()
        }

    def excluded_witnesses(self, fixed: Mapping[str, Any]) -> dict[str, str]:
        """The witnesses that no run with these fixed fields can reach, each with the reason."""
        return {
            name: f"needs {field} of at least {least}"
            for name in self.witnesses
            for field, least in LEAST_OF_WITNESSES.get(name, {}).items()
            if field in fixed and _is_less(fixed[field], least)
        }

    def check(self, subject: Any, name: str = "") -> None:
        """Raise AdapterError unless the subject is one of this level. name: what a message calls it, not its class."""
        other = level_of(subject)
        hint = "; derive its class from ManagerAdapter, as `kvproof init` does" if self is MANAGER else ""
        if other is not self and other is not MANAGER:
            hint = f"; it looks like a {other.calls.noun}: choose that level"
        check_adapter(subject, self.calls, hint, name)


def _is_less(value: Any, least: int | str) -> bool:
    """Whether a value of a field is less than what a witness needs. Weathers have an order too."""
    return bool(WEATHERS.index(value) < WEATHERS.index(least) if isinstance(least, str) else value < least)


# The least values of fields without which a witness is impossible; nearly all have at most two holders or two blocks.
LEAST_OF_WITNESSES: Mapping[str, Mapping[str, int | str]] = {
    LONG_TABLE: {"num_gpu_blocks": 2},
    "copy-on-write": {"num_gpu_blocks": 2},
    "reserve": {"num_gpu_blocks": 2},
    "slide": {"num_gpu_blocks": 5},
    "state left an entry": {"num_gpu_blocks": 5},
    "hit of a state": {"num_gpu_blocks": 5},
    "hit in blocks of different sizes": {"num_gpu_blocks": 5},
    "eviction with a choice": {"num_gpu_blocks": 2},
    "cross-attention table": {"num_gpu_blocks": 2},
    "swap_in": {"num_gpu_blocks": 2, "max_num_seqs": 2},
    "swap in beside others": {"num_gpu_blocks": 2, "max_num_seqs": 2},
    "aborted while swapped": {"num_gpu_blocks": 2, "max_num_seqs": 2},
    "decodes and chunks in one step": {"num_gpu_blocks": 2, "max_num_seqs": 2},
    "loaded from elsewhere": {"loads": 1},
    "load": {"transfers": 1},
    "loaded in vain": {"transfers": 1},
    "send": {"transfers": 1},
    "load within a step": {"transfers": 1, "loads_in_step": 1},
    "load failed": {"transfers": 1},
    "load reported again": {"transfers": 1, "repeated_reports": 1},
    "computed in vain": {"transfers": 1, "loads_in_step": 1},
    "scheduled while another is under way": {"async_steps": 1},
    "token dropped": {"async_steps": 1},
    "scheduled while paused": {"pauses": 1},
    "session went on": {"sessions": 1},
    "reset, and those who run begin again": {"resets": 1},
    "lost its source": {"weather": SLOW},
    "transfer failed": {"weather": LOSSY},
    "noticed again or late": {"weather": LOSSY},
    "lost message": {"weather": LOSSY},
    "lost": {"weather": LOSSY},
    "died": {"weather": DEADLY},
    "evict beside a load": {"num_gpu_blocks": 2},
    "a key of the call is there, and another is evicted": {"num_gpu_blocks": 2},
}

MANAGER = Level(
    "manager",
    Config,
    ManagerOperation.kinds(),
    MANAGER_CALLS,
    ManagerJudge,
    frame_of,
    MANAGER_WITNESSES,
    answers=(Admitted, Observation, OwnState, Refused, Reserved, Scheduled, StoredBlock, RemovedBlock, ClearedBlocks),
)
SCHEDULER = Level(
    "scheduler",
    SchedulerConfig,
    SchedulerOperation.kinds(),
    SCHEDULER_CALLS,
    SchedulerJudge,
    frame_of,
    SCHEDULER_WITNESSES,
    settings=LIMITS,
    answers=(Access, Chunk, HostStore, Load, ScheduledStep),
    other_name="loop",
    replay_seconds_max=20.0,
)
POOL = Level(
    "pool",
    PoolConfig,
    PoolOperation.kinds(),
    POOL_CALLS,
    PoolJudge,
    frame_of_pool,
    POOL_WITNESSES,
    begins_with="reserve",
    needs=POOL_NEEDS,
    other_needs="judged only for subjects with sequences and tables",
    answers=(Observation, Refused, Stored, Removed, Cleared),
)
STORE = Level(
    "store",
    StoreConfig,
    StoreOperation.kinds(),
    STORE_CALLS,
    StoreJudge,
    frame_of_store,
    STORE_WITNESSES,
    begins_with="begin_store",
    needs=STORE_NEEDS,
    other_needs="judged only for subjects with sequences and tables",
    settings=STORE_SETTINGS,
    answers=(Staged, Asked, Copied, StoreObservation),
    compile=compile_rules_of_stores,
    system=STORES,
)
ENCODER = Level(
    "encoder",
    EncoderConfig,
    EncoderOperation.kinds(),
    ENCODER_CALLS,
    EncoderJudge,
    frame_of_encoder,
    ENCODER_WITNESSES,
    begins_with="taken",
    needs=ENCODER_NEEDS,
    other_needs="judged only for subjects with sequences and tables, or with transfers",
    settings=ENCODER_SETTINGS,
    answers=(Input, EncoderObservation),
    compile=compile_rules_of_encoders,
    system=STORES,
)
PAIR = Level(
    "pair",
    PairConfig,
    PairOperation.kinds(),
    PAIR_CALLS,
    PairJudge,
    frame_of_pair,
    PAIR_WITNESSES,
    begins_with="offered",
    needs=PAIR_NEEDS,
    other_needs="not judged for a pair of engines",
    settings=PAIR_SETTINGS,
    answers=(Layer, Offer, OnWire, PairLoad, PairStep, Piece, Reported, Sent, Chunk, Observation),
    replay_seconds_max=20.0,
    compile=compile_rules_of_pairs,
    system=STORES,
)
LEVELS = (MANAGER, SCHEDULER, POOL, STORE, ENCODER, PAIR)


# Which level it is ------------------------------------------------------------------------------------------------


def level_named(name: str) -> Level:
    """The level of this name, such as "scheduler", or "loop" for the same. Raises ValueError for an unknown name."""
    for level in LEVELS:
        if name in (level.name, level.other_name):
            return level
    raise ValueError(f"there is no level {name!r}; the levels are {', '.join(level.name for level in LEVELS)}")


def level_of(subject: Any) -> Level:
    """The level of a subject, by the calls that mark it. A subject without the marks of any is taken for a manager."""
    return next((level for level in LEVELS if level.calls.mark(subject)), MANAGER)


def level_of_config(config: Config) -> Level:
    """The level of a configuration, by its type."""
    return next(level for kind in type(config).__mro__ for level in LEVELS if level.config is kind)


def level_of_operation(name: str) -> Level | None:
    """The level that has an operation of this name; no two have."""
    return next((level for level in LEVELS if name in level.kinds), None)


# What every level has ---------------------------------------------------------------------------------------------


SIZES = ("block_size", "num_gpu_blocks", "num_host_blocks")
SIZE_MAX = 100_000  # of each: more takes all of the memory, which is no fault of a manager


def require_possible(config: Config) -> None:
    """Raise ValueError if a field of the configuration has a value that no manager can have."""
    for setting in settings_of(config):
        value = getattr(config, setting.field)
        if setting.least is not None and value is not None and value < setting.least:
            raise ValueError(f"{setting.field} is at least {setting.least}; {value} was given")
    for name in SIZES:
        if (size := getattr(config, name)) > SIZE_MAX:
            raise ValueError(f"{name} is at most {SIZE_MAX:,}; {size} was given")
    if (level := level_of_config(config)) in (POOL, STORE, ENCODER) and config.block_size != level.config.block_size:
        raise ValueError(f"block_size is {level.config.block_size} for a {level.name}; {config.block_size} was given")
    if isinstance(config, PairConfig) and config.weather not in WEATHERS:
        raise ValueError(f"weather is one of {', '.join(WEATHERS)}; {config.weather!r} was given")
    if isinstance(config, PairConfig) and not config.shares_heads:
        raise ValueError("num_heads is a multiple of the ranks of a side, or they are a multiple of it")
    if not 0 <= config.watermark <= 1:
        raise ValueError(f"watermark is a fraction of the GPU blocks, 0 to 1; {config.watermark} was given")
    if fault := fault_of_kv_groups(config):
        raise ValueError(fault)


def settings_of(config: Config) -> tuple[Setting, ...]:
    """The fields that a shrinker tries to simplify, in its order."""
    return (*features.FEATURES, *features.SIZES, *level_of_config(config).settings)


def typed(operation: Operation) -> TypedOperation:
    """The operation as an instance of its class, with its arguments as they are. Raises KeyError for an unknown one."""
    level = level_of_operation(operation[0])
    if level is None:
        raise KeyError(operation[0])
    return level.kinds[operation[0]](*operation[1:])


def optional_kinds() -> list[str]:
    """The names of the operations that a run can do without, sorted."""
    return sorted(name for level in LEVELS for name, kind in level.kinds.items() if kind.is_optional)
