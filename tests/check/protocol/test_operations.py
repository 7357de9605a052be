"""One class describes an operation: its arguments, what a shrinker tries, and how it reads."""

from pathlib import Path
from random import Random
from typing import Any, ClassVar

import msgspec
import pytest
from tests.lawful.encoders import Oldest

from kvproof.check.counterexample import trace_schema
from kvproof.check.counterexample.trace_schema import CounterexampleError, operations_of
from kvproof.check.oracle.level import LEVELS, MANAGER, level_of, typed
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.manager_operations import ManagerOperation
from kvproof.check.protocol.operations import Count, one_or_one_less
from kvproof.check.protocol.store import Evict
from kvproof.check.search import suppression
from kvproof.check.search.manager_operations import ManagerOperations
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.check.subjects.registry import find
from kvproof.spec.trace import Operation, Trace

PLAIN, CHUNKED = Config(), Config(chunked=True)


@pytest.mark.parametrize(
    ("operation", "config", "text"),
    [
        (("new", 1, (1,), (0, 1, 1)), PLAIN, "new(group 1, sequence 1, 3 tokens: 0 1 1)"),
        (("new", 1, (1, 2), (5, 5, 5)), PLAIN, "new(group 1, sequences 1 and 2, 3 tokens, all 5)"),
        (
            ("new", 1, (1,), (0,), ("X", 2, "Y"), (("P", 0, 1),), (9, (1, 0))),
            PLAIN,
            "new(group 1, sequence 1, 1 token: 0, adapter X with id 2, salt Y, image P in 1 position from 0, "
            "encoder sequence 9 of 2 tokens: 1 0)",
        ),
        (("admit", 1, 3), PLAIN, "admit(group 1)"),
        (("admit", 1, 3), CHUNKED, "admit(group 1, at most 3 tokens)"),
        (("extend", 4, 1), CHUNKED, "extend(sequence 4, 1 token)"),
        (("sample", 1, (0,)), PLAIN, "sample(group 1, 1 token: 0)"),
        (("fork", 1, 2), PLAIN, "fork(sequence 1, into 2)"),
        (("free", 2), PLAIN, "free(sequence 2)"),
        (("run", 0), PLAIN, "run()"),
        (("run", 1), PLAIN, "run(after 1 s)"),
        (("swap_out", 3), PLAIN, "swap_out(group 3)"),
        (("reset",), PLAIN, "reset()"),
    ],
)
def test_an_operation_reads_as_a_call(operation: Operation, config: Config, text: str) -> None:
    assert typed(operation).text(config) == text


def test_every_operation_has_a_handler_in_the_judge_of_its_level() -> None:
    subjects: list[Any] = [find(f"kvproof{name}")() for name in ("", "-scheduler", "-pool", "-store", "-pair")]
    subjects.append(Oldest())
    levels = [*map(level_of, subjects)]
    assert {level.name for level in levels} == {level.name for level in LEVELS}
    for level, subject in zip(levels, subjects, strict=True):
        judge: Any = level.open(subject, level.config())
        assert judge.handlers.keys() == level.kinds.keys()


def test_no_two_levels_have_an_operation_of_the_same_name() -> None:
    names = [name for level in LEVELS for name in level.kinds]
    assert len(set(names)) == len(names) > 20


@pytest.mark.parametrize(
    "operation",
    [
        ("new", 1, (1,), (0,)),
        ("new", 1, (1,), (0,), (None, 0, None), ()),
        ("new", 1, (1,), (0,), (None, 0, None), (), None),
        ("complete", (0,)),
        ("complete", (0,), (), ()),
        ("reset",),
    ],
)
def test_what_was_left_out_of_an_operation_stays_left_out(operation: Operation) -> None:
    assert typed(operation).as_tuple() == operation


