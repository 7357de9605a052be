"""Which measurement is out of line."""

from kvproof.reports.usual import Usual, usual


def test_two_measurements_say_nothing_about_what_is_usual() -> None:
    assert usual([1.0, 2.0]) is None


def test_a_measurement_that_is_far_off_hardly_moves_the_median_or_the_band() -> None:
    found = usual([100, 101, 50])
    assert found == Usual(100, 10.0, 3)  # MAD 1, so a tenth of the median is the wider band
    assert (found.is_out(50), found.is_out(101), found.is_out(110)) == (True, False, False)


def test_a_wide_spread_makes_a_wide_band() -> None:
    found = usual([80, 90, 100, 110, 120])
    assert found is not None
    assert abs(found.band - 3 * 1.4826 * 10) < 1e-9
    assert (found.is_below(60), found.is_below(50)) == (False, True)
    assert (found.is_below(200), found.is_out(200)) == (False, True)
