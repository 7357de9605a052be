"""Which subjects live in a process of their own: those that are not ours, unless the user says otherwise.

Such a process makes the subject by its name. What has no name (a lambda, a function within another) is not to be had
there, and neither is what a test patched here.
"""

from collections.abc import Callable

from kvproof.check.isolation.limits import Limits
from kvproof.check.protocol.manager import ManagerSubject
from kvproof.check.subjects.own import name_of
from kvproof.check.subjects.registry import find

OURS = "kvproof"
PIPE = "pipe:"  # a process already


def is_foreign(name: str) -> bool:
    """Whether a subject of this name is not ours, and would share our process."""
    return not name.startswith(PIPE) and (":" in name or name.partition("==")[0].partition("-")[0] != OURS)


def factory_for(name: str, isolation: bool | None = None, limits: Limits | None = None) -> Callable[[], ManagerSubject]:
    """What makes the subject of this name, in a process of its own if so chosen. Raises UnknownSubject.

    isolation: None isolates what is not ours.
    """
    if name.startswith(PIPE):
        from kvproof.check.isolation.pipe.subject import factory_of

        return factory_of(name, limits)
    is_apart = is_foreign(name) if isolation is None else isolation
    if not is_apart:
        return find(name)
    from kvproof.check.isolation.remote_subject import RemoteFactory

    return RemoteFactory(name, limits)


def isolated(
    factory: Callable[[], ManagerSubject], isolation: bool | None = None, limits: Limits | None = None
) -> Callable[[], ManagerSubject]:
    """What makes subjects like this factory, in a process of its own if so chosen. Raises UnknownSubject, ValueError.

    isolation: None isolates what is not ours and has a name. What is isolated has a `close`.
    """
    from kvproof.check.isolation.remote_subject import RemoteFactory

    name = name_of(factory)
    if isolation is None:
        isolation = name is not None and not factory.__module__.startswith(f"{OURS}.")
    if not isolation:
        return factory
    if name is None:
        raise ValueError(
            "what makes the subject has no name: in a process of its own, only a class or function of a "
            "module can be made"
        )
    return RemoteFactory(name, limits)