def test_simpler_prompts_lose_what_they_can_do_without_and_then_their_tokens() -> None:
    prompt = ("new", 1, (1, 2), (1, 0), ("X", 1, None), (("P", 0, 1),), (9, (1, 0)))
    assert [simpler.as_tuple() for simpler in typed(prompt).simpler()] == [
        ("new", 1, (1,), (1, 0), ("X", 1, None), (("P", 0, 1),), (9, (1, 0))),
        ("new", 1, (1, 2), (1, 0), ("X", 1, None), (("P", 0, 1),)),
        ("new", 1, (1, 2), (1, 0), ("X", 1, None), (("P", 0, 1),), (9, (1,))),
        ("new", 1, (1, 2), (1, 0), ("X", 1, None), (), (9, (1, 0))),
        ("new", 1, (1, 2), (1, 0), (None, 0, None), (("P", 0, 1),), (9, (1, 0))),
        ("new", 1, (1, 2), (1,), ("X", 1, None), (("P", 0, 1),), (9, (1, 0))),
        ("new", 1, (1, 2), (0, 0), ("X", 1, None), (("P", 0, 1),), (9, (1, 0))),
    ]


class Compact(ManagerOperation, frozen=True, tag="compact"):
    """An operation that there is not: move the blocks of a group together."""

    is_optional: ClassVar[bool] = True
    group: int
    num_blocks: Count = 0

    def simpler(self):  # type: ignore[no-untyped-def]
        yield from (self.changed(num_blocks=number) for number in one_or_one_less(self.num_blocks))


def test_a_new_operation_needs_only_a_class_and_a_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MANAGER.kinds, "compact", Compact)
    path = Path("trace.json")
    trace = Trace("any", "total-calls", "", {}, [["compact", 1, 5], ["compact", 2]])

    assert operations_of(trace, path) == [("compact", 1, 5), ("compact", 2)]
    trace.operations[0][2] = "five"
    with pytest.raises(CounterexampleError, match=r"Expected `int`, got `str` - at `\$\.operations\[0\]\[2\]`"):
        operations_of(trace, path)
    assert trace_schema.config_of(trace, path) == Config()
    simpler = [operation.as_tuple() for operation in typed(("compact", 1, 5)).simpler()]
    assert simpler == [("compact", 1, 1), ("compact", 1, 4)]
    assert typed(("compact", 1, 5)).text(Config()) == "compact(group 1, num_blocks 5)"
    assert suppression.features_of(Config(), [("compact", 1, 5)]) == ("compact",)
    assert "compact" in suppression.every_feature()
    assert ManagerOperations(BuiltIn(), Random(1), Config()).weights["compact"] > 0


def test_the_last_ones_of_many_keys_are_tried_before_each_key_is_left_out() -> None:
    many = tuple(range(20))
    tried = [operation.keys for operation in Evict(many).simpler()]
    assert (19,) in tried
    assert all(keys in (many[: len(keys)], many[-len(keys) :]) for keys in tried)
    assert (1, 2) in [operation.keys for operation in Evict((0, 1, 2)).simpler()]


RICH: list[Operation] = [
    ("new", 1, (1, 2), (1, 0), ("X", 1, None), (("P", 0, 1),), (9, (1, 0))),
    ("sample", 1, (1, 0)),
    ("add", 1, (1, 2), (1, 0), 2, ("X", 1, None), (("P", 0, 1),), (9, (1, 0))),
    ("launch", (1, 0)),
    ("complete", (1, 0), ((1, 2),), (3,), (4, 5), (0, 1)),
    ("store", 1, (1, 0)),
    ("find", (1, 0)),
    ("look_up", 1, (1, 0)),
    ("land", 1, (0, 1)),
    ("evict", (1, 0)),
]


@pytest.mark.parametrize("operation", RICH, ids=[name for name, *_ in RICH])
def test_what_a_shrinker_makes_of_an_operation_can_stand_in_a_trace(operation: Operation) -> None:
    made = {operation}
    new = [operation]
    while new:
        simpler = {one.as_tuple() for each in new for one in typed(each).simpler()}
        new = sorted(simpler - made, key=repr)
        made |= simpler
    assert len(made) > 1
    trace = Trace("any", "total-calls", "", {}, [[*one] for one in sorted(made, key=repr)])
    read = operations_of(msgspec.convert(msgspec.to_builtins(trace), Trace), Path("trace.json"))
    assert set(read) == made
