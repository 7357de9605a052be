"""Units of obligations: each suite has some, each with a name of its own."""

from kvproof.models.suites import SUITES, units_of


def test_units_of_a_suite_have_different_names() -> None:
    for suite in SUITES:
        names = [unit.name for unit in units_of(suite)]
        assert len(names) == len(set(names)) > 0
