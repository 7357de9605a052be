"""Check a trace before it is run: the configuration, and each operation with its arguments.

A judge does not check the operations that it is given, because it runs millions of them. A file may have been edited,
and a subject may have changed what its process sends, so everything is checked here, against the classes of the
operations of its level.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from kvproof.check.oracle.level import MANAGER, Level, level_of_config, level_of_operation, require_possible
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.operations import PLAIN_KEY, TypedOperation
from kvproof.reports.document import DocumentError
from kvproof.spec.trace import Operation, Trace

Source = Path | str  # where a trace comes from: a file, or in words


class CounterexampleError(DocumentError):
    """It is no trace that can be run; the message is for the user."""


def config_of(trace: Trace, path: Path) -> Config:
    """The configuration in which the trace's operations were run. Raises CounterexampleError."""
    kind = _level(trace).config
    foreign = sorted(trace.config.keys() - msgspec.to_builtins(kind()).keys())
    if foreign:
        raise _not(path, f"a configuration has no field {foreign[0]!r}")
    try:
        config = msgspec.convert(trace.config, kind)
    except msgspec.ValidationError as error:
        raise _not(path, f"its configuration is wrong: {error}") from None
    _require_possible(config, path)
    return config


def _require_possible(config: Config, source: Source) -> None:
    try:
        require_possible(config)
    except ValueError as error:
        raise _not(source, f"its configuration is wrong: {error}") from None


def operations_of(trace: Trace, path: Path) -> list[Operation]:
    """The operations as tuples, which is how a judge takes them. Raises CounterexampleError."""
    kinds = _level(trace).kinds
    return [_operation(data, number, path, kinds) for number, data in enumerate(trace.operations, start=1)]


def require_run(config: Config, operations: Sequence[Operation]) -> None:
    """Raise CounterexampleError unless a run that another process sent is one that a trace can hold."""
    source, kinds = "what another process sent", level_of_config(config).kinds
    _require_possible(config, source)
    for number, operation in enumerate(operations, start=1):
        _operation(list(msgspec.to_builtins(operation)), number, source, kinds)


def _level(trace: Trace) -> Level:
    """The level of the trace, which its first operation tells; of an unknown or missing one, the manager level."""
    first = trace.operations[0] if trace.operations else []
    name = first[0] if first and isinstance(first[0], str) else ""
    return level_of_operation(name) or MANAGER


def _operation(data: list[Any], number: int, path: Source, kinds: dict[str, type[TypedOperation]]) -> Operation:
    name = data[0] if data else None
    if not isinstance(name, str) or name not in kinds:
        raise _not(path, f"operation {number} is {name!r}; there are {', '.join(kinds)}")
    kind, num_given = kinds[name], len(data) - 1
    fields = kind.__struct_fields__
    if not kind.num_required() <= num_given <= len(fields):
        takes = f"it takes {', '.join(fields) or 'none'}"
        raise _not(path, f"operation {number}, {name}, has {num_given} argument{'s' * (num_given != 1)}; {takes}")
    try:
        msgspec.convert(_with_whole_key(data, kind), kind)
    except msgspec.ValidationError as error:
        at = str(error).replace("`$", f"`$.operations[{number - 1}]")
        raise _not(path, f"operation {number}, {name}: {at}") from None
    return tuple(frozen(value) for value in data)


def _with_whole_key(data: list[Any], kind: type[TypedOperation]) -> list[Any]:
    """The operation with the plain key where its key is an empty list, which stands for it."""
    place = kind.__struct_fields__.index("key") + 1 if "key" in kind.__struct_fields__ else len(data)
    return [*data[:place], PLAIN_KEY, *data[place + 1 :]] if data[place : place + 1] == [[]] else data


def frozen(value: Any) -> Any:
    """The value with tuples where JSON has lists."""
    return tuple(frozen(item) for item in value) if isinstance(value, list) else value


def _not(source: Source, reason: str) -> CounterexampleError:
    return CounterexampleError(f"{source} is not a trace of kvproof: {reason}")
