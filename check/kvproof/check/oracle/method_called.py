"""Which method of the manager was called when a property broke, and where it is.

A run is repeated on the subject, and each call of a Python function that the subject makes is noted: these are the
methods of the manager behind the adapter. The functions that they enter in turn are noted with their lines, because
what is wrong often is in one of them. A manager in native code has none that can be seen.
"""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from kvproof.check.hosts.time_limit import OutOfTime, time_limit_of
from kvproof.check.oracle.earlier_change import OBSERVES, earlier_change
from kvproof.check.oracle.level import level_of_config
from kvproof.check.oracle.replay import Counterexample, WatchedSubject, applied, is_hang
from kvproof.check.protocol.adapter_fault import defined_at, is_neutral, place_of, self_of, shown
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Unsupported
from kvproof.spec.trace import CodePlace, EarlierChange, EnteredCode, Operation

ONLY_LOOK = (*OBSERVES, "step_scheduled")  # calls that change nothing
QUESTIONS = ("can_admit", "can_append", "can_swap_out", "can_swap_in", "hits", "forget", "check")
CALL = re.compile(r"\b(\w+)(?:\(| only asks)")  # how a finding names one
ADAPTERS = "kvproof.check.subjects."
ENTERED_MAX = 8  # functions that a report names
Methods = list[tuple[str, CodePlace]]  # each with the call of the protocol in which it was called


@dataclass
class Blame:
    """Where a run breaks; the fields of `Trace` that say it."""

    method: CodePlace | None = None
    frames: list[CodePlace] = field(default_factory=list)
    earlier: EarlierChange | None = None
    entered: list[EnteredCode] = field(default_factory=list)


