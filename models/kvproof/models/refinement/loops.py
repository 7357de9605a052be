"""Loops of any length: one arbitrary iteration, over the bytecode as it is.

`Items` stands for what a loop goes over. Whether there is another item is a question, so every path with one and every
path with none is explored. On a path with one, the loop's body runs once, from a state that any number of iterations
may have led to; when the loop asks for the next item, the call is over, and the claims are about that moment. So what
is proved of one iteration holds, by induction, of any number of them, if nothing else goes from one iteration to the
next. That is checked where the next item is asked for: every local that the loop had at its beginning is the very
object that it was, or an equal number; and the frame of the call (`concolic.frame`) says the same of every attribute.
A local that is first assigned in the loop cannot be read by the next iteration, or after the loop, without being read
where it has no value.

A loop that does not ask for the next item leaves early. What goes over the items in another way than a `for` statement
does (`list`, `enumerate`, a comprehension) is refused: it could keep something that nobody sees.
"""

import dis
import sys
from collections.abc import Iterator
from types import BuiltinMethodType, CodeType, FrameType, FunctionType, MethodType
from typing import Any, Protocol

import z3

from kvproof.models.concolic.frame import fields_of
from kvproof.models.concolic.refusal import Hidden, refuse
from kvproof.models.concolic.symbolic import SymbolicBool, SymbolicInt, equal, truth
from kvproof.models.refinement.unbounded import Unbounded, unknown_content
from kvproof.models.translation.terms import every

ANOTHER = z3.Bool("another_item")
COLLECTS = ("LIST_APPEND", "SET_ADD", "MAP_ADD", "YIELD_VALUE")


class NextItem(BaseException):
    """The loop asks for the item after the one that it got. No code catches it: a proof goes by `Items.is_done`."""


class Watches(Protocol):
    """Knows of which objects a change would be seen."""

    def is_watched(self, value: Any) -> bool: ...


class Head:
    """The beginning of an iteration: the objects that it can change, and the contents that it finds in them.

    Until the loop begins, these containers have contents of which nothing is known.
    """

    def __init__(self, subjects: tuple[Any, ...], containers: tuple[Unbounded, ...]) -> None:
        self.subjects = subjects
        self.contents = [(one, one.content(), unknown_content(f"earlier_{n}")) for n, one in enumerate(containers)]
        for one, _, earlier in self.contents:
            one.become(earlier)

    def begin(self) -> None:
        """Begin the iteration. The call may have read, but not changed anything."""
        for one, content, earlier in self.contents:
            if not z3.is_true(one.has_content(earlier).term):
                raise refuse("something is changed before the loop")
            one.become(content)

    def is_watched(self, value: Any) -> bool:
        """Whether a change of the object would be seen."""
        watched = (*self.subjects, *(one for subject in self.subjects for one in fields_of(subject).values()))
        return any(value is one for one in watched)


class Items(Hidden):
    """The items of a loop of any length. is_some: whether there is one more, or a question. head: None in a replay."""

    def __init__(self, item: Any, head: Head | None = None, is_some: Any = None) -> None:
        self.item, self.head = item, head
        self.is_some = SymbolicBool(ANOTHER) if is_some is None else is_some
        self.is_begun = self.is_given = self.is_done = False
        self._same: list[z3.BoolRef] = []
        self.carried: list[str] = []
        self._locals: dict[str, Any] = {}
        self._frame: FrameType | None = None

    @property
    def carries_nothing(self) -> z3.BoolRef:
        """Whether no local goes from one iteration to the next."""
        return every([*self._same, z3.BoolVal(not self.carried)])

    def plain(self, item: int, is_some: bool) -> "Items":
        """The same with a plain number, for a replay."""
        return Items(item, is_some=is_some)

    def __iter__(self) -> Iterator[Any]:
        frame = sys._getframe(1)
        if self.is_begun or not is_for_statement(frame):
            raise refuse("blocks of any number are gone over by something else than one for statement")
        self.is_begun, self._frame, self._locals = True, frame, dict(frame.f_locals)
        if self.head is not None:
            for name, value in self._locals.items():
                if not (value is self or is_followed(value, self.head)):
                    raise refuse(f"in {name} something could go from one iteration of the loop to the next")
            self.head.begin()
        return self

    def asking(self, frame: FrameType) -> FrameType:
        """The frame that asks for the next item, which must be the one of the loop."""
        if frame is not self._frame or _instruction(frame.f_code, frame.f_lasti) != "FOR_ITER":
            raise refuse("blocks of any number are gone over by something else than one for statement")
        return frame

    def __next__(self) -> Any:
        frame = self.asking(sys._getframe(1))
        if self.is_given:
            self.check(frame.f_locals)
            self.is_done = True
            raise NextItem
        if not self.is_some:
            raise StopIteration
        self.is_given = True
        return self.item

    def check(self, now: dict[str, Any]) -> None:
        """Note the locals that are not what they were at the beginning."""
        for name, value in self._locals.items():
            if name in now and now[name] is value:
                continue
            is_number = isinstance(value, (int, SymbolicInt)) and isinstance(now.get(name), (int, SymbolicInt))
            if is_number:
                self._same.append(truth(equal(value, now[name])))
            else:
                self.carried.append(name)

    def __bool__(self) -> bool:
        raise refuse("whether there is an item is asked outside of the loop")


def is_followed(value: Any, head: Watches) -> bool:
    """Whether the value cannot change, or a change of it would be seen."""
    if isinstance(value, (MethodType, BuiltinMethodType)):
        return head.is_watched(value.__self__)
    unchanging = (int, float, str, SymbolicInt, SymbolicBool, FunctionType, type)
    return value is None or isinstance(value, unchanging) or head.is_watched(value)


def _instruction(code: CodeType, offset: int) -> str:
    """The name of the instruction at an offset of the code."""
    return dis.opname[code.co_code[offset]]


def is_for_statement(frame: FrameType) -> bool:
    """Whether the frame is at the beginning of a `for` statement: nothing is collected, and no generator asks."""
    code, offset = frame.f_code, frame.f_lasti
    if _instruction(code, offset) != "GET_ITER" or any(one.opname in COLLECTS for one in dis.get_instructions(code)):
        return False
    following = (one.opname for one in dis.get_instructions(code) if one.offset > offset)
    return next((name for name in following if name not in ("CACHE", "EXTENDED_ARG")), "") == "FOR_ITER"
