"""A proxy for a subject in a separate process: every call is a message.

An exception of the subject is raised again in this process, with a type of the same name. A call that ends the process,
is not answered in time or exceeds the memory limit refutes `total-calls`. After a call was aborted for any reason, the
next `open` gets a new fork. Nothing that the other process sends is trusted: whatever is no answer is a finding, too.

The factory of such subjects starts the process that forks them, and requests forks with fresh subjects.
"""

import os
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any

from kvproof.check.hosts.channel import ChannelError, text_of
from kvproof.check.hosts.fork_client import Fork, ForkingProcess, ServerGone
from kvproof.check.hosts.program import module
from kvproof.check.hosts.time_limit import (
    AGAIN_SECONDS_MIN,
    Limits,
    OutOfTime,
    call_seconds,
    require_time,
    seconds_left,
)
from kvproof.check.isolation.journal import Journal, places_of_stuck
from kvproof.check.isolation.messages import CALLS_ONLY, SEARCH, pack, unpack
from kvproof.check.oracle.level import LEVELS, level_named
from kvproof.check.protocol.adapter_fault import Remarked
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.fault_attribution import StandInError, by_means_of_kvproof
from kvproof.check.protocol.finding import AdapterError, Finding, OutsideTable
from kvproof.check.protocol.manager import Assumption, Unsupported
from kvproof.check.protocol.outside_contract import OutsideThere
from kvproof.check.subjects import SubjectNotReady, UnknownSubject
from kvproof.check.subjects.registry import outside_table
from kvproof.spec.trace import NO_ANSWER, names_code

FORK_SERVER = "kvproof.check.isolation.fork_server"
LEVEL_NAMES = frozenset(level.name for level in LEVELS)
WROTE_TO_CHANNEL = "it wrote to descriptors of its process that are not its own"

SERVER = "the process from which its process is forked"
HANG, CRASH = "hang", "crash"  # the cause of a finding is the name of the call followed by one of these


class ForkClient:
    """The fork server of one subject. Raises UnknownSubject if the subject cannot be created.

    A server that a subject has ended is started again for the next fork, within what is left of the run. level, name,
    capabilities, assumptions: those of the subject.
    """

    def __init__(self, name: str, limits: Limits) -> None:
        self.subject, self.limits = name, limits
        self._start()

    def _start(self) -> None:
        self.server = ForkingProcess(module(FORK_SERVER))
        self.level, self.name, self.capabilities, self.assumptions = self._handshake()

    def close(self) -> None:
        """End the server, and what it has started."""
        self.server.close()

    def fork(self, journal: Journal, purpose: bytes) -> Fork:
        """A fork with a fresh subject. purpose: CALLS_ONLY or SEARCH. Raises ServerGone if there is no server."""
        if self.server.has_ended:
            self.close()
            self._start()
        return self.server.fork(purpose, journal)

    def _handshake(self) -> tuple[str, str, Capabilities, tuple[Assumption, ...]]:
        seconds = min(self.limits.start_seconds, max(AGAIN_SECONDS_MIN, seconds_left()))
        answer: Any
        try:
            answer = self.server.ask([self.subject, sys.path, self.limits.memory_bytes, os.getpid()], seconds)
        except (TimeoutError, OutOfTime):
            self.server.kill()
            if seconds_left() <= 0:  # it is made again at the end of a run, which says nothing about it
                raise OutOfTime from None
            late = f"{self.subject}: the subject was not ready within {self.limits.start_seconds:g} s"
            raise SubjectNotReady(late) from None
        except OSError:
            answer = None
        except ChannelError as error:
            answer = [str(error)]
        match answer:
            case None:
                reason = f"its process {self.server.how_gone()}"
            case ["unknown", str(reason)]:
                self.close()
                raise UnknownSubject(reason)
            case ["made", str(level), str(name), capabilities, assumptions] if level in LEVEL_NAMES:
                with suppress(ChannelError, TypeError):
                    offers, assumed = unpack(capabilities), tuple(unpack(assumptions))
                    if isinstance(offers, Capabilities) and all(isinstance(one, Assumption) for one in assumed):
                        return level, name, offers, assumed
                reason = WROTE_TO_CHANNEL
            case _:
                reason = WROTE_TO_CHANNEL
        self.server.kill()
        raise UnknownSubject(f"{self.subject}: the subject cannot be created: {reason}")


class Raised(Remarked):
    """Base of the exceptions that a subject raised in its process. The type has the same name as there."""


@cache
def raised_as(name: str) -> type[Raised]:
    return type(name, (Raised,), {})


class RemoteFactory:
    """A factory of subjects in forks of one fork server. Raises UnknownSubject if the subject cannot be created."""

    def __init__(self, name: str, limits: Limits | None = None) -> None:
        self.server = ForkClient(name, limits or Limits())

    def __call__(self) -> Any:
        return RemoteSubject(self.server)

    def close(self) -> None:
        self.server.close()


