"""A search by rules with full keys, which sees every read of a cell that keys leave out.

Keys leave out cells that no rule reads before it writes them (`left_out`). In this search, the numbers in these cells
of each state that is expanded are objects that note when a rule compares them, computes with them or uses them as a
subscript; and none may be left in a cell that has a meaning. The product tries some states twice instead, with other
numbers. Each state has its full key; no quick key is asked.
"""

from collections.abc import Callable, Hashable, Iterator
from typing import Any

from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.exhaustive.breadth_first import Operation
from kvproof.check.search.exhaustive.left_out import LeftOutCells
from kvproof.check.search.exhaustive.specification_rules import RuleSpace
from kvproof.spec.native import FIELDS
from kvproof.spec.syntax_trees import Functions
from kvproof.spec.text.state import NONE, State

OPERATORS = ("add", "radd", "sub", "rsub", "mul", "rmul", "neg", "eq", "ne", "lt", "le", "gt", "ge", "index", "bool")


class Unread(int):
    """The number of a cell without a meaning. While a rule fires, whatever is done with it is counted.

    It may be copied, and compared with its own copy, which says nothing of the number.
    """

    is_watched = False
    num_read = 0

    __hash__ = int.__hash__


def _noting(name: str) -> Callable[..., Any]:
    operator = getattr(int, name)

    def noted(this: Unread, *others: Any) -> Any:
        Unread.num_read += Unread.is_watched and not any(this is other for other in others)
        return operator(this, *others)

    return noted


for one in OPERATORS:
    setattr(Unread, f"__{one}__", _noting(f"__{one}__"))


class WatchedSpace(RuleSpace):
    """The rules of a text. num_read: how often they read a cell without a meaning, or left it where it has one."""

    def __init__(self, scope: Scope, text: Functions) -> None:
        super().__init__(scope, text=text)
        self.num_read = 0
        self._has_meaning = LeftOutCells(self.machine).has_meaning
        fire = self.firings.fire

        def watched(state: State, rule: str, arguments: tuple[Any, ...], operation: Operation) -> Any:
            plain = tuple([*map(int, one)] if isinstance(one, list) else one for one in arguments)
            Unread.is_watched, Unread.num_read = True, 0
            try:
                return fire(state, rule, plain, operation)
            finally:
                Unread.is_watched = False
                self.num_read += Unread.num_read

        self.firings.fire = watched  # type: ignore[method-assign]

    def state_key(self, state: State) -> Hashable:
        """The full key."""
        key = self._keys._sorted(state, self._keys._known)
        return key if self.claims.ghosts_agree(state) else (NONE, key)

    def successors(self, state: State) -> Iterator[tuple[Operation, State]]:
        """Every firing that is not refused."""
        self._watch(state)
        for operation, reached in self.transitions(state):
            self.num_read += any(
                isinstance(value, Unread) and self._has_meaning[name](reached, *path)
                for name in self._has_meaning
                for path, value in _cells(getattr(reached, name))
            )
            yield operation, reached

    def _watch(self, state: State) -> None:
        for name, has_meaning in self._has_meaning.items():
            for path, value in _cells(getattr(state, name)):
                row: Any = getattr(state, name)
                for place in path[:-1]:
                    if FIELDS[name].domains[-1].name == "Slot" and place == path[-2]:
                        row[place] = list(row[place])
                    row = row[place]
                row[path[-1]] = int(value) if has_meaning(state, *path) else Unread(value)


def _cells(value: Any) -> list[tuple[tuple[int, ...], int]]:
    """The cells of a field, each with its place."""
    if not isinstance(value, list):
        return [((), value)]
    return [((place, *path), number) for place, inner in enumerate(value) for path, number in _cells(inner)]
