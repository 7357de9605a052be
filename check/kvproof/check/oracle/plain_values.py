"""Values and objects of a manager as Python text, for a script that needs no kvproof.

An object has a name once a call has made or returned it; one that is reached from such an object is written as its
path, `manager.blocks[3]`. What belongs to kvproof, or cannot be made again from its parts, is not written.
"""

import builtins
import keyword
import re
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from math import isfinite
from types import BuiltinFunctionType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

PLAIN = (type(None), bool, int, str, bytes)
DEPTH_MAX, PATH_MAX, LOOKED_AT_MAX, NUMBERS_MAX = 6, 4, 5000, 1000
WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
OF_FILE = "kvproof_subject_"  # how a module is named that was imported by its path
LISTED: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
    deque: ("deque([", "])"),
}


class NotWritten(Exception):
    """A value cannot be written without kvproof. Its text is what it is."""


def is_of_kvproof(module: str) -> bool:
    """Whether a module is one of kvproof's judges or adapters; its own managers are managers as others are."""
    return module.startswith("kvproof.") and not module.startswith("kvproof.impl.")


def is_plain(value: Any) -> bool:
    """Whether a value is data and can be written as it is."""
    if type(value) in (list, tuple, set, frozenset):
        return all(map(is_plain, value))
    if type(value) is dict:
        return all(is_plain(key) and is_plain(one) for key, one in value.items())
    return type(value) in (*PLAIN, float)


