"""What two processes send each other, as data.

Types are preserved, because a judge distinguishes a tuple from a list and an `Admitted` from a pair. A value of a type
outside the protocols (for example an engine's object in place of an id) arrives as `Foreign`: its type is wrong for
every check, and its text is the same as in the other process.
"""

from collections import Counter
from dataclasses import fields
from typing import Any

import msgspec

from kvproof.check.hosts.channel import ChannelError, text_of
from kvproof.check.oracle.level import LEVELS
from kvproof.check.oracle.method_called import Blame
from kvproof.check.oracle.plain_calls import PlainLine, PlainRun
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.finding import TEXTS, Finding
from kvproof.check.protocol.manager import Admission, Assumption, Config, PromptKeys
from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.result import SearchResult
from kvproof.spec.text.identity import Image, Key
from kvproof.spec.trace import CodePlace, EarlierChange, EnteredCode

TUPLES: dict[str, Any] = {
    kind.__name__: kind for kind in (Image, Key, *(answer for level in LEVELS for answer in level.answers))
}
RECORDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(Assumption, Capabilities, Scope, Counterexample, SearchResult, Blame, CodePlace, EarlierChange, EnteredCode),
        *(PlainRun, PlainLine, *(level.config for level in LEVELS)),
    )
}
CALLS_ONLY, SEARCH = b"c", b"s"  # the purposes of a fork
ENDED = ["ended"]  # the answer to a search that was interrupted where it could not return what it had reached
INT_END = 1 << 63
# Of the fields of a finding that are no answers of a subject
FindingTypes = tuple[str, str, str, list[str], dict[str, str], tuple[int, ...]]

# Tags of packed values. A value that is not a list stands for itself.
INTS, LIST, TUPLE, NAMED, DICT, COUNTER, RECORD, ADMISSION, FINDING, FOREIGN = range(10)


class Foreign:
    """An answer of a subject whose type is outside the protocols."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def pack(value: Any) -> Any:
    """Convert a value to data for MessagePack, which has no integers beyond 64 bits and no halves of characters."""
    kind = type(value)
    if value is None or kind in (bool, float) or (kind is int and -INT_END <= value < INT_END):
        return value
    if kind is str:
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
    if kind is list:
        if all(type(item) is int for item in value) and (not value or -INT_END <= min(value) <= max(value) < INT_END):
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
    if kind is PromptKeys:
        return value.value
    if kind is Admission:
        return [ADMISSION, value.value]
    if RECORDS.get(kind.__name__) is kind:
        return [RECORD, kind.__name__, [[one.name, pack(_sendable(getattr(value, one.name)))] for one in fields(value)]]
    if kind is Finding:
        answers = value.expected, value.observed, value.blocks
        texts, values = [getattr(value, name) for name in TEXTS], {n: pack(text) for n, text in value.values.items()}
        return [FINDING, value.property, value.sentence, value.cause, texts, values, pack(answers)]
    is_derived = isinstance(value, int | str | list | tuple | dict) and kind is not int
    remark = " (beyond 64 bits)" if kind is int else f" (of the type {kind.__name__})" if is_derived else ""
    return [FOREIGN, f"{text_of(value)}{remark}"]


def _sendable(value: Any) -> Any:
    """The value of a field; a declared limit beyond 64 bits limits as much as the largest of 64 bits."""
    return min(value, INT_END - 1) if type(value) is int else value


def unpack(data: Any) -> Any:
    """The inverse of `pack`. Raises ChannelError for data that `pack` does not produce."""
    try:
        return _unpacked(data)
    except (
        *(KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError),
        msgspec.ValidationError,
    ) as error:
        raise ChannelError(f"a message has a value that no subject answers ({type(error).__name__}: {error})") from None


def _unpacked(data: Any) -> Any:
    if type(data) is not list:
        return data
    match data:
        case [tag, items] if tag == INTS:
            return items
        case [tag, items] if tag == LIST:
            return [_unpacked(item) for item in items]
        case [tag, items] if tag == TUPLE:
            return tuple([_unpacked(item) for item in items])
        case [tag, name, items] if tag == NAMED:
            return TUPLES[name](*[_unpacked(item) for item in items])
        case [tag, items] if tag == DICT:
            return {_unpacked(key): _unpacked(item) for key, item in items}
        case [tag, items] if tag == COUNTER:
            return Counter(dict(items))
        case [tag, name] if tag == ADMISSION:
            return Admission(name)
        case [tag, name, items] if tag == RECORD:
            return _record(RECORDS[name], {field: _unpacked(item) for field, item in items})
        case [tag, property, sentence, cause, texts, values, answers] if tag == FINDING:
            expected, observed, blocks = _unpacked(answers)
            msgspec.convert((property, sentence, cause, texts, values, blocks), FindingTypes)
            fields_of = {"expected": expected, "observed": observed, "blocks": blocks, "values": values}
            return Finding(property, sentence, cause, **dict(zip(TEXTS, texts, strict=True)), **fields_of)
        case [tag, property, sentence, cause, *texts, answers] if tag == FINDING:  # of a campaign of an older kvproof
            call, sequence, promise = texts
            return _unpacked([FINDING, property, sentence, cause, [call, sequence, promise, "", "", ""], {}, answers])
        case [_, text]:
            return Foreign(text)
    raise ValueError(f"not a packed value: {data!r}")


def _record(kind: Any, values: dict[str, Any]) -> Any:
    """The record with fields of these values. Raises ValidationError, TypeError or ValueError for a wrong type."""
    if kind is not Counterexample:  # its configuration is of a class derived from that of the field
        if not values.keys() <= kind.__dataclass_fields__.keys():
            raise ValueError(f"{kind.__name__} has no such field")
        return msgspec.convert(values, kind)
    found = Counterexample(**values)
    if not isinstance(found.config, Config) or not isinstance(found.finding, Finding):
        raise ValueError("a counterexample is a configuration, operations and a finding")
    return found
