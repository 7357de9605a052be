"""Strategies that draw broken files of kvproof: from the schema of a document, and by damage to a right one.

A drawn document has the fields of its schema, with values of the right type that no release writes: numbers beyond 64
bits, empty and endless texts, half characters. Damage replaces, removes, repeats or exchanges parts of a right
document, and then may cut its text or change bytes in it.
"""

import copy
import json
import sqlite3
import tempfile
from collections.abc import Iterable
from contextlib import closing, suppress
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

DEEP = json.loads("[" * 200 + "]" * 200)
RUNS = ["1" * 20_000, "[" + " " * 20_000, "a." * 20_000 + "a", "'" * 20_000]  # for what tries a run again and again
HOSTILE: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**40, 0.5, -0.0, 1e308, 1e-320,
    "", "\0", "\ud800", "\x1b]0;x\x07", "../../etc/passwd", "/dev/zero", "a" * 5000, *RUNS,
    "pipe:false", "this:s", "./x.py:f",
    [], {}, [[]], [None], {"": None}, [0] * 300, list(range(300)), DEEP, [-1], [[1, 1], [1, 1]],
]  # fmt: skip
TEXTS = [value for value in HOSTILE if isinstance(value, str)]
INTS = [value for value in HOSTILE if type(value) is int]
BYTES = [
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"{",
    b"]",
    b'"',
    b"\\u0000",
    b"1e999",
    b"NaN",
    b"9" * 5000,
    b"[" * 5000,
    *(run.encode() for run in RUNS),
    b"\r\n",
]


