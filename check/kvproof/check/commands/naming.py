"""From what the user names to what is meant."""

import difflib
from collections.abc import Callable

from kvproof.check.commands.guard import UsageError
from kvproof.check.subject import ManagerSubject


def factory_of(name: str) -> tuple[Callable[[], ManagerSubject], ManagerSubject]:
    """What makes the subject, and one that it made. Raises UsageError."""
    from kvproof.check.subjects import UnknownSubject, find

    try:
        make = find(name)
        return make, make()
    except UnknownSubject as error:
        raise UsageError(str(error)) from error


def did_you_mean(name: str, known: list[str]) -> str:
    """A question, if one of the known names is close."""
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""
