"""Decide which subjects run in a separate process: foreign ones, unless the user chooses otherwise.

The other process creates the subject from its name. So a factory without a name (a lambda, a nested function) cannot be
isolated, and patches that a test makes in this process have no effect there. It imports the file of the subject; a file
that runs kvproof when it is imported would start a process that imports it, and so on without end, so it is refused.
"""

from collections.abc import Callable

from kvproof.check.hosts.time_limit import Limits
from kvproof.check.oracle.level import level_of
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import ManagerSubject
from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.own import PIPE, name_of
from kvproof.check.subjects.registry import Factory, find
from kvproof.spec.trace import OURS, is_ours

_made_here: list[str] = []  # the subject whose process this is


def is_foreign(name: str) -> bool:
    """Whether the subject of this name is foreign code that would run in this process."""
    return not name.startswith(PIPE) and not is_ours(name)


def factory_for(name: str, isolation: bool | None = None, limits: Limits | None = None) -> Callable[[], ManagerSubject]:
    """A factory of the subject of this name. Raises UnknownSubject.

    isolation: whether to use a separate process; None isolates foreign subjects.
    """
    if (text := name.encode(errors="backslashreplace").decode()) != name:
        raise UnknownSubject(f"{text}: the name is no text, so no result can name it; rename the file")
    if name.startswith(PIPE):
        from kvproof.check.isolation.pipe.subject import factory_of

        return factory_of(name, limits)
    is_apart = is_foreign(name) if isolation is None else isolation
    return _remote(name, limits) if is_apart else found(name)


def made_here(name: str) -> Factory:
    """The factory of the subject whose process this is from now on. Raises UnknownSubject."""
    _made_here.append(name)
    return found(name)


def _remote(name: str, limits: Limits | None) -> Callable[[], ManagerSubject]:
    from kvproof.check.isolation.remote_subject import RemoteFactory

    if _made_here:
        raise UnknownSubject(
            f"the file of {_made_here[0]} runs kvproof when it is imported; put that under "
            '`if __name__ == "__main__":`, or into a test'
        )
    return RemoteFactory(name, limits)


def found(name: str) -> Factory:
    """A factory of the subject of this name, in this process; it raises UnknownSubject for what is not a subject."""
    factory = find(name)

    def make() -> ManagerSubject:
        subject = factory()
        try:
            level_of(subject).check(subject)
        except AdapterError as error:
            raise UnknownSubject(f"{name}: what the factory returned is not a subject: {error}") from error
        return subject

    return make


def isolated(
    factory: Callable[[], ManagerSubject], isolation: bool | None = None, limits: Limits | None = None
) -> Callable[[], ManagerSubject]:
    """A factory like the given one, which may use a separate process. An isolating factory has a `close`.

    isolation: None isolates a foreign factory that has a name. Raises ValueError if a factory without a name shall be
    isolated, UnknownSubject if the other process cannot create the subject.
    """
    name = name_of(factory)
    if isolation is None:
        isolation = name is not None and not factory.__module__.startswith(f"{OURS}.")
    if not isolation:
        return factory
    if name is None:
        raise ValueError(
            "the factory of the subject has no name, so it cannot be isolated: use a class or function at the top "
            "level of a module, or isolation=False"
        )
    return _remote(name, limits)
