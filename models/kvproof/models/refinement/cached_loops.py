"""Loops of `CachedBlocks` over any number of blocks: `record_access`, and `register_new`.

The specification has no times and no objects for contents, so what is claimed is said here: each block accessed was
accessed at that time or later, and each content is registered with its block; no other block and content changes.
"""

from collections.abc import Callable, Iterator
from typing import Any

import z3

from kvproof.impl.cached_blocks import CachedBlocks
from kvproof.models.concolic.scenario import Outcome
from kvproof.models.concolic.symbolic import SymbolicInt, number
from kvproof.models.obligation import Hypothesis
from kvproof.models.refinement.abstraction import Agreement
from kvproof.models.refinement.cached_steps import cached_device
from kvproof.models.refinement.cuts import Clause, Function, Loop, Moment
from kvproof.models.refinement.replay import LENGTH_MAX, Specified, Value, is_same
from kvproof.models.refinement.setting import Setting
from kvproof.models.refinement.simulation import Call, Simulation
from kvproof.models.refinement.unbounded import Cells, Iterated, Reference, References, unknown_content

COUNT = z3.Int("given_count")  # of the ids that the call gets
NOW = z3.Int("given_time")
FIELDS = ("block_id", "num_needs")  # of a content


def _function(name: str) -> Function:
    made = z3.Function(name, z3.IntSort(), z3.IntSort())
    return lambda number: made(number)


IDS = _function("given_ids")
FIRST_AT = _function("first_at")  # ghost: where a block is first among the ids; -1 if it is nowhere


def simulations(setting: Setting) -> Iterator[Simulation]:
    """The functions that go over any number of blocks, and that no rule has."""
    yield _accessing(setting)
    yield _registering(setting)


def _is_block(setting: Setting, block: z3.ArithRef) -> z3.BoolRef:
    return z3.And(block >= 0, block < setting.abstraction.size("NUM_BLOCKS"))


def _is_at(place: z3.ArithRef) -> z3.BoolRef:
    return z3.And(place >= 0, place < COUNT)


def _given(setting: Setting) -> Iterator[tuple[str, Callable[[z3.ArithRef], z3.BoolRef]]]:
    """What is assumed of the ids: they are blocks. `FIRST_AT` names the place of each."""

    def is_id(at: z3.ArithRef) -> z3.BoolRef:
        first = FIRST_AT(IDS(at))
        is_first = z3.And(first >= 0, first <= at, IDS(first) == IDS(at))
        return z3.Implies(_is_at(at), z3.And(_is_block(setting, IDS(at)), is_first))

    def is_there(block: z3.ArithRef) -> z3.BoolRef:
        return z3.Or(FIRST_AT(block) == -1, z3.And(_is_at(FIRST_AT(block)), IDS(FIRST_AT(block)) == block))

    yield "the ids are those of blocks", is_id
    yield "the first place of each block among the ids", is_there


def _distinct(at: z3.ArithRef) -> z3.BoolRef:
    return z3.Implies(_is_at(at), FIRST_AT(IDS(at)) == at)


def _small(setting: Setting, *others: Callable[[z3.ArithRef], z3.BoolRef]) -> tuple[z3.BoolRef, ...]:
    """The assumptions for small numbers, for a replay, in which the loop has several iterations."""
    every = [*(holds for _, holds in _given(setting)), *others]
    return (COUNT > 1, *(holds(z3.IntVal(at)) for holds in every for at in range(LENGTH_MAX + 1)))


# Times ---------------------------------------------------------------------------------------------------------------


