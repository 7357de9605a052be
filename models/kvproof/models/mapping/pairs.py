"""Two copies: the exact condition under which each way to run them gives the same bytes.

*Enough*: under the condition, the results agree on every memory. *Needed*: if they agree on the tag memory, the
condition holds; so no weaker condition is enough.
"""

from collections.abc import Iterator, Sequence
from itertools import permutations

import z3

from kvproof.models.mapping.copies import (
    Copy,
    Memory,
    any_memory,
    commute,
    forward_free,
    race_free,
    tag_memory,
    written,
)
from kvproof.models.obligation import Hypothesis, Obligation

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
