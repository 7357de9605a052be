"""Speeds of data planes over time: a slower move is named with what has changed, and noise is not.

Which measurement is out of line.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kvproof.check.runs.history import record, recorded_runs
from kvproof.reports.document import read
from kvproof.reports.history import histories
from kvproof.reports.history_page import as_data, history_lines, history_page
from kvproof.reports.recorded_run import RecordedRun, RecordedSpeed
from kvproof.reports.result import Result
from kvproof.reports.speed_history import Usual, usual
from kvproof.spec.verdict import Exit

H200 = Path(__file__).parents[2] / "docs" / "gpu" / "h200"
MEASURED = "cuda, NVIDIA H200, two-planes, bfloat16, 524288"


def run(day: int, ratio: float, driver: str = "580", noise: float = 0.01, **fields: object) -> RecordedRun:
    """A complete run of a data plane on the host alpha, in which the engine swaps in at this ratio to a plain copy."""
    given: dict[str, object] = {"host": "alpha", "is_complete": True, "measured": MEASURED} | fields
    speed = RecordedSpeed("engine", "swap in, scattered", ratio, noise, str(given["measured"]))
    return RecordedRun(
        f"{day:010x}", "the data plane of cuda", "device", day, "", None, "", "0.2.0", str(given["host"]),
        {"GPU": "NVIDIA H200", "driver": driver}, f"2026-11-{day:02d}T10:00:00Z", 60.0, 60.0, 0,
        bool(given["is_complete"]), speeds=[speed],
    )  # fmt: skip


USUAL = [run(1, 0.905), run(2, 0.911), run(3, 0.899), run(4, 0.907)]


def slower(*runs: RecordedRun) -> list[str]:
    (subject,) = histories(runs)
    return [speed.sentence for speed in subject.slow]


def test_a_move_that_is_a_fifth_slower_is_named_with_what_has_changed_since_the_run_before() -> None:
    assert slower(*USUAL, run(5, 0.72, driver="585")) == [
        "engine, swap in, scattered, ratio: 0.720: -20.5% against the median 0.906 of 4 earlier runs on alpha; noise "
        "is ±10.0%; since the run before: driver 580 before, 585 now"
    ]
    assert slower(*USUAL, run(5, 0.72))[0].endswith("noise is ±10.0%")


@pytest.mark.parametrize(
    "last",
    [
        run(5, 0.86),  # within a tenth
        run(5, 0.72, noise=0.25),  # the run itself says that it is this noisy
        run(5, 0.72, host="beta"),
        run(5, 0.72, measured="cuda, NVIDIA H200, latent, int8, 9216"),
        run(5, 0.72, measured=""),
        run(5, 0.72, is_complete=False),
    ],
)
def test_noise_and_what_was_measured_otherwise_is_no_regression(last: RecordedRun) -> None:
    assert slower(*USUAL, last) == []


def test_two_earlier_runs_say_nothing_about_what_is_usual() -> None:
    assert slower(*USUAL[:2], run(5, 0.1)) == []


def test_the_table_the_json_and_the_page_show_a_slower_run() -> None:
    subjects = histories([*USUAL, run(5, 0.72)])
    lines = [line for line, _ in history_lines(subjects, last=2)]
    assert lines[2].endswith("–")
    assert lines[3].endswith("–↓")
    assert lines[4].startswith(" slower: run 0000000005: engine, swap in, scattered, ratio: 0.720")
    ((subject,),) = [as_data(subjects, last=2)["subjects"]]
    assert [one["is_slow"] for one in subject["runs"]] == [False, True]
    assert [one["run"] for one in subject["slower"]] == ["0000000005"]
    page = history_page(subjects)
    assert "1 run slower than usual" in page
    assert "engine on alpha: its slowest move, as a ratio to a plain copy; a ring is slower than usual" in page


def test_of_the_runs_on_an_h200_the_one_with_copies_made_twice_is_slower_in_each_move(tmp_path: Path) -> None:
    results = {name: read(H200 / f"regressions-{name}.json", Result) for name in ("baseline", "unchanged", "slower")}
    file, days = tmp_path / "history.db", ["baseline", "unchanged", "baseline", "unchanged", "slower"]
    for day, name in enumerate(days, start=1):
        results[name].run.started = f"2026-11-{day:02d}T10:00:00Z"
        record(file, results[name], Exit.OK)
    (subject,) = histories(recorded_runs(file))
    assert {speed.run.started[:10] for speed in subject.slow} == {"2026-11-05"}
    assert sorted(speed.what.split(":move, ")[1] for speed in subject.slow) == [
        f"{move}, {order}, ratio" for move in ("copy", "swap in", "swap out") for order in ("in a row", "scattered")
    ]


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
