"""No regular expression of the product takes longer than in proportion to the text, which may be anybody's.

Each call of `re` in the sources is found by their syntax. Its pattern is run on long runs of one character, and of what
the pattern repeats, after each beginning that it matches: there a search that tries every position again, or every way
to divide a run, takes the square of the length or more. The processor time of a linear one is a hundredth of the limit.
"""

import ast
import importlib
import re
import time
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from tests.syntax import parsed

TREE = Path(__file__).parents[1]
ROOTS = ("spec", "impl", "models", "reports", "check")
METHODS = {"match", "search", "sub", "subn", "split", "fullmatch", "findall", "finditer"}
USES = re.compile(rf"^\s*(?:import|from) re\b|[A-Z]\.(?:{'|'.join(sorted(METHODS))})\(", re.MULTILINE)
LENGTHS = (16, 18, 20, 22, 24, 32, 64, 128, 256, 512, 1024, 2048, 4096)
SECONDS_MAX = 0.02  # of the processor; a square of the last length takes 0.1 s at the least
NOT_FOREIGN = {"kvproof.models.pin"}  # modules that read files of the package alone
ENDS = ("", "\x01", "\n!")
CATEGORIES = {
    constants.CATEGORY_DIGIT: "1",
    constants.CATEGORY_WORD: "a1",
    constants.CATEGORY_SPACE: " \n",
    constants.CATEGORY_NOT_DIGIT: "a ",
    constants.CATEGORY_NOT_WORD: " !",
    constants.CATEGORY_NOT_SPACE: "a1",
}
REPEATS = (constants.MAX_REPEAT, constants.MIN_REPEAT, getattr(constants, "POSSESSIVE_REPEAT", None))


class Expression(NamedTuple):
    """One pattern of the sources, and how it is used."""

    place: str
    pattern: str | bytes
    flags: int
    methods: frozenset[str]


@cache
def trees() -> list[tuple[str, ast.Module]]:
    """The modules that import `re`, or use what is called as a constant is, and what they say."""
    found = []
    for path in sorted(path for root in ROOTS for path in (TREE / root / "kvproof").rglob("*.py")):
        if USES.search(path.read_text(encoding="utf-8")):
            found.append(
                (path.relative_to(TREE).with_suffix("").as_posix().partition("/")[2].replace("/", "."), parsed(path))
            )
    return found


@cache
def used() -> dict[str, set[str]]:
    """The methods that are called of what has a name, in any file."""
    found: dict[str, set[str]] = {}
    for node in (node for _, tree in trees() for node in ast.walk(tree)):
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            found.setdefault(getattr(node.value, "id", getattr(node.value, "attr", "")), set()).add(node.attr)
    return {name: methods for name, methods in found.items() if name}


