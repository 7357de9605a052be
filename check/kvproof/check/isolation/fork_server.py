"""The fork server process: it imports a subject once, and forks a process with a fresh one on each request.

It is run as `python -m kvproof.check.isolation.fork_server FD`; FD is a socket to the process that wants the subject.
What the forks need alike is there before the first of them: the rules of the level, compiled, and objects that the
garbage collector of a fork leaves alone.

A fork serves calls of its subject and whole searches to the process that asked for it. The answer to a call is what the
subject answered or raised. The answer to a search is its result, or the reason why it could not be done. A fault of the
judge is reported with its traceback, as it would be in one process.
"""

import gc
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import inf
from time import monotonic
from typing import Any

from kvproof.check.hosts.channel import Connection
from kvproof.check.hosts.fork_server import ForkServer, ending_with
from kvproof.check.hosts.garbage_collection import collecting_seldom
from kvproof.check.hosts.interrupt import INTERRUPT, TERMINATE, leave_to_parent
from kvproof.check.hosts.time_limit import OutOfTime, calls_interrupted_after, leave_time_to_parent, limit_memory
from kvproof.check.isolation.factory import made_here
from kvproof.check.isolation.journal import Journal, write_frames_on_signal
from kvproof.check.isolation.messages import ENDED, SEARCH, pack, unpack
from kvproof.check.oracle.level import Level, level_of
from kvproof.check.oracle.method_called import method_called
from kvproof.check.oracle.plain_calls import plain_run
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.oracle.subject_calls import SubjectCalls, call_text
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.adapter_fault import (
    about_refusals,
    foreign_place,
    located,
    require_fault_of_manager,
    where_raised,
)
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.fault_attribution import StandInError, require_fault_of_subject
from kvproof.check.protocol.finding import AdapterError, Finding, error_text
from kvproof.check.protocol.manager import OutsideContract, Unsupported
from kvproof.check.protocol.outside_contract import is_outside_contract
from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.exhaustive.subject import explore
from kvproof.check.search.random_walk import WalkOptions, walk
from kvproof.check.search.shrinking import shortest
from kvproof.check.search.strategies import STRATEGIES
from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.registry import Factory

TEXT_MAX = 4000
CHANGED = "a second subject of the same name declares other capabilities than the first: "

NUM_NEW_OBJECTS = 200_000  # between two collections while a subject is imported, which makes hardly any garbage


def serve(connection: Connection, factory: Factory, journal: Journal, declared: Capabilities) -> None:
    """Answer requests until the other process closes the connection.

    declared: the capabilities of the first subject; what is expected of a run is made of them.
    """
    leave_time_to_parent()
    subject: Any = None
    changed = ""
    while (request := connection.receive()) is not None:
        try:
            if subject is None:
                subject = factory()
                changed = fields_that_differ(declared, capabilities_of(subject))
            kind, name, arguments = request
            done = ["adapter", CHANGED + changed] if changed else _done(subject, kind, name, arguments, journal)
        except UnknownSubject as error:
            done = ["unknown", str(error)]
        connection.send(done)


def _done(subject: Any, kind: str, name: str, arguments: list[Any], journal: Journal) -> list[Any]:
    """The answer to a request. A subject that looks for who calls it finds here no function for calls alone."""
    is_call, ends, given, named = kind == "call", inf, arguments, dict[str, Any]()
    try:
        if is_call:
            given = [unpack(argument) for argument in arguments]
            work = getattr(subject, name)
        else:
            given, named = [subject, journal], {key: unpack(value) for key, value in arguments}
            work, ends = SEARCHES[name], monotonic() + named.get("seconds", inf)
        with calls_interrupted_after(ends - monotonic(), SubjectCalls.call.__code__):
            return ["done", pack(work(*given, **named))]
    except Unsupported as error:
        return ["unsupported", _text(error)]
    except AdapterError as error:
        return ["adapter", _text(located(error, subject))]
    except BaseException as error:
        return _raised_by_call(error, subject, name, given) if is_call else _raised_by_search(error, ends)


def _raised_by_call(error: BaseException, subject: Any, name: str, arguments: list[Any]) -> list[Any]:
    """What is sent of an exception, SystemExit too: it is the judge who says what that means."""
    if isinstance(error, Finding):
        return ["finding", pack(error)]
    try:
        if isinstance(error, OutsideContract) and is_outside_contract(error, name, subject):
            return ["contract", error.assumption, str(error.sentence)[:TEXT_MAX]]
        require_fault_of_subject(error, name)
        require_fault_of_manager(error, call_text(name, tuple(arguments)), subject)
    except StandInError as fault:
        return ["stand-in", _text(fault)]
    except AdapterError as fault:
        return ["adapter", _text(fault)]
    return ["raised", type(error).__name__, _text(error), about_refusals(name, subject), where_raised(error)]


