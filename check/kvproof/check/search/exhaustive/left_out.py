"""Whether a text reads what the keys of states leave out.

Keys leave out cells that no rule reads before it writes them, such as the slots of tokens that are not known or the
home of a sequence that does not exist (`spec.c_reader.meaning`). That is a claim about the text, and a wrong text may
break it: then states that are not the same are taken for one, and a search that reached the end has not seen every
state. So in some states everything is tried a second time, with another number in each of these cells. If anything
comes out differently, the search goes on, and what it finds is found; but it is not exhausted.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, cycle
from typing import Any

from kvproof.spec.c_reader import meaning
from kvproof.spec.language import SEQS
from kvproof.spec.names_only import mixed_names
from kvproof.spec.native import FIELDS, Machine
from kvproof.spec.syntax_trees import Functions, copied, functions, functions_of
from kvproof.spec.text.state import GPU, HOST, State

Path = tuple[int, ...]  # to a cell of a field
NUM_FIRST, EVERY = 100, 16  # in so many states at first, and in each so many-th after them
FAR = 1_000  # from any number that a search uses
NEAR = 3  # small numbers are below it
READS_LEFT_OUT = (
    "{} comes out differently if cells change that the keys of states leave out, so this search may have taken states "
    "for one that are not the same"
)
PREFERS_A_NAME = (
    "{}, so states that differ in names alone may not be alike, and this search may have taken such states for one"
)


def not_alike(text: Functions | None) -> str:
    """Why states that a renaming turns into each other may not be alike; empty if they are. None: the specification."""
    mixed = mixed_names(text)
    return PREFERS_A_NAME.format(mixed) if mixed else ""


class LeftOutCells:
    """The cells that the keys of a machine's states leave out."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        named = {f"means_{name}": (copied(tree), file) for name, (tree, file) in functions_of([meaning]).items()}
        for name, (tree, _) in named.items():
            tree.name = name
        judge = Machine(machine.sizes, text={"num_known": functions()["num_known"], **named})
        self.has_meaning: dict[str, Callable[..., bool]] = {
            name.removeprefix("means_"): judge.function(name) for name in named
        }
        known: Callable[..., int] = judge.function("num_known")
        # A search keeps the tokens that a window has left: one of them may become the last token again.
        self.has_meaning["tokens"] = lambda state, seq, index, slot: slot < known(state, seq, index)

    def changed(self, state: State, *, are_far: bool, by_sequence: bool) -> State:
        """A copy of the state with another number in each of these cells.

        are_far: no two get the same, whether they had the same or not, because a rule may compare them; and each is far
        from any number that a search uses. If not, they are small, as what a rule may compare them with.
        by_sequence: those at one place of two sequences get the same if and only if they had the same, so they are far.
        A search by calls compares sequences whole, and takes those that are equal in everything for one.
        """
        new, numbers = self.machine.copy(state), count(FAR) if are_far else cycle(range(1, NEAR))
        for name, has_meaning in self.has_meaning.items():
            other = _other_numbers(name, by_sequence and FIELDS[name].domains[0] is SEQS, numbers)
            setattr(new, name, _changed(getattr(state, name), partial(has_meaning, state), other))
        return new


def _other_numbers(name: str, are_kept_equal: bool, numbers: Iterator[int]) -> Callable[[int, Path], int]:
    """What a cell of a field gets, by its number and its place."""
    if name == "home":
        return lambda number, at: HOST + GPU - number
    if not are_kept_equal:
        return lambda number, at: next(numbers)
    given: dict[tuple[int, Path], int] = {}
    return lambda number, at: given.setdefault((number, at[1:]), next(numbers))


def _changed(cells: Any, has_meaning: Callable[..., bool], other: Callable[[int, Path], int], at: Path = ()) -> Any:
    if isinstance(cells, list):
        return [_changed(inner, has_meaning, other, (*at, place)) for place, inner in enumerate(cells)]
    return cells if has_meaning(*at) else other(cells, at)
