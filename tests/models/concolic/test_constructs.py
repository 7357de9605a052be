"""What Python answers without asking is refused where proved code runs, with file and line; nothing can swallow it."""

import textwrap
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import z3

from kvproof.impl import errors
from kvproof.models.concolic.constructs import watched
from kvproof.models.concolic.exploration import Exploration
from kvproof.models.concolic.frame import Frame
from kvproof.models.concolic.refusal import Opaque
from kvproof.models.concolic.scenario import Outcome, called
from kvproof.models.concolic.symbolic import SymbolicBool, SymbolicInt, truth
from kvproof.models.refinement.unbounded import Cells

X = z3.Int("x")


def function(body: str) -> Callable[..., Any]:
    """A function of proved code with this body, and the parameters x and y."""
    module = ModuleType("kvproof.impl.planted")
    vars(module).update(vars(errors), __name__="kvproof.impl.planted", counts=[0], LIMIT=3)
    lines = textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    exec(compile(f"def planted(x, y=None):\n{lines}\n", "/tmp/kvproof/impl/planted.py", "exec"), vars(module))
    found: Callable[..., Any] = vars(module)["planted"]
    return found


def outcomes(body: str, *arguments: Any) -> list[tuple[Outcome, list[str]]]:
    """The outcome of each path, and what the code contains that a proof cannot follow."""
    planted, found = function(body), list[tuple[Outcome, list[str]]]()

    def run() -> None:
        with watched() as ran:
            outcome = called(lambda: planted(*arguments))
        found.append((outcome, ran.refusals()))

    for _ in Exploration(asks_solver=False).paths(run):
        pass
    return found


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("return x is not y", "`is` compares objects, not numbers"),
        ("return 1 if x is True else 2", "`is` compares objects, not numbers"),
        ("return type(x) is int", "type is used"),
        ("return type(x)", "type is used"),
        ("return hash(x)", "hash is used"),
        ("return id(x)", "id is used"),
        ("return hasattr(x, 'real')", "hasattr is used"),
        ("return getattr(x, 'real', 0)", "getattr is used"),
        ("return str(x)", "str is used"),
        ("return repr(x)", "repr is used"),
        ("return x.__class__", "__class__ is read or written"),
        ("return x.__init__.__self__", "__self__ is read or written"),
        ("match x:\n    case int():\n        return 1", "a pattern asks for a class"),
        ("match x:\n    case [a, b]:\n        return 1", "a pattern asks for a class"),
        ("import operator", "an import, a class or a global variable is changed within the function"),
        ("global LIMIT\nLIMIT = 4", "an import, a class or a global variable is changed within the function"),
        ("class A:\n    pass", "an import, a class or a global variable is changed within the function"),
        ("counts.append(x)", "counts is used"),
        ("DoubleFreeError.seen = x", "DoubleFreeError, a class or function, is changed or has a second name"),
        (
            "kind = DoubleFreeError\nkind.seen = x",
            "DoubleFreeError, a class or function, is changed or has a second name",
        ),
        ("planted.seen = x", "planted, a class or function, is changed or has a second name"),
        ("DoubleFreeError.with_traceback.seen = x", "DoubleFreeError, a class or function, is changed"),
        ("try:\n    x + 1\nexcept Exception:\n    pass", "an error that is not one of the block manager is caught"),
        ("try:\n    x + 1\nexcept TypeError:\n    pass", "an error that is not one of the block manager is caught"),
        ("try:\n    x + 1\nexcept (DoubleFreeError, KeyError):\n    pass", "an error that is not one of the block"),
        ("try:\n    x + 1\nexcept:\n    pass", "every error is caught, or something is done after any"),
        ("try:\n    x + 1\nfinally:\n    return 1", "every error is caught, or something is done after any"),
        ("def inner():\n    nonlocal y\n    y = x\ninner()", "y of the function around it is changed"),
    ],
)
def test_a_construct_that_answers_without_asking_is_refused_with_its_line(body: str, what: str) -> None:
    for outcome, refusals in outcomes(body, SymbolicInt(X)):
        assert any(one.startswith(what) and "(impl/planted.py:" in one for one in refusals), (outcome, refusals)


@pytest.mark.parametrize(
    "body",
    [
        "return 1 if x is None else 2",
        "return 1 if x is not None else 2",
        "return min(x, 3) + len([x, x]) + sum([x])",
        "return isinstance(y, int)",
        "return LIMIT",
        "try:\n    raise DoubleFreeError(x)\nexcept DoubleFreeError:\n    return 1",
        "raise DoubleFreeError(f'block {x}')",
        "return [one for one in (x, y)]",
    ],
)
def test_what_asks_or_does_not_look_is_not_refused(body: str) -> None:
    assert {(outcome.refusal, *refusals) for outcome, refusals in outcomes(body, SymbolicInt(X), 1)} == {("",)}