def text_of(node: ast.expr, module: ModuleType | None) -> Any:
    """The value of a pattern; what only a run knows is a word in it."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(text_of(part, module)) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        node = node.value
    try:
        return eval(compile(ast.Expression(node), "pattern", "eval"), vars(module) if module else {})
    except NameError:
        return "word"


def assigned(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The identities of what is assigned, and the names."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=True))
            yield from ((id(value), name.id) for name, value in pairs if isinstance(name, ast.Name))


def expressions() -> list[Expression]:
    found = []
    for name, tree in trees():
        named = dict(assigned(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "re":
                raise AssertionError(f"{name} imports names of `re`, which this test does not follow")
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if getattr(node.func.value, "id", "") != "re" or node.func.attr not in {*METHODS, "compile"}:
                continue
            pattern = node.args[0]
            is_plain = isinstance(pattern, ast.Constant)
            text = text_of(pattern, None if is_plain else importlib.import_module(name))
            flags = [one for one in ast.walk(node) if isinstance(one, ast.Attribute) and one.attr.isupper()]
            methods = {node.func.attr} & METHODS or used().get(named.get(id(node), ""), set()) or {"search"}
            value = sum(getattr(re, one.attr) for one in flags if getattr(one.value, "id", "") == "re")
            found.append(Expression(f"{name}:{node.lineno}", text, int(value), frozenset(methods)))
    return found


def characters(nodes: Any) -> Iterator[str]:
    """Characters that a part of a pattern matches somewhere."""
    for kind, value in nodes:
        if kind is constants.LITERAL:
            yield chr(value)
        elif kind is constants.RANGE:
            yield from (chr(value[0]), chr(value[1]))
        elif kind is constants.CATEGORY:
            yield from CATEGORIES[value]
        elif kind in (constants.NOT_LITERAL, constants.ANY, constants.NEGATE):
            yield from "a1 "
        elif kind is constants.IN:
            yield from characters(value)
        elif kind in REPEATS:
            yield from characters(value[2])
        elif kind is constants.SUBPATTERN:
            yield from characters(value[-1])
        elif kind is constants.BRANCH:
            for branch in value[1]:
                yield from characters(branch)
        elif kind in (constants.ASSERT, constants.ASSERT_NOT):
            yield from characters(value[1])


def example(nodes: Any, num_repeats: int = 1) -> str:
    """A short text that a part of a pattern matches, as a rule."""
    text = ""
    for kind, value in nodes:
        if kind is constants.LITERAL:
            text += chr(value)
        elif kind is constants.IN:
            is_negated = value[0][0] is constants.NEGATE
            text += next((one for one in "a1 !" if one not in set(characters(value[1:]))), "~") if is_negated else (
                next(characters(value)))  # fmt: skip
        elif kind in (constants.NOT_LITERAL, constants.ANY):
            text += "a"
        elif kind in REPEATS:
            text += example(value[2]) * max(value[0], min(num_repeats, int(value[1])))
        elif kind is constants.SUBPATTERN:
            text += example(value[-1])
        elif kind is constants.BRANCH:
            text += example(value[1][0])
    return text


def repeated(nodes: Any) -> Iterator[str]:
    """Examples of what a pattern repeats."""
    for kind, value in nodes:
        if kind in REPEATS:
            yield example(value[2])
            yield from repeated(value[2])
        elif kind is constants.SUBPATTERN:
            yield from repeated(value[-1])
        elif kind is constants.BRANCH:
            for branch in value[1]:
                yield from repeated(branch)


def beginnings(nodes: Any) -> Iterator[str]:
    """Texts that match the first parts of a pattern, also within its groups."""
    before = ""
    for node in nodes:
        yield before
        inner = node[1][-1] if node[0] is constants.SUBPATTERN else node[1][2] if node[0] in REPEATS else None
        if inner is not None:
            yield from (before + begun for begun in beginnings(inner))
        before += example([node])
    yield before


def attacks(expression: Expression) -> Iterator[tuple[str, str, str]]:
    """A beginning, what is repeated after it, and an end."""
    nodes = parser.parse(expression.pattern, expression.flags)
    begun = sorted({one for one in beginnings(nodes) if len(one) <= LENGTHS[-1]})
    yield from product(begun, sorted({*characters(nodes), *filter(None, repeated(nodes))}), ENDS)
    yield from product([""], filter(None, begun), ENDS)


def seconds(compiled: "re.Pattern[Any]", method: str, text: Any) -> float:
    """The processor time of one use; the shortest of three, if the first is long."""
    call = getattr(compiled, method)
    arguments = (type(text)(), text) if method in ("sub", "subn") else (text,)
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        found = call(*arguments)
        if method == "finditer":
            list(found)
        best = min(best, time.process_time() - began)
        if best < SECONDS_MAX:
            break
    return best


def slow(expression: Expression) -> str:
    """An attack for which the expression takes too long; empty if there is none."""
    compiled = re.compile(expression.pattern, expression.flags)
    for (begin, part, end), method in product(attacks(expression), sorted(expression.methods)):
        for length in LENGTHS:
            text: Any = begin + part * max(length // len(part), length // 4) + end
            if isinstance(expression.pattern, bytes):
                text = text.encode("latin-1", "replace")
            if seconds(compiled, method, text) >= SECONDS_MAX:
                return f"{method} of {begin!r}, then so often {part!r} that it has {len(text)} characters"
    return ""


def test_no_expression_takes_longer_than_in_proportion_to_the_text() -> None:
    found = expressions()
    assert len(found) > 50
    foreign = [one for one in found if one.place.partition(":")[0] not in NOT_FOREIGN]
    assert {f"{one.place} {one.pattern!r}": attack for one in foreign if (attack := slow(one))} == {}


@pytest.mark.parametrize(
    "pattern", [r"\d+(?:, \d+){23,}", r"\s*\[+\s*([\w -]+?)\s*\]+$", r"(\w+)[\w.]*\(\)", r"(a+)+b"]
)
def test_an_expression_that_tries_everything_again_is_found(pattern: str) -> None:
    assert slow(Expression("", pattern, 0, frozenset({"search"})))
