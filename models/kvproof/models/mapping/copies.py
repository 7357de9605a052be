"""Definitions: a copy, a list of copies, and the relations between two copies.

A memory is a function from blocks to contents; of contents, only equality is known. It is represented by a Python
function from the term of a block to the term of a content, so an update is a case distinction, and no array is needed.
In the *tag memory* every block holds its own number. If two results differ on any memory, they differ on this one, so
it shows that a condition is necessary.

The predicates of the specification (`kvproof.spec.text.mapping`) say when two copies disturb each other. They are read
here as formulas, so the theorems are about the predicates that the judges run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import z3

from kvproof.models.translation.rules import Run
from kvproof.models.translation.sizes import Universe
from kvproof.models.translation.text import specification
from kvproof.models.translation.translator import Translator

CONTENT = z3.DeclareSort("Content")
INTEGER = z3.IntSort()

Memory = Callable[[z3.ArithRef], z3.ExprRef]


@dataclass(frozen=True)
class Copy:
    """One pair: the content of `source` is written to `target`."""

    source: z3.ArithRef
    target: z3.ArithRef

    def applied(self, memory: Memory) -> Memory:
        """The memory after this copy alone."""
        return written(memory, self.target, memory(self.source))


@dataclass(frozen=True)
class CopyList:
    """A list of copies of any length: pair i is (source(i), target(i)) for 0 <= i < length."""

    source: z3.FuncDeclRef
    target: z3.FuncDeclRef
    length: z3.ArithRef

    def __getitem__(self, index: z3.ArithRef) -> Copy:
        return Copy(self.source(index), self.target(index))

    def has(self, index: z3.ArithRef) -> z3.BoolRef:
        return z3.And(index >= 0, index < self.length)


def written(memory: Memory, block: z3.ArithRef, content: z3.ExprRef) -> Memory:
    """The memory after writing one block."""
    return lambda x: z3.If(x == block, content, memory(x))


def any_memory(name: str) -> Memory:
    return z3.Function(name, INTEGER, CONTENT)


def tag_memory(block: z3.ArithRef) -> z3.ExprRef:
    """The memory in which every block holds its own number."""
    return block


def _predicate(name: str, *blocks: z3.ArithRef) -> z3.BoolRef:
    """A predicate of the specification about two pairs, as a formula."""
    text = specification()
    run = Run(text, Universe(), Translator(text=text).unknown_state())
    return cast(z3.BoolRef, run.call(name, *blocks).value)


def apart(a: Copy, b: Copy) -> z3.BoolRef:
    """Neither copy writes what the other reads or writes."""
    return _predicate("are_apart", a.source, a.target, b.source, b.target)


def commute(a: Copy, b: Copy) -> z3.BoolRef:
    """Both orders give the same bytes."""
    return _predicate("commute", a.source, a.target, b.source, b.target)


def forward_free(a: Copy, b: Copy) -> z3.BoolRef:
    """The second copy does not read what the first has written."""
    return _predicate("is_forward_free", a.source, a.target, b.source)


def race_free(a: Copy, b: Copy) -> z3.BoolRef:
    """Reads and writes of both copies may be interleaved in any way."""
    return _predicate("is_race_free", a.source, a.target, b.source, b.target)
