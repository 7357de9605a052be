"""What a proof about code cannot follow ends the run: with the file and line, and so that the code cannot swallow it.

Python answers some questions about a value without asking it: whether it is an instance of a class, whether two names
are one object, how it is printed. A symbolic value would give one answer for all the numbers that it stands for, and
the proof would follow one side only. So symbolic values refuse such questions when proved code asks them; the others
are refused by looking at the code (`constructs`).

A refusal is no `Exception`. Even code that catches everything cannot hide it, because it is noted when it is made.
"""

import dis
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

PROVED_CODE = "kvproof.impl"  # the package that proofs about code are about
MESSAGES = f"{PROVED_CODE}.errors"  # its errors print values in their messages

PUTS_TOGETHER = (  # beginnings of the names of instructions
    *("LOAD_", "FORMAT_", "CONVERT_", "BUILD_", "CALL", "PRECALL", "KW_NAMES", "CACHE", "EXTENDED_ARG", "PUSH_NULL"),
)

_NOTED: list[list["EndsProof"]] = []  # by each call in progress, the innermost one last


class EndsProof(BaseException):
    """The run cannot be followed any more. It is noted where it is made, and counts even if the code catches it."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        if _NOTED:
            _NOTED[-1].append(self)


class Refused(EndsProof):
    """Proved code does what a proof cannot follow; the message says what, and where."""


class NoProof(Exception):
    """A proof about code came to no end; the message says of what, and why. No such code can catch it."""


@contextmanager
def proof_of(name: str) -> Iterator[None]:
    """Within the block, what ends a proof is an ordinary error, `NoProof`."""
    try:
        yield
    except EndsProof as error:
        raise NoProof(f"{name}: {error}") from error


@contextmanager
def noting() -> Iterator[list[EndsProof]]:
    """Collects what ends the proof in a call of proved code, in the order in which it was made."""
    noted: list[EndsProof] = []
    _NOTED.append(noted)
    try:
        yield noted
    finally:
        _NOTED.pop()


def is_proved_code(names: dict[str, Any]) -> bool:
    """Whether code with these globals belongs to the package that the proofs are about."""
    module = str(names.get("__name__", ""))
    return module == PROVED_CODE or module.startswith(f"{PROVED_CODE}.")


def place_in_proved_code(frame: FrameType | None) -> str:
    """File and line of the innermost proved code from this frame outwards."""
    while frame is not None:
        if is_proved_code(frame.f_globals):
            return f"{short(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return "a claim"


def short(file: str) -> str:
    """A file below the namespace, as reports name it."""
    return file.rpartition("kvproof/")[2] or file


def refuse(what: str) -> Refused:
    """The refusal of what the proved code around this call does."""
    return Refused(f"{what} ({place_in_proved_code(sys._getframe(1))})")


def asked_by_code(depth: int = 2) -> bool:
    """Whether the function that calls this one was called by proved code itself, not by a proof or a message."""
    names = sys._getframe(depth).f_globals
    return is_proved_code(names) and names.get("__name__") != MESSAGES


class Hidden:
    """Base of values that do not tell proved code their class, how they are printed, or which object they are."""

    __slots__ = ()

    @property  # type: ignore[misc]  # it is only read
    def __class__(self) -> Any:  # asked by isinstance, by class patterns and by name
        if asked_by_code():
            raise refuse("the class of an unknown value is asked")
        return type(self)

    def __str__(self) -> str:
        _refuse_to_print()
        return self._text()

    def __repr__(self) -> str:
        _refuse_to_print()
        return self._text()

    def __format__(self, specification: str) -> str:
        _refuse_to_print()
        return format(self._text(), specification)

    def _text(self) -> str:
        return object.__repr__(self)


def _refuse_to_print() -> None:
    """A text in a message that is raised at once does no harm; any other could be compared."""
    if asked_by_code(3) and not _is_raised(sys._getframe(2)):
        raise refuse("an unknown value is printed")


def _is_raised(frame: FrameType) -> bool:
    """Whether what the frame is about to make is only put together, and raised."""
    for one in dis.get_instructions(frame.f_code):
        if one.offset > frame.f_lasti:
            if one.opname == "RAISE_VARARGS":
                return True
            if not one.opname.startswith(PUTS_TOGETHER):
                return False
    return False


class Opaque(Hidden):
    """A value of which nothing is known: proved code may pass it on, and nothing else. may_be_none: it may be None.

    Python compares with None without asking, so a proof looks for such comparisons in the code.
    """

    __slots__ = ("_name", "may_be_none")

    def __init__(self, name: str, may_be_none: bool = False) -> None:
        self._name, self.may_be_none = name, may_be_none

    def _text(self) -> str:
        return f"<{self._name}>"

    def _refuse(self, *_: Any) -> Any:
        raise refuse(f"{self._name} is used, of which nothing is known")

    __bool__ = __len__ = __iter__ = __contains__ = __getitem__ = __setitem__ = __call__ = __index__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = _refuse
    __eq__ = __ne__ = _refuse

    def __hash__(self) -> int:
        raise refuse(f"{self._name} is used, of which nothing is known")
