"""A subject in a process of its own, as a subject: every call is a message.

What the subject raises is raised here again, under the name of its type. A call that ends the process, or that is not
answered in time, refutes `total-calls`; so does memory that grows beyond its limit. Whatever broke a call off, the next
`open` gets a fresh fork.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from kvproof.check.isolation.fork_server_client import Fork, ForkClient
from kvproof.check.isolation.journal import Journal
from kvproof.check.isolation.limits import Limits
from kvproof.check.isolation.messages import CALLS_ONLY, SEARCH, pack, unpack
from kvproof.check.protocol.adapter_check import MANAGER_CALLS, POOL_CALLS, SCHEDULER_CALLS
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import OutsideContract, Unsupported
from kvproof.check.subjects import UnknownSubject

CALLS_OF_LEVEL = {
    "manager": frozenset(MANAGER_CALLS.all),
    "loop": frozenset(SCHEDULER_CALLS.all),
    "pool": frozenset(POOL_CALLS.all),
}
HANG, CRASH = "hang", "crash"  # the end of a finding's cause: the call, and this


class Raised(Exception):
    """What a subject raised in its process; the type has the name that it had there."""


@cache
def raised_as(name: str) -> type[Raised]:
    """An exception type of that name."""
    return type(name, (Raised,), {})


class RemoteFactory:
    """Makes subjects that live in forks of one template process. Raises UnknownSubject."""

    def __init__(self, name: str, limits: Limits | None = None) -> None:
        self.template = ForkClient(name, limits or Limits())

    def __call__(self) -> Any:
        """A fresh subject."""
        return RemoteSubject(self.template)

    def close(self) -> None:
        """End every process of it."""
        self.template.close()


class RemoteSubject:
    """A subject of whichever level, call by call."""

    def __init__(self, template: ForkClient) -> None:
        self.template = template
        self.name, self.capabilities, self.assumptions = template.name, template.capabilities, template.assumptions
        self._calls = CALLS_OF_LEVEL[template.level]
        self._fork: Fork | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._calls:
            raise AttributeError(name)
        call: Callable[..., Any] = partial(self._call, name)
        setattr(self, name, call)
        return call

    def _call(self, name: str, *arguments: Any) -> Any:
        context = f"{name}({', '.join(str(argument) for argument in arguments)})"
        fork = self._alive(name, context)
        seconds = self.template.limits.call_seconds
        try:
            said = fork.ask(["call", name, [pack(argument) for argument in arguments]], seconds)
        except TimeoutError:
            fork.end()
            raise Finding("total-calls", f"{context} gave no answer within {seconds:g} s", f"{name} {HANG}") from None
        except BaseException:  # a time limit of ours: an answer that comes late must not pass for the next one
            fork.end()
            raise
        if said is None:
            how = fork.end(has_gone=True)
            raise Finding("total-calls", f"{context} ended its process, which {how}", f"{name} {CRASH}")
        return answered(said)

    def _alive(self, name: str, context: str) -> Fork:
        if self._fork is None or not self._fork.is_alive:
            if name != "open" and self._fork is not None:
                raise AssertionError(f"{context} was called after the process of the subject had ended")
            self._fork = new_fork(self.template)
        return self._fork


def new_fork(template: ForkClient, journal: Journal | None = None) -> Fork:
    """A fork to search, with that journal; or to call, which needs none."""
    if journal is not None:
        return template.fork(journal, SEARCH)
    unused = Journal()
    try:
        return template.fork(unused, CALLS_ONLY)
    finally:
        unused.close()


def answered(said: list[Any]) -> Any:
    """The value of an answer, or the exception that it stands for."""
    match said:
        case ["done", value]:
            return unpack(value)
        case ["unsupported", text]:
            raise Unsupported(text)
        case ["adapter", text]:
            raise AdapterError(text)
        case ["finding", finding]:
            raise unpack(finding)
        case ["contract", assumption, sentence]:
            raise OutsideContract(assumption, sentence)
        case ["unknown", text]:
            raise UnknownSubject(text)
        case ["raised", name, text]:
            raise raised_as(name)(text)
        case ["fault", text]:
            raise AssertionError(f"the judge failed in the process of the subject:\n{text}")
    raise AssertionError(f"this is no answer: {said!r}")
