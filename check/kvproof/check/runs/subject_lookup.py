"""Resolve a subject name given on the command line."""

import difflib
from collections.abc import Callable

from kvproof.check.protocol.manager import ManagerSubject
from kvproof.check.runs.errors import UsageError


def factory_of(
    name: str, isolation: bool | None = None, seconds: float | None = None
) -> tuple[Callable[[], ManagerSubject], ManagerSubject]:
    """The factory of the subject, and one subject that it made. Raises UsageError.

    isolation: whether the subject runs in a process of its own; None isolates every subject but the built-in ones.
    seconds: the budget of the run, which limits a call.
    """
    from kvproof.check.isolation.factory import factory_for
    from kvproof.check.isolation.limits import Limits
    from kvproof.check.subjects import UnknownSubject

    try:
        make = factory_for(name, isolation, Limits.within(seconds))
        return make, make()
    except UnknownSubject as error:
        raise UsageError(str(error)) from error


def did_you_mean(name: str, known: list[str]) -> str:
    """A suggestion to append to a message, if one of the known names is similar."""
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""