def _accessing(setting: Setting) -> Simulation:
    def start() -> Call:
        device = cached_device(setting)
        before = device.last_accessed.content()[1]

        def accessed(block: z3.ArithRef, stop: z3.ArithRef) -> z3.ArithRef:
            is_so = z3.And(FIRST_AT(block) >= 0, FIRST_AT(block) < stop, NOW > before(block))
            found: z3.ArithRef = z3.If(is_so, NOW, before(block))
            return found

        def so_far(now: Moment) -> Iterator[Clause]:
            as_long = now.length("times") == setting.abstraction.size("NUM_BLOCKS")
            yield Clause("each block has a time", "eviction-order", lambda _: as_long)

            def time(block: z3.ArithRef) -> z3.BoolRef:
                return z3.Implies(_is_block(setting, block), now.read("times", block) == accessed(block, now.done))

            yield Clause("each block so far has at least that time, and no other changes", "eviction-order", time)

        def claims(outcome: Outcome) -> Iterator[Agreement]:
            block = z3.Int("some_block")
            same = device.last_accessed.read(block) == accessed(block, COUNT)
            sentence = "each block accessed has at least that time, and no other changes"
            yield sentence, "eviction-order", z3.Implies(_is_block(setting, block), same)
            yield "nothing is returned", "frame-kept", z3.BoolVal(outcome.value is None)

        loop = Loop("CachedBlocks.record_access", so_far, {"times": device.last_accessed})
        arguments = (Cells(COUNT, IDS), SymbolicInt(NOW))
        changes = ("CachedBlocks.last_accessed",)
        return Call(device, "record_access", claims, arguments, changes, loops=(loop,), small=_small(setting))

    known = [Hypothesis(name, setting.everywhere(holds)) for name, holds in _given(setting)]
    some = Hypothesis("any number of ids", COUNT >= 0)
    sizes = [one for one in setting.assumed if one.name.startswith("sizes")]
    subject = "CachedBlocks.record_access of any number of blocks"
    return Simulation(subject, CachedBlocks.record_access, (*sizes, some, *known), start)


# Contents ------------------------------------------------------------------------------------------------------------


class Record(Reference):
    """One of the objects of a list: its attributes are items of the lists that `Records` has."""

    __slots__ = ("_records",)

    def __init__(self, records: "Records", number: z3.ArithRef) -> None:
        object.__setattr__(self, "number", number)
        object.__setattr__(self, "_records", records)

    def __getattr__(self, name: str) -> Any:
        field = vars(self._records).get(name)
        if not isinstance(field, Cells):
            raise AttributeError(name)
        return SymbolicInt(field.read(self.number))

    def __setattr__(self, name: str, value: Any) -> None:
        field = vars(self._records).get(name)
        if not isinstance(field, Cells):
            raise AttributeError(name)
        before, at, new = field.read, self.number, number(value)
        field.read = lambda index: z3.If(index == at, new, before(index))


class PlainRecord(int):
    """An object of a replay: a number that has attributes."""


class Records(Specified):
    """A list of distinct objects, of any length: for each attribute a list of its values."""

    def __init__(self, length: z3.ArithRef, names: tuple[str, ...]) -> None:
        self.length = SymbolicInt(length)
        for name in names:
            _, read = unknown_content(f"given_{name}")
            setattr(self, name, Cells(length, read))

    def iterated(self) -> Iterated:
        """Its objects, one after another."""
        return Iterated((self,), self.length.term, lambda at: at, lambda at: Record(self, at))

    def __copy__(self) -> "Records":
        made = Records(self.length.term, ())
        for name, value in vars(self).items():
            setattr(made, name, Cells(*value.content()) if isinstance(value, Cells) else value)
        return made

    def plain(self, value: Value) -> list[PlainRecord]:
        """The same with plain numbers, for a replay."""
        return [self._plain(z3.IntVal(at), value) for at in range(value(self.length.term))]

    def _plain(self, at: z3.ArithRef, value: Value) -> PlainRecord:
        made = PlainRecord(value(at))
        for name, field in vars(self).items():
            if isinstance(field, Cells):
                setattr(made, name, value(field.read(at)))
        return made

    def agrees(self, plain: list[PlainRecord], value: Value) -> bool:
        """Whether plain objects are what the terms say."""
        ours, theirs = ([list(vars(one).values()) for one in each] for each in (self.plain(value), plain))
        same = (
            len(one) == len(other) and all(map(is_same, one, other)) for one, other in zip(ours, theirs, strict=False)
        )
        return len(ours) == len(theirs) and all(same)


