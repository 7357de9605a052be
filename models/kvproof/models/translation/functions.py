"""The functions of a text, of which all may be read, or for a while only a part.

What is made of a part of a text depends on nothing else in it, so it can be kept as long as that part stays the same.
`reading_only` sees to it: a function outside the part cannot be read, neither from that text nor from another.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

Function = tuple[ast.FunctionDef, str]  # with the file it stands in


class NotInPart(Exception):
    """A function was read that is not in the part of the text that may be read now. The message names it."""


class Functions(Mapping[str, Function]):
    """Functions by name. Which names there are may always be asked."""

    def __init__(self, functions: Mapping[str, Function], of: "Functions | None" = None) -> None:
        self._functions = dict(functions)
        self._text: object = self if of is None else of._text

    def __getitem__(self, name: str) -> Function:
        found = self._functions[name]
        if _READABLE and not (_READABLE[-1][0] is self._text and name in _READABLE[-1][1]):
            raise NotInPart(f"{name} is not in the part of the text that may be read now")
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._functions

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def replaced(self, name: str, function: Function) -> "Functions":
        """The same functions, but one; of them the same part may be read."""
        return Functions({**self._functions, name: function}, self)

    @contextmanager
    def reading_only(self, names: Iterable[str]) -> Iterator[None]:
        """Within the block, only these functions can be read, and none of other texts. Raises NotInPart there."""
        _READABLE.append((self._text, frozenset(names)))
        try:
            yield
        finally:
            _READABLE.pop()


_READABLE: list[tuple[object, frozenset[str]]] = []  # the last is the text and the names that may be read now
