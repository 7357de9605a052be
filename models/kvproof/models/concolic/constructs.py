"""What proved code may not contain, because Python would answer there without asking a symbolic value.

The code objects that ran are looked at, not the text, so that nothing stands between what is checked and what runs:

- `is` and `is not`, except with None: equal numbers are one object or two by accident;
- class patterns; `type`, `hash`, `id`, `hasattr` and all else that is not listed in `HARMLESS`;
- handlers of errors other than those of the block manager: they would catch what only symbolic values raise;
- names of the interpreter such as `__class__`, imports within a function, and classes that are made there;
- comparisons with None, where an unknown value may be None (`none_tests`);
- state outside of the objects that a proof knows: globals that change or can be changed, attributes of a class that
  can, defaults that can.

`isinstance` may stand there: a symbolic value refuses to be asked (`refusal`).
"""

import builtins
import dis
import enum
import heapq
import inspect
import sys
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from operator import itemgetter
from types import CodeType, FrameType, FunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import Any

from kvproof.impl.errors import BlockManagerError
from kvproof.models.concolic.refusal import MESSAGES, PROVED_CODE, is_proved_code, short

HARMLESS: tuple[Any, ...] = (  # they ask their arguments, or do not look at them
    *(abs, all, any, bool, bytes, bytearray, dict, enumerate, filter, frozenset, int, isinstance, iter, len, list, map),
    *(max, min, next, range, reversed, set, sorted, sum, super, tuple, zip),
    *(bisect_left, chain, deque, heapq, itemgetter),
)
# Comparisons of objects that are no numbers: the function, and the local that stands on the right.
IDENTITIES = {
    ("LRUEvictor.evict_many", "rank"): "a rank is a tuple, and an equal tuple of an earlier time is another one",
}
BY_CLASS = ("MATCH_CLASS", "MATCH_MAPPING", "MATCH_SEQUENCE")
READS_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME")
WRITES_OUTSIDE = ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_NAME", "IMPORT_NAME", "LOAD_BUILD_CLASS")
NAMES = ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR", "LOAD_SUPER_ATTR")
CHANGES = ("COPY", "STORE_ATTR", "DELETE_ATTR", "STORE_FAST", "STORE_SUBSCR")  # what was read, or name it anew
READS_PART = ("LOAD_ATTR", "LOAD_METHOD")
PASSED_OVER = ("CACHE", "PRECALL", "EXTENDED_ARG", "NOP", "RESUME", "PUSH_NULL")


@dataclass
class Ran:
    """The functions of proved code that ran: their code, and the globals that they read."""

    functions: dict[CodeType, dict[str, Any]] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)

    def refusals(self, others: tuple[Any, ...] = ()) -> list[str]:
        """What a proof of them cannot follow, each with file and line. others: globals that are harmless too."""
        found = dict[str, None]()
        for code, names in self.functions.items():
            if names.get("__name__") != MESSAGES:
                found |= dict.fromkeys(_refused(code, names, others))
                for codes in _FOLLOWED:
                    codes.add(code)
        return [*found, *self.changed]

    def none_tests(self) -> Iterator[tuple[str, str]]:
        """Each comparison with None: the attribute that is compared, empty if it is something else, and the place."""
        return (one for code in self.functions for one in _none_tests(code))


@contextmanager
def watched() -> Iterator[Ran]:
    """Collects the proved code that runs meanwhile."""
    ran = Ran()

    classes: dict[type, dict[str, Any]] = {}  # those that the code can reach, each with its attributes before

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        if frame.f_code not in ran.functions and is_proved_code(frame.f_globals):
            ran.functions[frame.f_code] = frame.f_globals
            for one in _classes_of(frame.f_code, frame.f_globals):
                classes.setdefault(one, dict(vars(one)))

    before = sys.gettrace()
    sys.settrace(trace if before is None else _both(trace, before))
    try:
        yield ran
    finally:
        sys.settrace(before)
        ran.changed += [
            f"the class {one.__name__} is changed" for one, parts in classes.items() if _is_changed(one, parts)
        ]


def _both(ours: Callable[..., None], theirs: Any) -> Any:
    """A trace function that calls both: a test that measures coverage goes on."""

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        ours(frame, event, argument)
        return theirs(frame, event, argument)

    return trace


_KNOWN: dict[CodeType, tuple[str, ...]] = {}
_FOLLOWED: list[set[CodeType]] = []


@contextmanager
def followed() -> Iterator[set[CodeType]]:
    """Collects the code of every function that proofs follow meanwhile."""
    codes: set[CodeType] = set()
    _FOLLOWED.append(codes)
    try:
        yield codes
    finally:
        _FOLLOWED.pop()


def _refused(code: CodeType, names: dict[str, Any], others: tuple[Any, ...]) -> tuple[str, ...]:
    if code not in _KNOWN:
        _KNOWN[code] = tuple(
            f"{what} ({short(code.co_filename)}:{line})" for what, line in _findings(code, names, others)
        )
    return _KNOWN[code]


def _findings(code: CodeType, names: dict[str, Any], others: tuple[Any, ...]) -> Iterator[tuple[str, int]]:
    line = code.co_firstlineno
    known = [one for one in dis.get_instructions(code) if one.opname not in PASSED_OVER]
    for place, one in enumerate(known):
        if one.positions is not None and one.positions.lineno is not None:
            line = one.positions.lineno
        before = known[place - 1] if place else None
        after = next((later for later in known[place + 1 :] if later.opname not in READS_PART), None)
        what = (
            _of_identity(code, one, before)
            or _of_names(code, one, after, names, others)
            or _of_handlers(one, before, known[place + 1 : place + 3], names)
        )
        if what:
            yield what, line
    yield from ((what, code.co_firstlineno) for what in _of_function(code))


