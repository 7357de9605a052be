"""Loops of any length, cut at their iterator: what is true after any number of iterations, proved by induction.

`loops` proves what one iteration does. Here a claim about all iterations so far (`Loop.so_far`) is proved where the
loop begins; then what the loop may change has contents of which nothing is known but that claim. One path gets an
arbitrary item, ends where the code asks for the next one, and must have the claim for one iteration more. The other
path goes on behind the loop, with the claim for all items. The code is the one that runs.

Where the next item is asked for, everything else that the code can reach must be as it was where the loop began: the
locals of the function, the attributes of the objects, and the contents of containers. An end of the call within an
iteration, by an error, `break` or `return`, is one that no state may reach.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import z3

from kvproof.models.concolic.frame import Frame, fields_of
from kvproof.models.concolic.refusal import is_proved_code, refuse
from kvproof.models.concolic.symbolic import SymbolicBool, truth
from kvproof.models.obligation import WELL_DEFINED
from kvproof.models.refinement.loops import Items, NextItem, is_followed, is_for_statement
from kvproof.models.refinement.unbounded import Iterated, Unbounded, iterating, unknown_content
from kvproof.models.translation.terms import every

Agreement = tuple[str, str, z3.BoolRef]
Function = Callable[[z3.ArithRef], z3.ArithRef]
Everywhere = Callable[[Callable[[z3.ArithRef], z3.BoolRef]], z3.BoolRef]
SOME = z3.Int("some_number")
REPLAYED = range(-1, 5)  # the numbers for which a replay knows what is true of all


def of_any_number(holds: Callable[[z3.ArithRef], z3.BoolRef]) -> z3.BoolRef:
    """The formula that `holds` is true of every number."""
    number = z3.Int("any_number")
    return z3.ForAll([number], holds(number))


@dataclass(frozen=True)
class Clause:
    """A part of what is true after some iterations: of every number, such as a block or a place in a list."""

    sentence: str
    property: str
    holds: Callable[[z3.ArithRef], z3.BoolRef]


@dataclass(frozen=True)
class Moment:
    """After `done` iterations: the contents of what the loop changes, by name, and the values of its ghost function.

    item: the item at each index of the loop.
    """

    done: z3.ArithRef
    item: Function
    contents: Mapping[str, tuple[z3.ArithRef, Function]]
    ghost: Function

    def read(self, name: str, index: z3.ArithRef) -> z3.ArithRef:
        """The item of a container at an index."""
        return self.contents[name][1](index)

    def length(self, name: str) -> z3.ArithRef:
        """The length of a container."""
        return self.contents[name][0]


@dataclass(frozen=True)
class Loop:
    """A loop of the code, and what is true after any number of iterations.

    where: the name of its function. changes: the containers whose contents may change. collects: those that the
    function itself has made, as the names of its locals. ghost: a function that clauses speak of, such as the place of
    each block in a list, at the beginning; then that after an iteration, given the moments before and after it.
    """

    where: str
    so_far: Callable[[Moment], Iterable[Clause]]
    changes: Mapping[str, Unbounded] = field(default_factory=dict)
    collects: tuple[str, ...] = ()
    ghost: Function = lambda number: number
    ghost_after: Callable[[Moment, Moment], Function] = lambda before, _: before.ghost


@dataclass
class Cutting:
    """The loops of a call that are cut. facts: what is true of what is unknown since a loop, in order.

    subjects: the objects that the call can reach. instances: the facts for the numbers of a replay.
    """

    loops: tuple[Loop, ...]
    subjects: tuple[Any, ...]
    everywhere: Everywhere
    facts: list[z3.BoolRef] = field(default_factory=list)
    instances: list[z3.BoolRef] = field(default_factory=list)
    agreements: list[Agreement] = field(default_factory=list)
    begun: list["Cut"] = field(default_factory=list)
    is_ended: bool = False  # a loop asked for the item after an arbitrary one

    def iterator(self, iterated: Iterated, frame: FrameType) -> "Cut":
        """The iterator of a loop that begins in a frame."""
        name = frame.f_code.co_qualname
        loop = next((one for one in self.loops if one.where == name), None)
        if loop is None or any(one.loop is loop for one in self.begun):
            raise refuse("a loop of any length has no claim about what is so far")
        cut = Cut(self, loop, iterated, len(self.begun))
        self.begun.append(cut)
        cut.begin(frame)
        return cut

    @property
    def is_within(self) -> bool:
        """Whether the call has ended within an iteration, or at its end."""
        return self.is_ended or any(one.is_given for one in self.begun)

    def know(self, *facts: z3.BoolRef) -> None:
        self.facts += facts
        self.instances += facts

    def claim(self, sentence: str, property: str, formula: z3.BoolRef) -> None:
        """An agreement that may rely on what is known so far, and on nothing that will be."""
        self.agreements.append(self.relying((sentence, property, formula)))

    def relying(self, agreement: Agreement) -> Agreement:
        """The agreement, for the contents that the facts are about."""
        sentence, property, formula = agreement
        return sentence, property, z3.Implies(every(self.facts), formula) if self.facts else formula


class Cut(Items):
    """The iterator of one loop that is cut."""

    def __init__(self, cutting: Cutting, loop: Loop, iterated: Iterated, number: int) -> None:
        super().__init__(None, is_some=SymbolicBool(z3.Bool(f"another_item_{number}")))
        self.cutting, self.loop, self.iterated, self._number = cutting, loop, iterated, number
        self._changed: dict[str, Unbounded] = {}
        self._watched: list[tuple[str, Unbounded]] = []

    def begin(self, frame: FrameType) -> None:
        """Claim what is true before the first item; then nothing else is known of what the loop may change."""
        if not is_for_statement(frame):
            raise refuse("a list of any length is gone over by something else than one for statement")
        self._frame, self._locals = frame, dict(frame.f_locals)
        self._watched = list(_containers(frame, self.cutting.subjects))
        for name, value in self._locals.items():
            if not (any(value is one for one in self.iterated.sources) or is_followed(value, self)):
                raise refuse(f"in {name} something could go from one iteration of the loop to the next")
        self._changed = {**self.loop.changes, **{name: self._collected(name) for name in self.loop.collects}}
        if any(self._changes(one) for one in self.iterated.sources):
            raise refuse("the loop may change what it goes over")
        self._claim("begins", self._moment(z3.IntVal(0), self.loop.ghost))
        self._forget()
        names = [name for name, one in self._watched if self._changes(one)]
        self._before = Frame(*self.cutting.subjects, changes=names)
        self._contents = [(one, one.content()) for _, one in self._watched if not self._changes(one)]

    def _forget(self) -> None:
        """Any number of iterations were done, or all of them: nothing but the claim is known."""
        for n, one in enumerate(self._changed.values()):
            one.become(unknown_content(f"loop_{self._number}_{n}"))
            self.cutting.know(one.length.term >= 0)
        ghost = z3.Function(f"loop_{self._number}_ghost", z3.IntSort(), z3.IntSort())
        count = self.iterated.count
        if self.is_some:
            done = z3.Int(f"done_{self._number}")
            self.cutting.know(done >= 0, done < count)
        else:
            done = z3.If(count >= 0, count, z3.IntVal(0))
            self.is_done = True
        self.now = self._moment(done, lambda number: ghost(number))
        for clause in self.loop.so_far(self.now):
            self.cutting.facts.append(self.cutting.everywhere(clause.holds))
            self.cutting.instances += [clause.holds(z3.IntVal(number)) for number in REPLAYED]

    def _moment(self, done: z3.ArithRef, ghost: Function) -> Moment:
        return Moment(done, self.iterated.item, {name: one.content() for name, one in self._changed.items()}, ghost)

    def _changes(self, container: Any) -> bool:
        return any(container is one for one in self._changed.values())

    def is_watched(self, value: Any) -> bool:
        """Whether a change of the object would be seen."""
        return any(value is one for one in (*self.cutting.subjects, *(one for _, one in self._watched)))

    def _collected(self, name: str) -> Unbounded:
        """A list that the function has made. It is in no other place, so nothing else changes with it."""
        found = self._locals.get(name)
        if not isinstance(found, Unbounded) or sum(one is found for _, one in self._watched) != 1:
            raise refuse(f"{name} is no list of this function")
        return found

    def _claim(self, when: str, moment: Moment) -> None:
        for clause in self.loop.so_far(moment):
            self.cutting.claim(f"{self.loop.where} {when}: {clause.sentence}", clause.property, clause.holds(SOME))

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        frame = self.asking(sys._getframe(1))
        if self.is_done:
            raise StopIteration
        if not self.is_given:
            self.is_given = True
            return self.iterated.value(self.now.done)
        self.check(frame.f_locals)
        self.is_given, self.is_done = False, True
        after = self._moment(self.now.done + 1, self.now.ghost)
        self._claim("goes on", replace(after, ghost=self.loop.ghost_after(self.now, after)))
        for name in (*self._before.broken(), *self.carried):
            self.cutting.claim(f"{self.loop.where} goes on: {name} is as it was", WELL_DEFINED, z3.BoolVal(False))
        same = [truth(one.has_content(content)) for one, content in self._contents]
        same += [truth(self._before.holds()), self.carries_nothing]
        self.cutting.claim(f"{self.loop.where} goes on: nothing else has changed", WELL_DEFINED, every(same))
        self.cutting.is_ended = True
        raise NextItem


def _containers(frame: FrameType, subjects: tuple[Any, ...]) -> Iterator[tuple[str, Unbounded]]:
    """The containers that the code can reach, by name: attributes of the objects, and locals of the functions."""
    for subject in subjects:
        for name, value in fields_of(subject).items():
            if isinstance(value, Unbounded):
                yield f"{type(subject).__name__}.{name}", value
    within: FrameType | None = frame
    while within is not None and is_proved_code(within.f_globals):
        for name, value in within.f_locals.items():
            if isinstance(value, Unbounded):
                yield name, value
        within = within.f_back


@contextmanager
def cut(cutting: Cutting) -> Iterator[None]:
    """Within the block, loops of any length are cut."""
    with iterating(cutting.iterator):
        yield
