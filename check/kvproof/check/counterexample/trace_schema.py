"""What a crash file may hold: the configuration and each operation, argument by argument.

A judge runs what it is given a million times and does not check it. A file may have been edited, so everything in it
is checked here, before it is run.
"""

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.pool import PoolConfig
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.reports.document import DocumentError
from kvproof.spec.trace import Operation, Trace

NUM_BLOCKS_MAX = 100_000

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Ids = Annotated[list[int], Meta(min_length=1)]
KeyData = tuple[str | None, int, str | None]
ImageData = tuple[str, Count, Positive]
Encoder = tuple[int, Ids]

# The arguments that each operation takes; `new` may leave out the last three.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "new": (int, Ids, Ids, KeyData, list[ImageData], Encoder | None),
    "sample": (int, Ids),
    "lookup": (int,),
    "admit": (int, Count),
    "extend": (int, Positive),
    "append": (int,),
    "fork": (int, int),
    "free": (int,),
    "preempt": (int,),
    "swap_out": (int,),
    "swap_in": (int,),
    "run": (Count,),
    "reset": (),
}
LOOP_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "add": (int, Ids, Ids, Positive, KeyData, list[ImageData], Encoder | None, tuple[int, bool]),
    "abort": (int,),
    "stop": (),
    "schedule": (),
    "launch": (Ids,),
    "complete": (Ids, list[tuple[int, int]], list[int], list[int]),
    "drain": (Ids,),
}
POOL_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "take": (int, Positive),
    "store": (int, Ids),
    "find": (Ids,),
    "reuse": (int, Ids),
    "share": (int, int),
    "give": (int, Ids),
    "forget": (),
}
LEVELS: tuple[tuple[type[Config], dict[str, tuple[Any, ...]]], ...] = (
    (SchedulerConfig, LOOP_ARGUMENTS),
    (PoolConfig, POOL_ARGUMENTS),
    (Config, ARGUMENTS),
)
NUM_NEEDED = {"new": 3, "add": 4, "complete": 1, "launch": 0, "give": 1}
NO_KEY: list[Any] = []  # stands for a key that is left out


class CounterexampleError(DocumentError):
    """The file is no trace that can be run; the message is for the user."""


def config_of(trace: Trace, path: Path) -> Config:
    """The configuration that the subject is opened with. Raises CounterexampleError."""
    kind, _ = _level(trace)
    foreign = sorted(trace.config.keys() - msgspec.to_builtins(kind()).keys())
    if foreign:
        raise _not(path, f"a configuration has no field {foreign[0]!r}")
    try:
        config = msgspec.convert(trace.config, kind)
    except msgspec.ValidationError as error:
        raise _not(path, f"its configuration is wrong: {error}") from None
    sizes = (config.num_gpu_blocks, config.num_host_blocks)
    if config.block_size < 1 or min(sizes) < 0 or max(*sizes, config.block_size) > NUM_BLOCKS_MAX:
        raise _not(path, f"its configuration is wrong: block size {config.block_size}, blocks {sizes}")
    return config


def operations_of(trace: Trace, path: Path) -> list[Operation]:
    """The operations, as a judge takes them. Raises CounterexampleError."""
    _, known = _level(trace)
    return [_operation(data, number, path, known) for number, data in enumerate(trace.operations, start=1)]


def _level(trace: Trace) -> tuple[type[Config], dict[str, tuple[Any, ...]]]:
    """The configuration and the operations of the trace's level: its first operation tells."""
    first = trace.operations[0] if trace.operations else []
    name = first[0] if first and isinstance(first[0], str) else ""
    return next((level for level in LEVELS if name in level[1]), LEVELS[-1])


def _operation(data: list[Any], number: int, path: Path, known: dict[str, tuple[Any, ...]]) -> Operation:
    name = data[0] if data else None
    if not isinstance(name, str) or name not in known:
        raise _not(path, f"operation {number} is {name!r}; there are {', '.join(known)}")
    kinds, given = known[name], data[1:]
    if not NUM_NEEDED.get(name, len(kinds)) <= len(given) <= len(kinds):
        raise _not(path, f"operation {number}, {name}, has {len(given)} arguments of {len(kinds)}")
    for place, (value, kind) in enumerate(zip(given, kinds, strict=False), start=1):
        if kind is KeyData and value == NO_KEY:
            continue
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise _not(path, f"operation {number}, {name}, argument {place}: {error}") from None
    return name, *(frozen(value) for value in given)


def frozen(value: Any) -> Any:
    """The value with tuples where JSON has lists."""
    return tuple(frozen(item) for item in value) if isinstance(value, list) else value


def _not(path: Path, reason: str) -> CounterexampleError:
    return CounterexampleError(f"{path} is not a trace of kvproof: {reason}")
