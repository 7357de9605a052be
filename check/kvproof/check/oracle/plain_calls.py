"""The calls that an adapter makes on the objects of its manager, as Python text.

A run is repeated on the subject, and each call is noted that goes from the adapter to the manager, with its arguments
and its answer. What the adapter changes in an object between two calls is noted too. Together they are the run without
the adapter: a script that needs no kvproof (`counterexample/plain_script.py`).
"""

import dis
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType
from typing import Any

from kvproof.check.hosts.time_limit import OutOfTime, time_limit_of
from kvproof.check.oracle.level import level_of_config
from kvproof.check.oracle.method_called import CallWatcher
from kvproof.check.oracle.plain_claim import claim_of
from kvproof.check.oracle.plain_values import PLAIN, Names, NotWritten, attributes_of, data_of, is_of_kvproof, is_plain
from kvproof.check.oracle.replay import Counterexample, applied
from kvproof.check.protocol.adapter_fault import is_adapter
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Unsupported

LINES_MAX, ANSWER_CHARACTERS = 2000, 60
READS = "len eq hash repr str iter next getitem contains bool lt"
NOTHING = "..."  # in place of a call that is not written
COPIED = (list, dict, set, deque)


@dataclass
class PlainLine:
    """A line of the run. step: the number of the operation, 0 for `open`. call: of the protocol, in which it was
    made. code: without what its answer is called. answer: as text, if it is plain. is_raised: it raised."""

    step: int
    call: str
    code: str
    answer: str = ""
    is_raised: bool = False


@dataclass
class PlainRun:
    """A run as calls of the manager's own objects.

    imports: module, name in it and name in the script. files: of these modules. defined: lines that define classes.
    claim: lines that fail while the manager is broken. missing: what could not be written, as sentences.
    """

    lines: list[PlainLine] = field(default_factory=list)
    imports: list[tuple[str, str, str]] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    defined: list[str] = field(default_factory=list)
    claim: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def plain_run(subject: Any, found: Counterexample) -> PlainRun:
    """The run of a counterexample as calls of the manager's own objects."""
    if getattr(subject, "is_program", False):
        return PlainRun(missing=["the manager is a program behind a pipe"])
    level = level_of_config(found.config)
    calls, finding = WrittenCalls(subject, level.calls.all), None
    try:
        with time_limit_of(calls, level.replay_seconds_max * 4) as start_time:
            enabled = applied(level.open(calls, found.config), found.config, found.operations, start_time)
            for calls.step, _ in enumerate(found.operations, start=1):
                next(enabled)
    except Finding as refuted:
        finding = refuted
    except (Unsupported, OutOfTime) as error:
        calls.lack(f"the run could not be repeated ({type(error).__name__})")
    if finding is None:
        calls.lack("the run, repeated here, refutes nothing")
        return calls.done([])
    if not calls.lines:
        what = "the adapter calls nothing of a manager in Python" if is_adapter(subject) else "no call of it was seen"
        calls.lack(f"{what}: either the subject is itself the manager, or the manager is native code")
        return calls.done([])
    calls.write_changes("observe")
    last = [line for line in calls.lines if line.step == calls.step]
    results = [(name, value) for step, name, value in calls.results if step == calls.step]
    try:
        claim = claim_of(subject, calls.names, finding, last, results)
    except NotWritten as lacking:
        calls.lack(str(lacking))
        claim = []
    except Exception as error:  # what a foreign object does when it is looked at
        calls.lack(f"what the manager shows cannot be read again ({type(error).__name__})")
        claim = []
    return calls.done(claim)


