"""A list comprehension as a loop does what the comprehension does; another source than that of the code is not used."""

import linecache
from collections.abc import Callable, Iterator
from itertools import count
from types import FunctionType
from typing import Any

import pytest

from kvproof.impl.device_blocks import DeviceBlocks
from kvproof.models.refinement.comprehensions import NEW_LIST, code_of

NUMBERS = count()


def made(body: str, arguments: str = "items") -> FunctionType:
    """A function with a source."""
    source = f"def function({arguments}):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    file = f"a test of comprehensions, {next(NUMBERS)}"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    names: dict[str, Any] = {}
    exec(compile(source, file, "exec"), names)
    function = names["function"]
    assert isinstance(function, FunctionType)
    return function


def inner(code: Any) -> Iterator[Any]:
    for one in code.co_consts:
        if isinstance(one, type(code)):
            yield one
            yield from inner(one)


def with_loops(function: FunctionType, new_list: Callable[[], Any] = list) -> FunctionType:
    return FunctionType(code_of(function), {**function.__globals__, NEW_LIST: new_list}, closure=function.__closure__)


@pytest.mark.parametrize(
    "body",
    [
        "return [item + 1 for item in items]",
        "found = [item for item in items if item % 2 if item > 2]\nreturn found, len(found)",
        "pop = items.pop\ntaken = [pop() for _ in range(3)]\nreturn taken, items",
        "item = 7\nfound = [item for item in items]\nreturn found, item",
        "pairs: list = [one * other for one, other in zip(items, items[1:])]\nreturn pairs",
        "return sum([item for item in items])",
        "one = [item for item in items]\nif one:\n    other = [item * 2 for item in one]\n    return one, other",
    ],
)
def test_a_comprehension_as_a_loop_does_the_same(body: str) -> None:
    function = made(body)
    changed = with_loops(function)
    assert "as_a_loop" in [one.co_name for one in inner(changed.__code__)]
    for items in ([], [4], [3, 1, 4, 1, 5]):
        outcomes = []
        for one in (function, changed):
            try:
                outcomes.append((one(list(items)), ""))
            except IndexError as error:
                outcomes.append((None, str(error)))
        assert outcomes[0] == outcomes[1]


def test_the_list_that_it_fills_is_the_one_that_a_proof_gives_it() -> None:
    class Listed(list[int]):
        pass

    assert type(with_loops(made("return [item for item in items]"), Listed)([1, 2])) is Listed


@pytest.mark.parametrize(
    "body",
    [
        "return [one + other for one in items for other in items]",
        "return [(last := item) for item in items], last",
        "return [[one] for one in [other for other in items]]",
        "return [item for item in items], [item for item in items]",
        "return [items for items in items]",
        "return lambda: [item for item in items]",
        "return {item: 1 for item in items}",
    ],
)
def test_what_is_no_single_loop_stays_as_it_is(body: str) -> None:
    assert "as_a_loop" not in [one.co_name for one in inner(code_of(made(body)))]


def test_a_source_that_is_not_that_of_the_code_is_not_used() -> None:
    function = made("return [item + 1 for item in items]")
    lines = linecache.cache[function.__code__.co_filename][2]  # type: ignore[misc]
    lines[1] = lines[1].replace("+ 1", "+ 2")
    assert code_of(function) is function.__code__


def test_a_function_without_a_source_or_a_comprehension_stays_as_it_is() -> None:
    names: dict[str, Any] = {}
    exec("def function(items):\n    return [item for item in items]\n", names)
    assert code_of(names["function"]) is names["function"].__code__
    share, take = (getattr(DeviceBlocks, name) for name in ("share", "take"))
    assert code_of(share) is share.__code__
    assert code_of(take) is not take.__code__