def test_the_line_is_that_of_the_construct() -> None:
    assert [refusals for _, refusals in outcomes("\n\ny = 1\nreturn x is y", SymbolicInt(X))] == [
        ["`is` compares objects, not numbers (impl/planted.py:3)"]
    ]


@pytest.mark.parametrize(
    ("body", "argument", "what"),
    [
        ("return isinstance(x, int)", SymbolicInt(X), "the class of an unknown value is asked"),
        ("return isinstance(x, list)", Cells(X, lambda place: place), "the class of an unknown value is asked"),
        ("return f'{x}' == '1'", SymbolicInt(X), "an unknown value is printed"),
        ("return '%s' % x == '1'", SymbolicInt(X), "an unknown value is printed"),
        ("return x == [1]", Cells(X, lambda place: place), "a list of any length is compared"),
        ("return x < 2.5", SymbolicInt(X), "an unknown integer meets 2.5"),
        ("return range(9)[x]", SymbolicInt(X), "x is used as a concrete number"),
        ("return 1 if x else 2", Opaque("the salt"), "the salt is used, of which nothing is known"),
        ("return x == 2", Opaque("the salt"), "the salt is used, of which nothing is known"),
        ("x[0] = 1", Opaque("the salt"), "the salt is used, of which nothing is known"),
    ],
)
def test_an_unknown_value_refuses_what_it_cannot_be_asked(body: str, argument: Any, what: str) -> None:
    refusals = [outcome.refusal for outcome, _ in outcomes(body, argument)]
    assert refusals
    assert all(one.startswith(what) and one.endswith("(impl/planted.py:2)") for one in refusals)


@pytest.mark.parametrize(
    "body",
    [
        "try:\n    return range(9)[x]\nexcept BaseException:\n    return 1",
        "try:\n    return range(9)[x]\nfinally:\n    return 1",
    ],
)
def test_a_refusal_counts_even_if_the_code_swallows_it(body: str) -> None:
    for outcome, _ in outcomes(body, SymbolicInt(X)):
        assert outcome.value == 1
        assert outcome.refusal == "x is used as a concrete number (impl/planted.py:3)"


def test_truth_values_and_whole_floats_are_numbers() -> None:
    def answers(body: str, argument: Any) -> set[Any]:
        return {outcome.value for outcome, _ in outcomes(body, argument)}

    one, truth_value = SymbolicInt(X), SymbolicBool(X > 3)
    for other in ("True", "2.0", "(x > 5)"):
        assert answers(f"return 1 if x == {other} else 2", one) == {1, 2}
        assert answers(f"return 1 if x != {other} else 2", one) == {1, 2}
    assert answers("return 1 if x == 2.5 else 2", one) == {2}
    assert answers("return 1 if x == None else 2", one) == {2}
    assert answers("return 1 if x == True else 2", truth_value) == {1, 2}
    assert answers("return 1 if x != (x == 0) else 2", truth_value) == {1, 2}


class Held:
    """An object with a field of each kind."""

    def __init__(self) -> None:
        self.number: Any = SymbolicInt(X)
        self.items = [1, 2]
        self.salt = Opaque("the salt")
        self.cells = Cells(X, lambda place: place)


def change(held: Held, name: str, value: Any) -> list[str]:
    frame = Frame(held, changes=("Held.cells",))
    setattr(held, name, value)
    return [*frame.broken(), *([] if frame.broken() or z3.is_true(z3.simplify(truth(frame.holds()))) else ["open"])]


def test_a_frame_notices_another_object_another_number_and_another_content() -> None:
    held = Held()
    assert change(held, "number", SymbolicInt(X + 0)) == []
    assert change(held, "number", SymbolicInt(X + 1)) == ["open"]
    assert change(held, "items", [1, 2]) == ["Held.items"]
    assert change(held, "salt", Opaque("the salt")) == ["Held.salt"]
    assert change(held, "cells", Cells(X, held.cells.read)) == ["Held.cells"]
    assert change(held, "more", 1) == ["Held.more"]
    frame = Frame(held)
    held.items.append(3)
    assert frame.broken() == ["Held.items"]
    frame = Frame(held)
    del held.items
    assert frame.broken() == ["Held.items"]