def _of_identity(code: CodeType, one: dis.Instruction, before: dis.Instruction | None) -> str:
    if one.opname in BY_CLASS:
        return "a pattern asks for a class"
    if one.opname != "IS_OP" or before is None:
        return ""
    if before.opname.startswith("LOAD_CONST") and before.argval is None:
        return ""
    name = str(before.argval).rpartition(".")[2]
    return "" if (code.co_qualname, name) in IDENTITIES else "`is` compares objects, not numbers"


def _of_names(
    code: CodeType, one: dis.Instruction, after: dis.Instruction | None, names: dict[str, Any], others: tuple[Any, ...]
) -> str:
    if one.opname in WRITES_OUTSIDE:
        return "an import, a class or a global variable is changed within the function"
    if one.opname in ("STORE_DEREF", "DELETE_DEREF") and one.argval in code.co_freevars:
        return f"{one.argval} of the function around it is changed"
    if one.opname in NAMES and _is_special(str(one.argval)):
        return f"{one.argval} is read or written"
    if one.opname not in READS_GLOBAL:
        return ""
    value = names.get(one.argval, vars(builtins).get(one.argval))
    if _is_ours(value) and after is not None and after.opname in CHANGES:
        return f"{one.argval}, a class or function, is changed or has a second name"
    is_known = any(value is harmless for harmless in (*HARMLESS, *others))
    return "" if is_known or _is_constant(value) or _is_ours(value) or _is_error(value) else f"{one.argval} is used"


def _of_handlers(
    one: dis.Instruction, before: dis.Instruction | None, following: list[dis.Instruction], names: dict[str, Any]
) -> str:
    """Errors of symbolic values would be caught, unless each handler names an error of the block manager."""
    if one.opname == "PUSH_EXC_INFO":
        is_named = len(following) == 2 and following[1].opname == "CHECK_EXC_MATCH"
        return "" if is_named else "every error is caught, or something is done after any"
    if one.opname != "CHECK_EXC_MATCH":
        return ""
    value = names.get(str(before.argval)) if before is not None and before.opname in READS_GLOBAL else None
    is_ours = isinstance(value, type) and issubclass(value, BlockManagerError)
    return "" if is_ours else "an error that is not one of the block manager is caught"


def _of_function(code: CodeType) -> Iterator[str]:
    """Defaults of the function, and attributes of its class, that can be changed."""
    function, owner = _functions().get(code, (None, None))
    if function is not None:
        defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        if not all(_is_constant(one) for one in defaults):
            yield f"{function.__qualname__} has a default that can change"
    for name, value in vars(owner).items() if owner is not None else ():
        if not (_is_special(name) or _is_constant(value) or _is_part(value)):
            yield f"{name} of {owner.__name__} belongs to the class, and can change"  # type: ignore[union-attr]


@cache
def _none_tests(code: CodeType) -> tuple[tuple[str, str], ...]:
    found = []
    known = [one for one in dis.get_instructions(code) if one.opname not in PASSED_OVER]
    for value, one, after in zip(known, known[1:], [*known[2:], None], strict=False):
        is_none = one.opname == "LOAD_CONST" and one.argval is None
        if (is_none and after is not None and after.opname == "IS_OP") or "_NONE" in one.opname:
            line = one.positions.lineno if one.positions is not None else code.co_firstlineno
            attribute = str(value.argval) if value.opname in NAMES else ""
            found.append((attribute, f"{short(code.co_filename)}:{line}"))
    return tuple(found)


_REACHED: dict[CodeType, tuple[type, ...]] = {}


def _classes_of(code: CodeType, names: dict[str, Any]) -> tuple[type, ...]:
    """The classes of the package that a function can reach: those that it names, and its own."""
    if code not in _REACHED:
        found = [*(names.get(name) for name in code.co_names), _functions().get(code, (None, None))[1]]
        _REACHED[code] = tuple(dict.fromkeys(one for one in found if isinstance(one, type) and _is_ours(one)))
    return _REACHED[code]


@cache
def _functions() -> dict[CodeType, tuple[FunctionType | None, type | None]]:
    """Each function of the package by its code, with the class that it belongs to."""
    found: dict[CodeType, tuple[FunctionType | None, type | None]] = {}
    for name, module in list(sys.modules.items()):
        if not is_proved_code({"__name__": name}):
            continue
        for value in list(vars(module).values()):
            if isinstance(value, FunctionType):
                found.setdefault(value.__code__, (value, None))
            for part in vars(value).values() if isinstance(value, type) and _is_ours(value) else ():
                part = inspect.unwrap(getattr(part, "fget", getattr(part, "__func__", part)))
                if isinstance(part, FunctionType):
                    found[part.__code__] = part, value
    return found


def _is_changed(kind: type, before: dict[str, Any]) -> bool:
    """Whether a class has other attributes than before, not counting those that the interpreter makes."""
    if vars(kind) == before:
        return False
    names = (name for name in vars(kind).keys() | before.keys() if not _is_special(name))
    return any(vars(kind).get(name) is not before.get(name) for name in names)


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name != "__init__"


def _is_ours(value: Any) -> bool:
    """Whether it is a function or class of the package; it is looked at when it runs."""
    is_callable = isinstance(value, (type, FunctionType))
    return is_callable and is_proved_code({"__name__": getattr(value, "__module__", "")})


def _is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def _is_part(value: Any) -> bool:
    return isinstance(
        value, (FunctionType, property, staticmethod, classmethod, MemberDescriptorType, GetSetDescriptorType)
    )


def _is_constant(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(_is_constant(one) for one in value)
    return value is None or isinstance(value, (int, float, str, bytes, enum.Enum))


__all__ = ["HARMLESS", "IDENTITIES", "PROVED_CODE", "Ran", "watched"]