class WrittenCalls(CallWatcher):
    """A subject whose calls of its manager are written as text. step: the number of the operation."""

    def __init__(self, subject: Any, names: Sequence[str]) -> None:
        super().__init__(subject, names)
        self.names, self.lines, self.step = Names(), list[PlainLine](), 0
        self.results: list[tuple[int, str, Any]] = []  # of the last step
        self._missing: dict[str, None] = {}
        self._inside: FrameType | None = None
        self._line: PlainLine | None = None
        self._before: dict[int, dict[str, Any]] = {}

    def lack(self, sentence: str) -> None:
        """Note something that cannot be written."""
        self._missing.setdefault(sentence)

    def done(self, claim: list[str]) -> PlainRun:
        """What was written."""
        imports = [(module, name, given) for (module, name), given in self.names.imports.items()]
        files = {one: str(getattr(sys.modules.get(one), "__file__", None) or "") for one, _, _ in imports}
        defined = [*(f"import {one}" for one in sorted(self.names.modules)), *self.names.defined]
        return PlainRun(self.lines, imports, files, defined, claim, list(self._missing))

    def pass_on(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Make the call, and write what it calls of the manager."""

        def note(frame: FrameType, event: str, argument: Any) -> None:
            if event == "call" and self._inside is None and len(self.lines) < LINES_MAX:
                is_named = bool(frame.f_globals.get("__name__"))  # the rules of the specification are not
                if is_named and self._is_of_manager(frame) and self._is_called_by_subject(frame):
                    self._inside = frame
                    self._begin(name, frame)
            elif event == "return" and frame is self._inside:
                self._end(frame, argument)
                self._inside = None

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            return call(*arguments)
        finally:
            sys.setprofile(before)
            self._inside = None

    def _begin(self, call: str, frame: FrameType) -> None:
        self.write_changes(call)
        self._line = None
        try:
            code = self._call(frame)
        except NotWritten as lacking:
            self.lack(f"{frame.f_code.co_qualname} gets {lacking}")
            code = f"{NOTHING}  # {frame.f_code.co_qualname}, with {lacking}"
        except Exception as error:  # what a foreign object does when it is looked at
            self.lack(f"{frame.f_code.co_qualname} cannot be written ({type(error).__name__})")
            code = NOTHING
        self.lines += [PlainLine(self.step, call, one) for one in self.names.pending]
        self.names.pending.clear()
        if code:
            self._line = PlainLine(self.step, call, code)

    def _end(self, frame: FrameType, value: Any) -> None:
        line = self._line
        if line is None:
            return
        line.is_raised = not dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("RETURN")
        if frame.f_code.co_name == "__init__":
            made = next(iter(frame.f_locals.values()))
            line.code = f"{self.names.give(made)} = {line.code}"
        elif is_plain(value):
            text = repr(value)
            line.answer = text if value is not None and len(text) <= ANSWER_CHARACTERS else ""
        elif not self.names.is_known(value) and not is_of_kvproof(type(value).__module__):
            name = self.names.give(value, frame.f_code.co_name)
            line.code = f"{name} = {line.code}"
            self.results = [*(one for one in self.results if one[0] == self.step), (self.step, name, value)]
        self.lines.append(line)
        if len(self.lines) == LINES_MAX:
            self.lack(f"the run makes more than {LINES_MAX} calls of the manager")
        self._before = {id(thing): _snapshot(thing) for _, thing in self.names.objects()}

    def write_changes(self, call: str) -> None:
        """Write what the adapter has changed in an object since the last call."""
        for name, thing in self.names.objects():
            before, now = self._before.get(id(thing)), _snapshot(thing)
            if before is None:
                continue
            for attribute, (value, _) in now.items():
                if _is_same(before.get(attribute), now[attribute]):
                    continue
                try:
                    code = f"{name}.{attribute} = {self.names.text(value)}"
                except NotWritten as lacking:
                    self.lack(f"the adapter sets {attribute} of {type(thing).__name__} to {lacking}")
                    continue
                self.lines += [PlainLine(self.step, call, one) for one in (*self.names.pending, code)]
                self.names.pending.clear()
            self._before[id(thing)] = now

    def _call(self, frame: FrameType) -> str:
        """The call that a frame begins; empty if it only reads. Raises NotWritten."""
        code, own = frame.f_code, self._owner(frame)
        if code.co_flags & (0x20 | 0x80 | 0x200):
            raise NotWritten("the way of a generator or a coroutine")
        if code.co_name == "__init__":
            kind = type(own)
            return f"{self.names.of_class(kind)}({self._arguments(frame, kind.__init__, 1)})"
        if own is None:
            function = frame.f_globals.get(code.co_name)
            return f"{self.names.text(function)}({self._arguments(frame, function, 0)})"
        kind = own if isinstance(own, type) else type(own)
        name, found = _attribute(kind, code)
        if isinstance(found, property) or name.strip("_") in READS.split():
            return ""
        receiver = self._receiver(own)
        arguments = self._arguments(frame, found, 1)
        if name == "__setitem__":
            key, value = arguments.split(", ", 1)
            return f"{receiver}[{key}] = {value}"
        return f"{receiver}({arguments})" if name == "__call__" else f"{receiver}.{name}({arguments})"

    def _owner(self, frame: FrameType) -> Any:
        code, values = frame.f_code, frame.f_locals
        if code.co_argcount:
            first = values.get(code.co_varnames[0])
        else:  # a wrapper, such as that of a decorator
            packed = values.get(code.co_varnames[code.co_kwonlyargcount]) if code.co_flags & 0x04 else ()
            first = packed[0] if packed else None
        kind = first if isinstance(first, type) else type(first)
        return first if first is not None and _attribute(kind, code)[1] is not None else None

    def _receiver(self, own: Any) -> str:
        try:
            return self.names.text(own)
        except NotWritten:
            kind = type(own)
            if kind.__init__ is not object.__init__ or is_of_kvproof(kind.__module__):
                raise NotWritten(f"an object of {kind.__qualname__} that was not seen being made") from None
        self.lines.append(PlainLine(self.step, "open", f"{self.names.give(own)} = {self.names.of_class(kind)}()"))
        return self.names.text(own)

    def _arguments(self, frame: FrameType, function: Any, num_own: int) -> str:
        code, values = frame.f_code, frame.f_locals
        function = getattr(function, "__func__", function)
        names = code.co_varnames[: code.co_argcount]
        parts, is_gap = list[str](), False
        for name, default in zip(names, _defaults(function, len(names)), strict=True):
            if name in names[:num_own]:
                continue
            if values[name] is default or (type(default) in PLAIN and values[name] == default):
                is_gap = True
            else:
                parts.append(f"{name}={self.names.text(values[name])}" if is_gap else self.names.text(values[name]))
        named = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        after = code.co_argcount + code.co_kwonlyargcount
        if code.co_flags & 0x04:
            packed = values[code.co_varnames[after]][num_own if not names else 0 :]
            parts += [self.names.text(value) for value in packed]
            after += 1
        usual = getattr(function, "__kwdefaults__", None) or {}
        parts += [f"{one}={self.names.text(values[one])}" for one in named if values[one] is not usual.get(one, usual)]
        if code.co_flags & 0x08:
            parts += [f"{one}={self.names.text(value)}" for one, value in values[code.co_varnames[after]].items()]
        return ", ".join(parts)


def _attribute(kind: type, code: CodeType) -> tuple[str, Any]:
    """The name of the method or property of a class that has this code."""
    for one in kind.__mro__:
        for name, value in vars(one).items():
            function = getattr(value, "__func__", getattr(value, "fget", value))
            while isinstance(function, FunctionType):
                if function.__code__ is code:
                    return name, value
                function = getattr(function, "__wrapped__", None)
    return "", None


def _defaults(function: Any, num_names: int) -> list[Any]:
    """The default of each parameter; for one without, something that no argument is."""
    known = tuple(getattr(function, "__defaults__", None) or ())[-num_names:] if num_names else ()
    return [object()] * (num_names - len(known)) + list(known)


def _snapshot(thing: Any) -> dict[str, Any]:
    """The attributes of an object, each with a copy if it is a list or the like."""
    module = type(thing).__module__
    if isinstance(thing, type) or module == "builtins":
        return {}
    found: dict[str, Any] = {}
    with suppress(Exception):  # what a foreign object does when it is looked at
        for name, value in (data_of if is_of_kvproof(module) else attributes_of)(thing).items():
            found[name] = value, (type(value)(value) if type(value) in COPIED else None)
    return found


def _is_same(old: tuple[Any, Any] | None, new: tuple[Any, Any]) -> bool:
    if old is None:
        return False
    is_listed = type(new[0]) in COPIED or is_plain(new[0])
    is_one = old[0] is new[0] or (is_listed and type(old[0]) is type(new[0]) and old[0] == new[0])
    with suppress(Exception):  # a foreign object may not be comparable
        return is_one and (old[1] is None or bool(old[1] == new[1]))
    return True
