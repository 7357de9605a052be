"""A copy, a list of copies, and what is proved of two copies: when each way to run them gives the same bytes.

A memory is a function from blocks to contents; of contents, only equality is known. It is represented by a Python
function from the term of a block to the term of a content, so an update is a case distinction, and no array is needed.
In the *tag memory* every block holds its own number. If two results differ on any memory, they differ on this one, so
it shows that a condition is necessary.

The predicates of the specification (`kvproof.spec.text.mapping`) say when two copies disturb each other. They are read
here as formulas, so the theorems are about the predicates that the judges run.

The condition for two copies is exact. *Enough*: under the condition, the results agree on every memory. *Needed*: if
they agree on the tag memory, the condition holds; so no weaker condition is enough.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import cast

import z3

from kvproof.models.obligation import Hypothesis, Obligation
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


FIRST = Copy(z3.Int("first_source"), z3.Int("first_target"))
SECOND = Copy(z3.Int("second_source"), z3.Int("second_target"))
PAIR = (FIRST, SECOND)
BLOCK = z3.Int("block")

Event = tuple[int, str]  # index of the copy; "read" or "write"

SCHEDULES: list[tuple[Event, ...]] = [
    order
    for order in permutations([(0, "read"), (0, "write"), (1, "read"), (1, "write")])
    if all(order.index((copy, "read")) < order.index((copy, "write")) for copy in (0, 1))
]


def sequential(copies: Sequence[Copy], memory: Memory) -> Memory:
    """The memory after the copies, one after the other."""
    for copy in copies:
        memory = copy.applied(memory)
    return memory


def snapshot(copies: Sequence[Copy], memory: Memory) -> Memory:
    """The memory if all sources are read first, and then the targets are written in the order of the list."""
    result = memory
    for copy in copies:
        result = written(result, copy.target, memory(copy.source))
    return result


def scheduled(copies: Sequence[Copy], schedule: Sequence[Event], memory: Memory) -> Memory:
    """The memory after these reads into registers and writes from them, in this order."""
    registers: dict[int, z3.ExprRef] = {}
    for copy, event in schedule:
        if event == "read":
            registers[copy] = memory(copies[copy].source)
        else:
            memory = written(memory, copies[copy].target, registers[copy])
    return memory


def agree(one: Memory, other: Memory) -> z3.BoolRef:
    """Both memories have the same content in every block."""
    return z3.ForAll([BLOCK], one(BLOCK) == other(BLOCK))


def all_schedules_agree(memory: Memory) -> z3.BoolRef:
    """Every interleaving gives the same bytes as running one copy after the other."""
    expected = sequential(PAIR, memory)
    return z3.And([agree(scheduled(PAIR, schedule, memory), expected) for schedule in SCHEDULES])


def reversed_agrees(memory: Memory) -> z3.BoolRef:
    return agree(sequential(PAIR, memory), sequential(PAIR[::-1], memory))


def snapshot_agrees(memory: Memory) -> z3.BoolRef:
    return agree(sequential(PAIR, memory), snapshot(PAIR, memory))


CLAIMS = (
    ("in either order", "the two copies commute", commute, reversed_agrees),
    ("reading everything first", "the second does not read what the first wrote", forward_free, snapshot_agrees),
    ("in any interleaving", "the two copies do not race", race_free, all_schedules_agree),
)


def obligations() -> Iterator[Obligation]:
    """For each way to run two copies: the condition is enough, and it is needed."""
    for way, condition_name, condition, claim in CLAIMS:
        yield Obligation(
            "mapping",
            "two copies",
            f"{way}: enough",
            "mapping-hazard-free",
            (Hypothesis(condition_name, condition(FIRST, SECOND)),),
            claim(any_memory("memory")),
        )
        yield Obligation(
            "mapping",
            "two copies",
            f"{way}: needed",
            "mapping-hazard-free",
            (Hypothesis("every block holds its own number, and the bytes agree", claim(tag_memory)),),
            condition(FIRST, SECOND),
        )