Registered = tuple[Function, Function, Function]  # the needs of contents, their blocks, and the content of each block


def _registered(setting: Setting, before: Registered, stop: z3.ArithRef, now: Registered) -> Iterator[Clause]:
    """What has changed when the first `stop` contents are registered."""
    (needs, blocks, registered), (needed, block_of, of) = before, now

    def is_registered(block: z3.ArithRef) -> z3.BoolRef:
        at = FIRST_AT(block)
        then = z3.If(z3.And(at >= 0, at < stop), at, registered(block))
        return z3.Implies(_is_block(setting, block), of(block) == then)

    def has_need(at: z3.ArithRef) -> z3.BoolRef:
        more = z3.If(z3.And(at >= 0, at < stop), z3.IntVal(1), z3.IntVal(0))
        counted: z3.BoolRef = needed(at) == needs(at) + more
        return counted

    def has_block(at: z3.ArithRef) -> z3.BoolRef:
        found: z3.BoolRef = block_of(at) == z3.If(z3.And(at >= 0, at < stop), IDS(at), blocks(at))
        return found

    yield Clause("each block has its content, and no other block another", "cache-content", is_registered)
    yield Clause("each content has one need more, and no other", "cache-content", has_need)
    yield Clause("each content is found in its block, and no other", "cache-content", has_block)


def _registering(setting: Setting) -> Simulation:
    num_contents = z3.Int("given_contents")
    num_pairs = z3.If(COUNT < num_contents, COUNT, num_contents)

    def start() -> Call:
        device, contents = cached_device(setting), Records(num_contents, FIELDS)
        _, registered = unknown_content("content_of")
        device.content_of = References(setting.abstraction.size("NUM_BLOCKS"), registered)
        needs, blocks = contents.num_needs, contents.block_id  # type: ignore[attr-defined]
        before = needs.content()[1], blocks.content()[1], registered

        def so_far(now: Moment) -> Iterator[Clause]:
            size = setting.abstraction.size("NUM_BLOCKS")
            as_long = z3.And(now.length("content_of") == size, now.length("needs") == num_contents)
            yield Clause("the lists are as long", "lists-agree", lambda _: as_long)
            needed, block_of, of = (
                lambda at, name=name: now.read(name, at) for name in ("needs", "blocks", "content_of")
            )
            yield from _registered(setting, before, now.done, (needed, block_of, of))

        def claims(outcome: Outcome) -> Iterator[Agreement]:
            for clause in _registered(setting, before, num_pairs, (needs.read, blocks.read, device.content_of.read)):
                yield clause.sentence, clause.property, clause.holds(z3.Int("some_number"))
            yield "nothing is returned", "frame-kept", z3.BoolVal(outcome.value is None)

        fields = {"content_of": device.content_of, "needs": needs, "blocks": blocks}
        loop = Loop("CachedBlocks.register_new", so_far, fields)
        changes = ("CachedBlocks.content_of", *(f"Records.{name}" for name in FIELDS))
        return Call(
            device,
            "register_new",
            claims,
            (Cells(COUNT, IDS), contents),
            changes,
            others=(contents,),
            loops=(loop,),
            small=(num_contents > 1, *_small(setting, _distinct)),
        )

    known = [Hypothesis(name, setting.everywhere(holds)) for name, holds in _given(setting)]
    distinct = Hypothesis("no id is given twice", setting.everywhere(_distinct))
    some = Hypothesis("any number of ids and contents", z3.And(COUNT >= 0, num_contents >= 0))
    sizes = [one for one in setting.assumed if one.name.startswith("sizes")]
    subject = "CachedBlocks.register_new of any number of blocks"
    return Simulation(subject, CachedBlocks.register_new, (*sizes, some, *known, distinct), start)