def of_type(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Values that a document may have in a field of this type, as JSON has them."""
    match kind:
        case inspect.StructType(fields=fields) | inspect.DataclassType(fields=fields):
            values = {field.encode_name: of_type(field.type) for field in fields}
            needed = {field.encode_name: values.pop(field.encode_name) for field in fields if field.required}
            return st.fixed_dictionaries(needed, optional=values)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item) | inspect.SetType(item_type=item):
            return st.lists(of_type(item), max_size=3)
        case inspect.TupleType(item_types=items):
            return st.tuples(*map(of_type, items)).map(list)
        case inspect.DictType(value_type=value):
            return st.dictionaries(st.sampled_from(["a", "walker", "states", ""]), of_type(value), max_size=2)
        case inspect.UnionType(types=types):
            return st.one_of(*map(of_type, types))
        case inspect.EnumType(cls=cls):
            return st.sampled_from([one.value for one in cls])
        case inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case inspect.IntType():
            return st.sampled_from(INTS)
        case inspect.FloatType():
            return st.sampled_from([0.0, 0.5, 1e308, -1.0, 3])
        case inspect.BoolType():
            return st.booleans()
        case inspect.StrType():
            return st.sampled_from(["x", *TEXTS])
        case inspect.DateType():
            return st.just(date(2027, 1, 31).isoformat())
        case inspect.NoneType():
            return st.none()
    return st.sampled_from(HOSTILE)


def drawn(document: Any) -> st.SearchStrategy[bytes]:
    """Documents with the fields of a class."""
    return of_type(inspect.type_info(document)).map(as_json)


def as_json(value: Any) -> bytes:
    """The value as JSON, with half characters as they are."""
    return json.dumps(value).encode()


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all parts of a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in items for place in _places(item, (*path, key)))]


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


@st.composite
def damaged(draw: st.DrawFn, documents: list[Any]) -> Any:
    """One of the documents with one to three parts replaced, removed, repeated or exchanged for another part."""
    made = copy.deepcopy(documents[draw(st.integers(0, len(documents) - 1))])
    for _ in range(draw(st.integers(1, 3))):
        places = _places(made)
        path = places[draw(st.integers(0, len(places) - 1))]
        if not path:
            continue
        holder, key, act = _at(made, path[:-1]), path[-1], draw(st.integers(0, 5))
        if act == 0:
            del holder[key]
        elif act == 1:
            holder[key] = copy.deepcopy(_at(made, places[draw(st.integers(0, len(places) - 1))]))
        elif act == 2 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif act == 3 and isinstance(holder, dict):
            holder[draw(st.sampled_from(["x", "", "n", "id"]))] = holder[key]
        elif act == 4 and type(holder[key]) is int:
            holder[key] += draw(st.sampled_from([1, -1, 7, 1000, 10**6]))
        else:
            holder[key] = copy.deepcopy(draw(st.sampled_from(HOSTILE)))
    return made


@st.composite
def torn(draw: st.DrawFn, texts: st.SearchStrategy[bytes]) -> bytes:
    """A text, of which about every fourth is cut, or has bytes that do not belong there."""
    text = draw(texts)
    if draw(st.integers(0, 3)) or not text:
        return text
    at = draw(st.integers(0, len(text) - 1))
    return text[:at] + draw(st.sampled_from([b"", *BYTES])) + draw(st.sampled_from([b"", text[at:], text[at + 1 :]]))


def lines(value: list[Any]) -> bytes:
    """The parts of a list as lines of JSON, as a recording has them."""
    return b"".join(as_json(line) + b"\n" for line in value) if isinstance(value, list) else as_json(value)


def toml(value: Any) -> bytes:
    """The value as TOML, as far as TOML has it."""
    if not isinstance(value, dict):
        return as_json(value)
    plain = [f"{_key(key)} = {_inline(item)}" for key, item in value.items() if not _is_tables(item)]
    for key, item in value.items():
        if _is_tables(item):
            for table in item:
                plain += [f"[[{_key(key)}]]", *(f"{_key(name)} = {_inline(one)}" for name, one in table.items())]
    return "\n".join([*plain, ""]).encode("utf-8", "surrogatepass")


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


def _key(name: str) -> str:
    return name if name.isidentifier() else json.dumps(name)


def _inline(value: Any) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{_key(name)} = {_inline(one)}" for name, one in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_inline, value)) + "]"
        case str() if value[:2] == "20" and value.count("-") == 2:
            return value
        case None:
            return "nothing"
    return json.dumps(value)


VIEW = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS id, x AS started, x AS key FROM n"
SCHEMA_CHANGES = (  # the first changes nothing
    "",
    *("DROP TABLE {0}", f"ALTER TABLE {{0}} RENAME TO old; CREATE VIEW {{0}} AS {VIEW}"),
    *("ALTER TABLE {0} ADD COLUMN x AS (zeroblob(900000000))", "CREATE TABLE more (x)", "PRAGMA user_version = 99"),
    *("PRAGMA application_id = 7", "CREATE TRIGGER t INSERT ON {0} BEGIN SELECT zeroblob(900000000); END"),
)


def database(tables: Any, statements: Iterable[str], application_id: int, version: int) -> bytes:
    """An SQLite file with these rows of tables, as far as SQLite takes them. `change`: numbers of `SCHEMA_CHANGES`."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as made:
        settings = f"PRAGMA application_id = {application_id}", f"PRAGMA user_version = {version}"
        for statement in (*statements, *settings):
            made.execute(statement)
        rows = [(name, _items(one)) for name, table in _items(tables) if isinstance(table, list) for one in table]
        for name, row in rows:
            with suppress(sqlite3.Error, OverflowError, UnicodeEncodeError):
                names, marks = ", ".join(key for key, _ in row), ", ".join("?" * len(row))
                made.execute(f"INSERT INTO {name} ({names}) VALUES ({marks})", [_bound(value) for _, value in row])
        changes = dict(_items(tables)).get("change")
        for number in changes if isinstance(changes, list) else ():
            with suppress(sqlite3.Error, TypeError):
                made.executescript(SCHEMA_CHANGES[number % len(SCHEMA_CHANGES)].format(next(iter(tables))))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "d"
            with closing(sqlite3.connect(path)) as file:
                file.execute("PRAGMA synchronous = OFF")
                file.execute("PRAGMA journal_mode = OFF")
                made.backup(file)
            return path.read_bytes()


def _bound(value: Any) -> Any:
    return bytes.fromhex(value[4:]) if isinstance(value, str) and value.startswith("hex:") else value


def _items(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


def decoded(data: bytes) -> Any:
    """A right document as a value that can be damaged."""
    return msgspec.json.decode(data)
