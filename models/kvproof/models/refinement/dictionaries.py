"""A dict of any size, and a set of which nothing is known, for real code to run on.

Both remember what is done with them. A claim looks at that; a frame says that it is nothing.
"""

from collections.abc import Callable
from typing import Any

import z3

from kvproof.models.concolic.frame import Container
from kvproof.models.concolic.refusal import refuse
from kvproof.models.concolic.symbolic import SymbolicBool, number

ABSENT = object()  # no key of a dictionary


class Dictionary(Container):
    """A dict by numbers, of any size. has: whether it has a key before the call; known: some keys, and their values.

    Another key can be looked for, and set; its value is asked only after that.
    """

    def __init__(self, has: Callable[[z3.ArithRef], z3.BoolRef], *known: tuple[z3.ArithRef, Any]) -> None:
        self.had, self.known = has, known
        self.written: tuple[tuple[z3.ArithRef, Any], ...] = ()  # the last one of a key counts; ABSENT: it is removed

    def content(self) -> Any:
        """What was written so far."""
        return self.written

    def has_content(self, content: Any) -> bool:
        """Whether the same was written at another moment."""
        return self.written is content

    def has(self, key: z3.ArithRef) -> z3.BoolRef:
        """Whether the dict has a key now."""
        found = self.had(key)
        for written, value in self.written:
            found = z3.If(key == written, z3.BoolVal(value is not ABSENT), found)
        return found

    def _found(self, key: Any) -> Any:
        """The value of a key; ABSENT if there is none."""
        at = number(key)
        for written, value in reversed(self.written):
            if at.eq(written) or SymbolicBool(at == written):
                return value
        if not SymbolicBool(self.had(at)):
            return ABSENT
        for known, value in self.known:
            if at.eq(known):
                return value
        raise refuse("a key of a dict is asked of which nothing is known")

    def _write(self, key: Any, value: Any) -> None:
        self.written = (*self.written, (number(key), value))

    def __contains__(self, key: object) -> bool:
        return bool(SymbolicBool(self.has(number(key))))

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or another one if there is none."""
        found = self._found(key)
        return default if found is ABSENT else found

    def pop(self, key: Any, *default: Any) -> Any:
        """Remove a key, and return its value. Raises KeyError if there is none, and no other value."""
        found = self._found(key)
        if found is not ABSENT:
            self._write(key, ABSENT)
        elif not default:
            raise KeyError(key)
        return default[0] if found is ABSENT else found

    def __getitem__(self, key: Any) -> Any:
        if (found := self._found(key)) is ABSENT:
            raise KeyError(key)
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        self._write(key, value)

    def __delitem__(self, key: Any) -> None:
        self.pop(key)

    def _refuse(self, *_: Any) -> Any:
        raise refuse("a dict of any size is compared, counted or gone over as a whole")

    __bool__ = __len__ = __iter__ = __eq__ = __ne__ = __hash__ = _refuse
    keys = values = items = clear = update = setdefault = popitem = copy = _refuse


class UnknownSet(Container):
    """A set of which nothing is known; it can be emptied."""

    def __init__(self) -> None:
        self.is_emptied = False

    def content(self) -> bool:
        """Whether it was emptied so far."""
        return self.is_emptied

    def has_content(self, content: Any) -> bool:
        """Whether it was emptied in the meantime: then it may have other items."""
        return bool(self.is_emptied == content)

    def clear(self) -> None:
        """Remove every item."""
        self.is_emptied = True

    def _refuse(self, *_: Any) -> Any:
        raise refuse("a set is used of which nothing is known")

    __bool__ = __len__ = __iter__ = __contains__ = __eq__ = __ne__ = __hash__ = _refuse
    add = discard = remove = update = pop = copy = _refuse