class RemoteSubject:
    """A subject of any level, in a fork; every call is a message, and raises OutOfTime at the end of the run."""

    limits_its_calls = True

    def __init__(self, server: ForkClient) -> None:
        self.server = server
        self.name, self.capabilities, self.assumptions = server.name, server.capabilities, server.assumptions
        self._calls = frozenset(level_named(server.level).calls.all)
        self._fork: Fork | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._calls:
            raise AttributeError(name)
        call: Callable[..., Any] = partial(self._call, name)
        setattr(self, name, call)
        return call

    def _call(self, name: str, *arguments: Any) -> Any:
        context = f"{name}({', '.join(str(argument) for argument in arguments)})"
        require_time()
        with by_means_of_kvproof(f"{context} cannot be called"):
            fork = self._alive(name, context)
        seconds = call_seconds(self.server.limits.call_seconds)
        try:
            answer = fork.ask(["call", name, [pack(argument) for argument in arguments]], seconds)
        except TimeoutError:
            places = places_of_stuck(fork.pid, fork.shared.descriptor)
            fork.end()
            text, values = f"$asked gave {NO_ANSWER} {seconds:g} s", {"asked": context}
            raise Finding("total-calls", text, f"{name} {HANG}", frames=places, values=values) from None
        except ChannelError as error:
            fork.end()
            raise wrote_to_the_channel(context, name, error) from None
        except BaseException:  # such as a time limit: a late answer is not the answer to the next call
            fork.end()
            raise
        if answer is None:
            how = fork.end(has_gone=True)
            text = f"$asked ended its process, which {how}"
            raise Finding("total-calls", text, f"{name} {CRASH}", values={"asked": context})
        try:
            return answered(answer, self.server.subject)
        except ChannelError as error:
            fork.end()
            raise wrote_to_the_channel(context, name, error) from None

    def _alive(self, name: str, context: str) -> Fork:
        if self._fork is None or not self._fork.is_alive:
            if name != "open" and self._fork is not None:
                raise AssertionError(f"{context} was called after the process of the subject had ended")
            try:
                self._fork = new_fork(self.server)
            except ServerGone as gone:
                text = f"$asked cannot be called: {SERVER} {gone}"
                raise Finding("total-calls", text, f"{name} {CRASH}", values={"asked": context}) from None
        return self._fork


def new_fork(server: ForkClient, journal: Journal | None = None) -> Fork:
    """A new fork: for a search if a journal is given, otherwise for calls. It closes a journal of its own."""
    if journal is not None:
        return server.fork(journal, SEARCH)
    own = Journal()
    try:
        fork = server.fork(own, CALLS_ONLY)
    except BaseException:
        own.close()
        raise
    weakref.finalize(fork, own.close)
    return fork


def wrote_to_the_channel(context: str, name: str, error: ChannelError) -> Finding:
    """The finding that a subject wrote to the descriptors over which kvproof talks to its process."""
    text = "$asked wrote to descriptors of its process that are not its own: $error"
    return Finding("total-calls", text, f"{name} {CRASH}", values={"asked": context, "error": error})


def made_once(reason: str) -> Finding:
    """The finding that a subject could be made once and not again: every run needs a fresh one."""
    text = "the subject was made once and cannot be made again, but every run needs a fresh one: $reason"
    return Finding("nondeterministic", text, "make", values={"reason": reason})


def answered(answer: Any, subject: str) -> Any:
    """The value of an answer. Raises the exception that the answer describes, and ChannelError if it is none.

    subject: its name. A part of kvproof that fails in code of the user, which may call it as it likes, is no fault of
    kvproof, but of that code.
    """
    match answer:
        case ["done", value]:
            return unpack(value)
        case ["unsupported", str(text)]:
            raise Unsupported(text)
        case ["adapter", str(text)]:
            raise AdapterError(text)
        case ["stand-in", str(text)] if where := outside_table(subject):
            raise OutsideTable(f"{where}, and its adapter does not fit it: {text}")
        case ["stand-in", str(text)]:
            raise AdapterError(text) if names_code(subject) else StandInError(text)
        case ["finding", data] if isinstance(finding := unpack(data), Finding):
            raise finding
        case ["contract", str(assumption), str(sentence)]:
            raise OutsideThere(assumption, sentence)
        case ["unknown", str(text)]:
            raise made_once(text)
        case ["raised", str(name), str(text), str(remark), str(where)] if name.isidentifier():
            error = raised_as(name)(text)
            error.remark, error.raised_in = remark, where
            raise error
    raise ChannelError(f"a message is no answer: {text_of(answer)}")