class Names:
    """The names that a script has for objects, classes and functions.

    imports: for each module and name in it, the name in the script. defined: lines that define classes which the
    adapter made while it ran. modules: that are imported whole. pending: lines that make
    stand-ins, and come before the line that is written now.
    """

    def __init__(self) -> None:
        self.imports: dict[tuple[str, str], str] = {}
        self.defined: list[str] = []
        self.modules: set[str] = set()
        self.pending: list[str] = []
        self._named: dict[int, tuple[str, Any]] = {}
        self._making: set[int] = set()
        self._taken: set[str] = {"deque", "SimpleNamespace", "sys", "self", "suppress"}

    def objects(self) -> list[tuple[str, Any]]:
        """Each named object with its name, in the order in which they came."""
        return list(self._named.values())

    def is_known(self, thing: Any) -> bool:
        """Whether the object has a name."""
        return id(thing) in self._named

    def give(self, thing: Any, word: str = "") -> str:
        """A new name for an object."""
        words = WORD.findall(word or type(thing).__name__) or ["thing"]
        name = self._free(words[-1].lower())
        self._named[id(thing)] = name, thing
        return name

    def _free(self, name: str) -> str:
        name = re.sub(r"\W", "_", name)
        if keyword.iskeyword(name) or hasattr(builtins, name) or not name.isidentifier():
            name = f"{name}_1" if name[:1].isalpha() else f"thing_{name}"
        taken, number = name, 1
        while taken in self._taken:
            number += 1
            taken = f"{name}_{number}"
        self._taken.add(taken)
        return taken

    def text(self, value: Any, depth: int = 0) -> str:
        """An expression for the value. Raises NotWritten."""
        kind = type(value)
        if kind in PLAIN:
            return repr(value)
        if kind is float:
            return repr(value) if isfinite(value) else f'float("{value}")'
        if id(value) in self._named:
            return self._named[id(value)][0]
        if depth > DEPTH_MAX:
            raise NotWritten("a value that is nested too deeply")
        if isinstance(value, Enum):
            return f"{self.of_class(kind)}.{value.name}"
        if isinstance(value, type):
            return self.of_class(value)
        if isinstance(value, FunctionType | BuiltinFunctionType):
            return self._imported(value.__module__ or "builtins", value.__qualname__, value)
        if (listed := self._listed(value, depth + 1)) is not None:
            return listed
        if (path := self._path(value)) is not None:
            return path
        if is_of_kvproof(kind.__module__):
            return self._stand_in(value, depth + 1)
        if (made := self._made(value, depth + 1)) is not None:
            return made
        raise NotWritten(f"a {kind.__module__}.{kind.__qualname__}")

    def of_class(self, kind: type) -> str:
        """The name of a class. Raises NotWritten."""
        if id(kind) in self._named:
            return self._named[id(kind)][0]
        try:
            return self._imported(kind.__module__, kind.__qualname__, kind)
        except NotWritten:
            is_found = getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is kind
            if is_found or "<locals>" in kind.__qualname__ or kind.__bases__ == (object,):
                raise
        bases = ", ".join(map(self.of_class, kind.__bases__))
        own = {name: value for name, value in vars(kind).items() if not name.startswith("__")}
        attributes = self.text(own)
        name = self.give(kind, kind.__name__)
        self._taken.discard(name)
        name = self._free(kind.__name__)
        self._named[id(kind)] = name, kind
        self.defined.append(f"{name} = type({kind.__name__!r}, ({bases},), {attributes})")
        return name

    def _stand_in(self, value: Any, depth: int) -> str:
        """The name of an object of kvproof that stands in for one of the engine: only its data is there."""
        if isinstance(value, Exception | ModuleType) or type(value).__module__.startswith("kvproof.check.oracle"):
            raise NotWritten(f"a {type(value).__qualname__} of kvproof")
        name = self.give(value)
        self._making.add(id(value))
        parts, num_before = list[str](), len(self.pending)
        for attribute, part in data_of(value).items():
            with suppress(NotWritten):
                parts.append(f"{attribute}={self.text(part, depth)}")
        self._making.remove(id(value))
        if any(re.search(rf"\b{name}\b", line) for line in self.pending[num_before:]):  # they name each other
            self.pending.insert(num_before, f"{name} = SimpleNamespace()")
            self.pending += [f"{name}.{part.replace('=', ' = ', 1)}" for part in parts]
        else:
            self.pending.append(f"{name} = SimpleNamespace({', '.join(parts)})")
        return name

    def _imported(self, module: str, qualified: str, thing: Any) -> str:
        top, *inner = qualified.split(".")
        found: Any = sys.modules.get(module)
        for part in (top, *inner):
            found = getattr(found, part, None)
        if found is not thing:
            raise NotWritten(f"{qualified}, which {module} does not have under this name")
        if module == "builtins":
            return qualified
        if is_of_kvproof(module):
            raise NotWritten(f"{qualified} of kvproof")
        if (module, top) not in self.imports:
            self.imports[module, top] = self._free(top)
        return ".".join((self.imports[module, top], *inner))

    def _listed(self, value: Any, depth: int) -> str | None:
        kind = type(value)
        if kind is dict:
            pairs = (f"{self.text(key, depth)}: {self.text(one, depth)}" for key, one in value.items())
            return f"{{{', '.join(pairs)}}}"
        if kind is tuple:
            return f"({', '.join(self.text(one, depth) for one in value)}{',' if len(value) == 1 else ''})"
        if kind not in LISTED:
            return None
        if kind is set and not value:
            return "set()"
        before, behind = LISTED[kind]
        return f"{before}{', '.join(self.text(one, depth) for one in value)}{behind}"

    def _made(self, value: Any, depth: int) -> str | None:
        """A record made again from its fields."""
        kind = type(value)
        if isinstance(value, SimpleNamespace):
            parts = (f"{name}={self.text(one, depth)}" for name, one in vars(value).items())
            return f"SimpleNamespace({', '.join(parts)})"
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return f"{self.of_class(kind)}({', '.join(self.text(one, depth) for one in value)})"
        if kind in (slice, range):
            return repr(value)
        if kind.__module__ == "array":
            return f"{self.of_class(kind)}({value.typecode!r}, {value.tolist()!r})"
        if kind.__module__ == "torch" and type(value).__name__ == "Tensor" and value.numel() <= NUMBERS_MAX:
            self.modules.add("torch")
            return f"torch.tensor({value.tolist()!r}, dtype={value.dtype})"
        if kind.__module__ == "torch" and kind.__name__ in ("dtype", "device", "Size"):
            self.modules.add("torch")
            return f"torch.{value!r}" if kind.__name__ == "device" else str(value)
        if is_dataclass(kind):
            parts = (f"{one.name}={self.text(getattr(value, one.name), depth)}" for one in fields(kind) if one.init)
            return f"{self.of_class(kind)}({', '.join(parts)})"
        return None

    def _is_read(self, thing: Any) -> bool:
        return not isinstance(thing, type) and id(thing) not in self._making

    def _path(self, value: Any) -> str | None:
        """How the object is reached from one that has a name."""
        left = deque((name, thing, 0) for name, thing in self._named.values() if self._is_read(thing))
        seen = {id(thing) for _, thing, _ in left}
        while left and len(seen) < LOOKED_AT_MAX:
            path, thing, depth = left.popleft()
            for step, part in parts_of(thing):
                if part is value:
                    return f"{path}{step}"
                if depth < PATH_MAX and id(part) not in seen and type(part) not in (*PLAIN, float):
                    seen.add(id(part))
                    left.append((f"{path}{step}", part, depth + 1))
        return None


def parts_of(thing: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds, each with the text that reads it of the object."""
    if isinstance(thing, list | tuple | deque):
        yield from ((f"[{number}]", part) for number, part in enumerate(thing))
    elif isinstance(thing, dict):
        yield from ((f"[{key!r}]", part) for key, part in thing.items() if type(key) in PLAIN)
    elif not isinstance(thing, type):
        yield from ((f".{name}", part) for name, part in attributes_of(thing).items())


def data_of(thing: Any) -> dict[str, Any]:
    """The attributes of an object, also those that its class computes; of an object of kvproof that stands in."""
    found = attributes_of(thing)
    for kind in type(thing).__mro__:
        for name, value in vars(kind).items():
            if not name.startswith("_") and name not in found and not callable(value):
                with suppress(Exception):  # a property that does not hold now
                    found[name] = getattr(thing, name)
    return {name: value for name, value in found.items() if not name.startswith("_") and not callable(value)}


def attributes_of(thing: Any) -> dict[str, Any]:
    """The attributes that an object holds itself, by name."""
    found = dict(getattr(thing, "__dict__", {}))
    for kind in type(thing).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            if not name.startswith("__") and hasattr(thing, name):
                found[name] = getattr(thing, name)
    return {name: value for name, value in found.items() if name.isidentifier() and not keyword.iskeyword(name)}