class CallWatcher(WatchedSubject):
    """A subject that notes which functions it calls in each call of the protocol, and which ones are entered in turn.

    What is noted is of one operation: who drives the subject calls `begin` before the next one.
    """

    def __init__(self, subject: Any, names: Sequence[str]) -> None:
        super().__init__(subject, names)
        self._depth = 0
        self.begin()

    def begin(self) -> None:
        """An operation begins."""
        self.methods: Methods = []
        self.calls: list[str] = []
        self._entered: dict[tuple[str, CodeType], tuple[int, CodePlace]] = {}  # with the greatest depth

    def entered_from(self, method: CodePlace) -> list[EnteredCode]:
        """The functions that the first call of the protocol in which the method was called entered, innermost first.

        The method itself is the last one.
        """
        call = next((name for name, place in self.methods if place == method), None)
        mine = [(depth, code, place) for (name, code), (depth, place) in self._entered.items() if name == call]
        inner = [one for one in mine if one[2] != method and not one[1].co_name.startswith("__")]
        inner = sorted(inner, key=lambda one: -one[0])[: ENTERED_MAX - 1]
        chosen = [*inner, *(one for one in mine if one[2] == method)]
        return [EnteredCode(place.function, place.file, place.line, _last_line(code)) for _, code, place in chosen]

    def pass_on(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Make the call, and note which functions it enters."""

        def note(frame: FrameType, event: str, argument: Any) -> None:
            if event not in ("call", "return") or not self._is_of_manager(frame):
                return
            if event == "return":
                self._depth -= 1
                return
            self._depth += 1
            depth, place = self._entered.get((name, frame.f_code), (0, None))
            place = place or place_of(frame)
            self._entered[name, frame.f_code] = max(depth, self._depth), place
            if self._is_called_by_subject(frame):
                self.methods.append((name, place))

        self.calls.append(name)
        before, self._depth = sys.getprofile(), 0
        sys.setprofile(note)
        try:
            return call(*arguments)
        finally:
            sys.setprofile(before)

    def _is_called_by_subject(self, frame: FrameType) -> bool:
        caller = frame.f_back
        while caller is not None and self._is_passed_over(caller):
            caller = caller.f_back
        return caller is not None and self_of(caller) is self._subject

    def _is_of_manager(self, frame: FrameType) -> bool:
        """Whether the frame executes a function of the manager, and not one of the adapter, of kvproof or of Python."""
        return not (self._is_passed_over(frame) or is_neutral(frame) or self_of(frame) is self._subject)

    def _is_passed_over(self, frame: FrameType) -> bool:
        """Whether the frame is a comprehension, or belongs to kvproof's own adapters without being the subject."""
        module = str(frame.f_globals.get("__name__", ""))
        is_helper = module.startswith(ADAPTERS) and self_of(frame) is not self._subject
        return is_helper or frame.f_code.co_name.startswith("<")


def method_called(subject: Any, found: Counterexample) -> Blame:
    """The method in which the run broke, and the frames of the exception that it raised, if it raised one.

    If no method was called in the last operation, it is the last one before that changed something; if none is known at
    all, the call of the adapter. If an earlier call made the change that the run shows, it is the method of that call.
    Nothing is known of the code of a program.
    """
    if getattr(subject, "is_program", False):
        return Blame()
    if is_hang(found.finding):
        return stood_in(found.finding)
    watcher, earlier, finding = _watched(subject, found, found.operations)
    if finding is None:
        return Blame()
    blame = Blame(_method(subject, finding, watcher, earlier), list(finding.frames))
    change = earlier_change(subject, found) if {*OBSERVES} & {*watcher.calls[-1:]} else None
    if change is not None:
        is_last = change.step == len(found.operations)
        at_change = watcher if is_last else _watched(subject, found, found.operations[: change.step])[0]
        method = _first_of(subject, change.call, at_change.methods) or defined_at(subject, change.call)
        if method is not None and not (is_last and method == blame.method):
            watcher, blame.method, blame.earlier = at_change, method, change
    if blame.method is not None:
        blame.entered = watcher.entered_from(blame.method)
    return blame


def _watched(
    subject: Any, found: Counterexample, operations: Sequence[Operation]
) -> tuple[CallWatcher, Methods, Finding | None]:
    """What is called in the last of these operations, the methods before it that changed something, and the finding."""
    level = level_of_config(found.config)
    watcher = CallWatcher(subject, level.calls.all)
    earlier: Methods = []
    try:
        with time_limit_of(watcher, level.replay_seconds_max) as start_time:
            judge = level.open(watcher, found.config)
            enabled = applied(judge, found.config, operations, start_time)
            for _ in operations:
                earlier = [*earlier[-1:], *_changing(watcher.methods)]
                watcher.begin()
                next(enabled)
    except Finding as finding:
        return watcher, earlier, finding
    except (Unsupported, OutOfTime):
        pass
    return watcher, earlier, None


def stood_in(finding: Finding) -> Blame:
    """The outermost known frame of a call that did not return, and those inside of it."""
    return Blame(finding.frames[0] if finding.frames else None, list(finding.frames[1:]))


def _method(subject: Any, finding: Finding, watcher: CallWatcher, earlier: Methods) -> CodePlace | None:
    question = finding.promise.partition("(")[0]
    for call in (question, finding.cause.partition(" ")[0], *CALL.findall(finding.text)[:1]):
        if call in watcher.calls:
            is_raised = bool(finding.frames) and call != question
            return _first_of(subject, call, watcher.methods, is_raised) or defined_at(subject, call)
    methods = _changing(watcher.methods) or earlier or watcher.methods
    if methods:
        return _first_of(subject, methods[-1][0], methods, bool(finding.frames) and methods[-1][0] != question)
    calls = [call for call in watcher.calls if call not in ONLY_LOOK + QUESTIONS]
    return defined_at(subject, calls[-1]) if calls else None


def _first_of(subject: Any, call: str, methods: Methods, is_raised: bool = False) -> CodePlace | None:
    """The first method in the call, preferably not one of a helper of the adapter; the last one if it raised."""
    own = {shown(file) for kind in type(subject).__mro__ if (file := _file_of(kind))}
    places = [place for name, place in methods if name == call]
    places = [place for place in places if place.file not in own] or places
    return (places[-1] if is_raised else places[0]) if places else None


def _last_line(code: CodeType) -> int:
    return max((line for _, _, line in code.co_lines() if line), default=code.co_firstlineno)


def _file_of(kind: type) -> str:
    return str(getattr(sys.modules.get(kind.__module__), "__file__", None) or "")


def _changing(methods: Methods) -> Methods:
    return [(call, place) for call, place in methods if call not in ONLY_LOOK + QUESTIONS]
