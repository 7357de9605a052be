"""Faults of the machinery: each can be planted, and is noticed; a machinery without a fault is not."""

import ast
from dataclasses import replace

import pytest

from kvproof.models.mutation.machinery import PLANTS, Plant
from kvproof.models.mutation.planting import ROOT, pin_notices, planted, suite_notices

BY_NAME = {one.name: one for one in PLANTS}
TEST_OF_THE_PIN = ("tests/models/test_pin.py",)


def test_each_fault_changes_one_place_of_a_file_that_stays_python() -> None:
    assert len(BY_NAME) == len(PLANTS) > 80
    for one in PLANTS:
        assert ast.parse(one.changed(ROOT))
        assert one.old != one.new, one.name
        assert all((ROOT / test.partition("::")[0]).is_file() for test in one.tests), one.name


def test_a_fault_is_noticed_by_a_test_and_only_where_it_is_planted() -> None:
    fault = BY_NAME["what vanishes is not reported"]
    assert suite_notices(fault, TEST_OF_THE_PIN).startswith(
        "FAILED tests/models/test_pin.py::test_an_obligation_that_van"
    )
    assert fault.old in (ROOT / fault.file).read_text()


def test_a_fault_that_cannot_be_planted_is_an_error() -> None:
    with pytest.raises(LookupError, match="0 times 'no such line'"), planted(replace(PLANTS[0], old="no such line")):
        pass


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_machinery_without_a_fault_is_not_noticed() -> None:
    none = Plant("nothing", "models/kvproof/models/pin.py", "class Pin:\n", "class Pin:\n\n")
    assert suite_notices(none, TEST_OF_THE_PIN) == ""
    assert pin_notices(none) == ""
