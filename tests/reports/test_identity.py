"""When a known finding covers one that is found."""

from fnmatch import fnmatchcase

import pytest

from kvproof.reports.identity import Identity, operation_named, parts_of, signature_of, what_broke

MECHANISM = "reserve NoRoom: raised in take of pool.py after can_swap_in said OK"


def test_a_signature_is_a_mechanism_and_the_features_of_its_run() -> None:
    signature = signature_of(MECHANISM, {"window", "num_host_blocks"})
    assert signature == f"{MECHANISM} (num_host_blocks, window)"
    assert parts_of(signature) == (MECHANISM, frozenset({"num_host_blocks", "window"}))
    assert parts_of(MECHANISM) == (MECHANISM, frozenset())
    assert (operation_named(signature), what_broke(signature)) == tuple(MECHANISM.split(": "))


@pytest.mark.parametrize(
    ("known", "found", "is_covered"),
    [
        ("fork: a", "fork: a", True),
        ("fork: a", "fork: b", False),
        ("fork: a", "free: a", False),
        ("fork: a", "fork: a (window)", True),  # its run could not be made as short
        ("fork: a (window)", "fork: a", False),  # it shows without the window now
        ("fork: a (window)", "fork: a (lookahead, window)", True),
        ("fork: a (lookahead, window)", "fork: a (window)", False),
    ],
)
def test_a_known_finding_covers_what_breaks_alike_with_all_of_its_features(
    known: str, found: str, is_covered: bool
) -> None:
    assert Identity("frame-kept", found).is_covered_by(Identity("frame-kept", known)) is is_covered
    assert not Identity("frame-kept", found).is_covered_by(Identity("conservation", known))


@pytest.mark.parametrize(
    ("pattern", "is_covered"),
    [
        ("*", True),
        ("reserve NoRoom: *", True),
        ("*(window)", True),
        ("reserve NoRoom: * (window)", True),
        ("reserve NoRoom: * (lookahead)", False),
        ("reserve NoRoom: raised", False),
        ("reserve NoRoom: reserve raised NoRoom", True),  # as an older kvproof said it
        ("reserve *: reserve raised *", True),
    ],
)
def test_a_pattern_is_compared_with_the_mechanism_and_with_the_former_signature(pattern: str, is_covered: bool) -> None:
    found = Identity("frame-kept", f"{MECHANISM} (window)", "reserve NoRoom: reserve raised NoRoom")
    assert found.is_covered_by(Identity("frame-kept", pattern), fnmatchcase) is is_covered


def test_the_former_signature_is_no_part_of_what_makes_two_findings_the_same() -> None:
    assert Identity("frame-kept", "fork: a", "fork: b") == Identity("frame-kept", "fork: a")


def test_two_findings_that_had_one_former_signature_are_two() -> None:
    plain, late = (
        Identity("pin-own", f"report: the count{about}", "report: the count") for about in ("", ", of a store")
    )
    assert not late.is_covered_by(plain)
    assert not plain.is_covered_by(late)
    assert all(one.is_covered_by(Identity("pin-own", "report: the count")) for one in (plain, late))
