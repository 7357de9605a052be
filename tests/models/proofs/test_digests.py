"""Digests are equal for formulas of equal structure, and differ for any other."""

import os
import subprocess
import sys

import pytest
import z3

from kvproof.models.proofs.digests import Digests

X, Y, Z = z3.Ints("x y z")
F = z3.Function("f", z3.IntSort(), z3.IntSort())


def digest(*formulas: z3.ExprRef | bool) -> str:
    return Digests().of(list(formulas))


def test_what_means_nothing_does_not_change_a_digest() -> None:
    assert digest(z3.ForAll([X], F(X) > X)) == digest(z3.ForAll([Y], F(Y) > Y))
    assert digest(z3.And(X > 0, Y > 0, Z > 0)) == digest(z3.And(Z > 0, X > 0, Y > 0))
    assert digest(X > 0, Y > 0) == digest(Y > 0, X > 0, X > 0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (X > Y, Y > X),
        (X > Y, X >= Y),
        (X > 0, X > 1),
        (X > Y, X > Z),
        (X - Y > Z, X + Y > Z),
        (F(X) > 0, X > 0),
        (z3.And(X > 0, Y > 0), z3.Or(X > 0, Y > 0)),
        (z3.And(X > 0, Y > 0), z3.And(X > 0, Y > 0, Z > 0)),
        (z3.Implies(X > 0, Y > 0), z3.Implies(Y > 0, X > 0)),
        (z3.ForAll([X], F(X) > 0), z3.Exists([X], F(X) > 0)),
        (z3.ForAll([X, Y], F(X) > F(Y)), z3.ForAll([X, Y], F(Y) > F(X))),
        (z3.ForAll([X], F(X) > 0), z3.ForAll([X, Y], F(Y) > 0)),
        (z3.Bool("x"), X > 0),
        (z3.BoolVal(True), False),
        (True, False),
    ],
)
def test_any_change_of_a_formula_changes_its_digest(one: z3.ExprRef | bool, other: z3.ExprRef | bool) -> None:
    assert digest(one) != digest(other)
    assert Digests().of([one], "word") != digest(one)


def test_a_digest_does_not_depend_on_the_process_or_on_what_was_read_before() -> None:
    text = (
        "import z3; from kvproof.models.proofs.digests import Digests; x, y = z3.Ints('x y'); "
        "print(Digests().of([z3.ForAll([x], z3.Implies(x > y, x * 2 > y))]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", text],
        env=os.environ | {"PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    digests = Digests()
    digests.of([X * 2 > Y, z3.Exists([Z], Z > X)])
    assert done.stdout.strip() == digests.of([z3.ForAll([X], z3.Implies(X > Y, X * 2 > Y))])
