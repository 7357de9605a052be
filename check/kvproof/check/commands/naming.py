"""From `--subject S` to what makes the subject."""

import difflib
from collections.abc import Callable

from kvproof.check.commands.guard import UsageError
from kvproof.check.protocol_check import check_adapter
from kvproof.check.subject import ManagerSubject


def factory_of(name: str) -> tuple[Callable[[], ManagerSubject], ManagerSubject]:
    """What makes the subject, and one that it made. Raises UsageError."""
    from kvproof.check.subjects import UnknownSubject, find, listed

    try:
        make = find(name)
    except UnknownSubject as error:
        raise UsageError(_with_suggestion(str(error), name, [known for known, _ in listed()])) from error
    try:
        subject = make()
    except Exception as error:
        raise UsageError(f"the subject {name} cannot be made: {type(error).__name__}: {error}") from error
    check_adapter(subject)
    return make, subject


def _with_suggestion(message: str, name: str, known: list[str]) -> str:
    return message + ("" if "did you mean" in message else did_you_mean(name.partition("==")[0], known))


def did_you_mean(name: str, known: list[str]) -> str:
    """A question, if one of the known names is close."""
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""
