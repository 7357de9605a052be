"""Which method of the manager was called when a property broke, and where it is.

A run is repeated on the subject, and each call of a Python function that the subject makes is noted: these are the
methods of the manager behind the adapter. A manager in native code has none that can be seen.
"""

import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from kvproof.check.hosts.time_limit import OutOfTime, time_limit_of
from kvproof.check.oracle.level import level_of_config
from kvproof.check.oracle.replay import Counterexample, applied, is_hang
from kvproof.check.protocol.adapter_fault import defined_at, is_neutral, place_of, self_of, shown
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Unsupported
from kvproof.spec.trace import CodePlace

ONLY_LOOK = ("observe", "observe_part", "step_scheduled")  # calls that change nothing
QUESTIONS = ("can_admit", "can_append", "can_swap_out", "can_swap_in", "hits", "forget")
CALL = re.compile(r"(\w+)(?:\(| only asks)")  # how a finding names one
ADAPTERS = "kvproof.check.subjects."
Methods = list[tuple[str, CodePlace]]  # each with the call of the protocol in which it was called


class CallWatcher:
    """A subject that notes which functions it calls in each call of the protocol."""

    def __init__(self, subject: Any, names: tuple[str, ...]) -> None:
        self._subject, self._names = subject, frozenset(names)
        self.methods: Methods = []
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._subject, name)
        return self._watched(name, found) if name in self._names and callable(found) else found

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def note(frame: FrameType, event: str, argument: Any) -> None:
            if event == "call" and self._is_called_by_subject(frame):
                self.methods.append((name, place_of(frame)))

        def watched(*arguments: Any) -> Any:
            self.calls.append(name)
            before = sys.getprofile()
            sys.setprofile(note)
            try:
                return call(*arguments)
            finally:
                sys.setprofile(before)

        return watched

    def _is_called_by_subject(self, frame: FrameType) -> bool:
        caller = frame.f_back
        while caller is not None and self._is_passed_over(caller):
            caller = caller.f_back
        if caller is None or self_of(caller) is not self._subject or self_of(frame) is self._subject:
            return False
        return not self._is_passed_over(frame) and not is_neutral(frame)

    def _is_passed_over(self, frame: FrameType) -> bool:
        """Whether the frame is a comprehension, or belongs to kvproof's own adapters without being the subject."""
        module = str(frame.f_globals.get("__name__", ""))
        is_helper = module.startswith(ADAPTERS) and self_of(frame) is not self._subject
        return is_helper or frame.f_code.co_name.startswith("<")


def method_called(subject: Any, found: Counterexample) -> tuple[CodePlace | None, list[CodePlace]]:
    """The method in which the run broke, and the frames of the exception that it raised, if it raised one.

    If no method was called in the last operation, it is the last one before that changed something; if none is known at
    all, the call of the adapter. Nothing is known of the code of a program.
    """
    if getattr(subject, "is_program", False):
        return None, []
    if is_hang(found.finding):
        return stood_in(found.finding)
    level = level_of_config(found.config)
    watcher = CallWatcher(subject, level.calls.all)
    earlier: Methods = []
    try:
        with time_limit_of(watcher, level.replay_seconds_max) as start_time:
            judge = level.open(watcher, found.config)
            enabled = applied(judge, found.config, found.operations, start_time)
            for _ in found.operations:
                earlier, watcher.methods, watcher.calls = [*earlier[-1:], *_changing(watcher.methods)], [], []
                next(enabled)
    except Finding as finding:
        return _method(subject, finding, watcher, earlier), list(finding.frames)
    except (Unsupported, OutOfTime):
        pass
    return None, []


def stood_in(finding: Finding) -> tuple[CodePlace | None, list[CodePlace]]:
    """The outermost known frame of a call that did not return, and those inside of it."""
    return (finding.frames[0] if finding.frames else None), list(finding.frames[1:])


def _method(subject: Any, finding: Finding, watcher: CallWatcher, earlier: Methods) -> CodePlace | None:
    own = {shown(file) for kind in type(subject).__mro__ if (file := _file_of(kind))}

    def first_of(call: str, methods: Methods) -> CodePlace | None:
        """The first method in the call, preferably not one of a helper of the adapter; of an exception, the last."""
        places = [place for name, place in methods if name == call]
        places = [place for place in places if place.file not in own] or places
        is_raised = finding.frames and call != question
        return (places[-1] if is_raised else places[0]) if places else None

    question = finding.promise.partition("(")[0]
    for call in (question, finding.cause.partition(" ")[0], *CALL.findall(finding.text)[:1]):
        if call in watcher.calls:
            return first_of(call, watcher.methods) or defined_at(subject, call)
    methods = _changing(watcher.methods) or earlier or watcher.methods
    if methods:
        return first_of(methods[-1][0], methods)
    calls = [call for call in watcher.calls if call not in ONLY_LOOK + QUESTIONS]
    return defined_at(subject, calls[-1]) if calls else None


def _file_of(kind: type) -> str:
    return str(getattr(sys.modules.get(kind.__module__), "__file__", None) or "")


def _changing(methods: Methods) -> Methods:
    return [(call, place) for call, place in methods if call not in ONLY_LOOK + QUESTIONS]
