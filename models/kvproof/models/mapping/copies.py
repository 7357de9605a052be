"""The words: a copy, a list of copies, and when two copies do not disturb each other.

A memory is a function from block to content, of which nothing is known but which contents are equal. It is written as
a Python function from a block's term to a content's term, so an update is a case distinction and no array is needed.
In the *tag memory* every block holds its own number: what differs anywhere differs there, so it decides necessity.

Of two copies a and b, in this order, where a *self copy* has its target for source and so changes nothing:

    apart          neither writes what the other reads or writes
    commute        b after a and a after b give the same bytes, whatever the memory
    forward_free   b does not read what a has written: then a list may read everything first
    race_free      reads and writes of both may be interleaved in any way
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import z3

CONTENT = z3.DeclareSort("Content")
INTEGER = z3.IntSort()

Memory = Callable[[z3.ArithRef], z3.ExprRef]


@dataclass(frozen=True)
class Copy:
    """One pair: the content of `source` goes to `target`."""

    source: z3.ArithRef
    target: z3.ArithRef

    def applied(self, memory: Memory) -> Memory:
        """The memory after this copy alone."""
        return written(memory, self.target, memory(self.source))

    def is_self(self) -> z3.BoolRef:
        return self.source == self.target


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
    """The memory with one block replaced."""
    return lambda x: z3.If(x == block, content, memory(x))


def any_memory(name: str) -> Memory:
    """A memory of which nothing is known."""
    return z3.Function(name, INTEGER, CONTENT)


def tag_memory(block: z3.ArithRef) -> z3.ExprRef:
    """The memory in which every block holds its own number."""
    return block


def same(a: Copy, b: Copy) -> z3.BoolRef:
    return z3.And(a.source == b.source, a.target == b.target)


def apart(a: Copy, b: Copy) -> z3.BoolRef:
    return z3.And(a.target != b.target, a.target != b.source, b.target != a.source)


def commute(a: Copy, b: Copy) -> z3.BoolRef:
    return z3.Or(a.is_self(), b.is_self(), same(a, b), apart(a, b))


def forward_free(a: Copy, b: Copy) -> z3.BoolRef:
    return z3.Or(a.target != b.source, a.is_self())


def race_free(a: Copy, b: Copy) -> z3.BoolRef:
    return z3.Or(same(a, b), z3.And(a.target != b.target, forward_free(a, b), forward_free(b, a)))