def _raised_by_search(error: BaseException, ends: float) -> list[Any]:
    """What is sent of an exception that ended a search. ends: its time. Raises what is no answer."""
    if isinstance(error, OutOfTime) and monotonic() >= ends:
        return ENDED
    if isinstance(error, StandInError):
        return ["stand-in", _text(error)]
    if isinstance(error, MemoryError):
        return ["memory"]
    if not isinstance(error, Exception):  # of the subject, such as OutOfTime before it is time
        raise error
    if (place := foreign_place(error)) is not None:
        return ["adapter", f"{place} raised {type(error).__name__} where no call was asked for: {_text(error)}"]
    return ["fault", "".join(traceback.format_exception(error))[-TEXT_MAX:]]


def _text(error: BaseException) -> str:
    return error_text(error)[:TEXT_MAX].encode("utf-8", "backslashreplace").decode("utf-8")


def _walk(subject: Any, journal: Journal, *, level: str, seed: int, options: dict[str, Any], **limits: Any) -> Any:
    disabled = frozenset(options.pop("disabled"))
    here = WalkOptions(begin=journal.begin, keep=journal.keep, disabled=disabled, **options)
    done = walk(STRATEGIES[level], subject, seed, options=here, **limits)
    if (found := done.counterexample) is not None:
        done.counterexample = replace(found, operations=list(found.operations))  # without its journal
    return done


def _explore(subject: Any, journal: Journal, *, level: str, scope: Scope, **limits: Any) -> Any:
    return explore(STRATEGIES[level], subject, scope, begin=journal.begin, **limits)


def _shortest(subject: Any, journal: Journal, *, level: str, found: Counterexample, **limits: Any) -> Any:
    return shortest(STRATEGIES[level], lambda: subject, found, begin=journal.begin, **limits)


def _method_called(subject: Any, journal: Journal, *, found: Counterexample) -> Any:
    return method_called(subject, found)


def _plain_run(subject: Any, journal: Journal, *, found: Counterexample) -> Any:
    return plain_run(subject, found)


SEARCHES: dict[str, Callable[..., Any]] = {
    "walk": _walk,
    "explore": _explore,
    "shortest": _shortest,
    "method_called": _method_called,
    "plain_run": _plain_run,
}


def main(descriptor: int) -> None:
    """Create the subject, describe it to the parent, and fork until the parent closes the socket."""
    leave_to_parent(INTERRUPT, TERMINATE)
    with socket.socket(fileno=descriptor) as stream:  # closed at the end, or Python may warn of it
        _make_and_fork(Connection(stream))


def _make_and_fork(control: Connection) -> None:
    hello = control.receive()
    if hello is None:
        return
    name, sys.path[:], memory_bytes, parent = hello
    try:
        with ending_with(parent), collecting_seldom(NUM_NEW_OBJECTS):
            factory = made_here(name)
            subject = factory()
            gc.collect()
            gc.freeze()  # or the collector of each fork looks at all objects that are there now, and copies their pages
    except UnknownSubject as error:
        control.send(["unknown", str(error)])
        return
    level = level_of(subject)
    declared = capabilities_of(subject)
    offers = pack(declared), pack(tuple(subject.assumptions))
    try:
        control.send(["made", level.name, subject.name, *offers])
    except UnicodeEncodeError as error:
        control.send(["unknown", f"{name}: its name, or the text of an assumption, is no text: {error.reason}"])
        return

    def serve_fork(connection: Connection, journal: int) -> None:
        limit_memory(memory_bytes)
        write_frames_on_signal(journal)
        serve(connection, factory, Journal(journal), declared)

    ForkServer(control, Compiling(level).prepare, serve_fork).run()


def fields_that_differ(one: Capabilities, other: Capabilities) -> str:
    """The names of the capabilities that differ; empty if none does."""
    names = Capabilities.__dataclass_fields__
    return ", ".join(name for name in names if getattr(one, name) != getattr(other, name))


class Compiling:
    """Compiles the rules of a level before the first search."""

    def __init__(self, level: Level) -> None:
        self._level, self._is_done = level, False

    def prepare(self, request: bytes) -> None:
        """Compile the rules, once, if the request is a search."""
        if request == SEARCH and not self._is_done:
            self._level.compile()
            gc.freeze()
            self._is_done = True


if __name__ == "__main__":
    with suppress(BrokenPipeError):  # the parent has ended, such as by Ctrl-C, before it was answered
        main(int(sys.argv[1]))
