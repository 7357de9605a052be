"""What two processes say to each other: values as data, and messages on a socket.

Types are kept, because a judge tells a tuple from a list and an `Admitted` from a pair. A value that no protocol knows
(an engine's own object where an id was due) arrives as `Foreign`: it is of no right type, and shows as it showed there.
"""

import select
import socket
import struct
from collections import Counter
from dataclasses import fields
from enum import Enum
from typing import Any

import msgspec

from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import (
    Admission,
    Admitted,
    Assumption,
    Capabilities,
    Config,
    Observation,
    Refused,
    Reserved,
    Scheduled,
)
from kvproof.check.protocol.pool import PoolConfig
from kvproof.check.protocol.scheduler import Chunk, Load, SchedulerConfig, Step
from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.exhaustive.runs import SubjectExploration
from kvproof.check.search.random_walk import Walk
from kvproof.spec.text.identity import Image, Key

TUPLES: dict[str, Any] = {
    kind.__name__: kind for kind in (Admitted, Chunk, Image, Key, Load, Observation, Refused, Reserved, Scheduled, Step)
}
RECORDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (Assumption, Capabilities, Config, SchedulerConfig, PoolConfig, Scope, SubjectExploration, Walk)
}
SHOWN_MAX = 200  # characters of a foreign value
CALLS_ONLY, SEARCH = b"c", b"s"  # what a fork is asked for
HEADER = struct.Struct("!I")

# Tags of packed values. What is not a list is itself.
INTS, LIST, TUPLE, NAMED, DICT, COUNTER, RECORD, ADMISSION, FINDING, FOREIGN = range(10)


class Foreign:
    """Something that a subject answered, of a type that no protocol has."""

    def __init__(self, shown: str) -> None:
        self.shown = shown

    def __repr__(self) -> str:
        return self.shown


def pack(value: Any) -> Any:
    """The value as data."""
    kind = type(value)
    if value is None or kind in (bool, float, str) or (kind is int and -(2**63) <= value < 2**63):
        return value
    if kind is list:
        if all(type(item) is int for item in value):
            return [INTS, value]
        return [LIST, [pack(item) for item in value]]
    if kind is tuple:
        return [TUPLE, [pack(item) for item in value]]
    if TUPLES.get(kind.__name__) is kind:
        return [NAMED, kind.__name__, [pack(item) for item in value]]
    if kind is dict:
        return [DICT, [[pack(key), pack(item)] for key, item in value.items()]]
    if kind is Counter:
        return [COUNTER, list(value.items())]
    if kind is Admission:
        return [ADMISSION, value.value]
    if RECORDS.get(kind.__name__) is kind:
        return [RECORD, kind.__name__, [[field.name, pack(getattr(value, field.name))] for field in fields(value)]]
    if kind is Finding:
        data = value.expected, value.observed, value.blocks
        return [FINDING, value.property, value.sentence, value.cause, value.call, value.sequence, pack(data)]
    return [FOREIGN, shown(value)]


def unpack(data: Any) -> Any:
    """The value that `pack` was given."""
    if type(data) is not list:
        return data
    match data:
        case [tag, items] if tag == INTS:
            return items
        case [tag, items] if tag == LIST:
            return [unpack(item) for item in items]
        case [tag, items] if tag == TUPLE:
            return tuple([unpack(item) for item in items])
        case [tag, name, items] if tag == NAMED:
            return TUPLES[name](*[unpack(item) for item in items])
        case [tag, items] if tag == DICT:
            return {unpack(key): unpack(item) for key, item in items}
        case [tag, items] if tag == COUNTER:
            return Counter(dict(items))
        case [tag, name] if tag == ADMISSION:
            return Admission(name)
        case [tag, name, items] if tag == RECORD:
            return RECORDS[name](**{field: unpack(item) for field, item in items})
        case [tag, property, sentence, cause, call, sequence, data] if tag == FINDING:
            expected, observed, blocks = unpack(data)
            fields_of = {"expected": expected, "observed": observed, "blocks": blocks, "sequence": sequence}
            return Finding(property, sentence, cause, call=call, **fields_of)
        case [_, text]:
            return Foreign(text)
    raise ValueError(f"this is no packed value: {data!r}")


def shown(value: object) -> str:
    """How a value shows, whatever its own `__repr__` does."""
    try:
        text = value.name if isinstance(value, Enum) else repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text[:SHOWN_MAX].encode("utf-8", "backslashreplace").decode("utf-8")


class Connection:
    """Messages on a stream socket, each a length and MessagePack."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream
        self._encoder, self._decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder()

    def send(self, message: list[Any]) -> None:
        """Send one message. Raises OSError."""
        data = self._encoder.encode(message)
        self.stream.sendall(HEADER.pack(len(data)) + data)

    def receive(self) -> Any:
        """The next message; None where the other side has gone. Raises TimeoutError after the socket's own limit."""
        header = self._exactly(HEADER.size)
        data = None if header is None else self._exactly(HEADER.unpack(header)[0])
        return None if data is None else self._decoder.decode(data)

    def is_ready(self, seconds: float) -> bool:
        """Whether something comes within so long: a message, or the end."""
        return bool(select.select([self.stream], [], [], seconds)[0])

    def _exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                part = self.stream.recv(size - len(data))
            except ConnectionError:
                return None
            if not part:
                return None
            data += part
        return data

    def close(self) -> None:
        """No more messages."""
        self.stream.close()
