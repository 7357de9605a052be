"""Data planes of several machines side by side."""

import re
from typing import Any

import pytest

from kvproof.reports.data_plane_result import Bandwidth, DataPlane, Speed, Spread
from kvproof.reports.document import DocumentError
from kvproof.reports.hosts import compare_hosts, hosts_page
from kvproof.reports.result import Check, Result, Run
from kvproof.spec.verdict import Exit, Verdict


def of_host(host: str, gb_per_second: float, driver: str = "595.1", **changes: Any) -> tuple[str, Result]:
    """The name of the file and the result of a machine whose engine moves so many GB in a second."""
    spread = Spread(gb_per_second, gb_per_second, gb_per_second)
    plain = Speed("plain copy", "to the GPU", "to the GPU", 0, 64, 128, Spread(50, 50, 50), Spread(1, 1, 1), 0.0)
    move = Speed(
        "engine", "swap in", "to the GPU", 8, 64, 128, spread, Spread(0.5, 0.5, 0.5), changes.get("noise", 0.0)
    )
    name = changes.get("device_name", "H100")
    speeds = Bandwidth("cuda", name, "nhd", "int8", 64, 30, [plain], [move], [], [], 1.0, 0.01)
    facts = {"host": host, "driver": driver, "PCIe link": "generation 5 x16"}
    run = Run("0.2", "device", "the data plane of cuda", 1, facts, "2026-11-22T10:00:00Z", is_complete=True)
    verdict = changes.get("verdict", Verdict.NOT_REFUTED)
    check = Check("data plane/swap-mapping/engine", "data plane", "swap-mapping", verdict, text="a wrong row")
    return f"{host}.json", Result(run, [check], data_plane=DataPlane("cuda", bandwidth=speeds))


def test_the_machine_that_is_slower_than_the_others_is_out_of_line() -> None:
    found = compare_hosts([of_host("a", 40), of_host("b", 40.5), of_host("c", 25, driver="590.2"), of_host("d", 39.8)])
    assert found.exit_code is Exit.WORSE_THAN_BASELINE
    assert found.out_of_line == [
        (
            "c",
            "c is slower: engine, swap in: 25.00 GB/s, -37.3% against the median 39.90 of 4 results; the band is ±3.99",
        )
    ]
    assert "<b>c is out of line.</b>" in hosts_page(found)
    marks = {row.name: [cell.mark for cell in row.cells] for row in (*found.speeds, *found.facts)}
    assert marks["engine, swap in"] == ["", "", "slower", ""]
    assert marks["driver"] == ["", "", "differs", ""]
    assert marks["PCIe link"] == marks["plain copy, to the GPU"] == [""] * 4


def test_two_machines_are_shown_and_not_judged() -> None:
    found = compare_hosts([of_host("a", 40), of_host("b", 4)])
    assert (found.out_of_line, found.exit_code) == ([], Exit.OK)
    assert found.notes[0].startswith("Only 2 results are of this device, layout, element type and block size (a, b)")


def test_machines_with_other_devices_are_not_compared_with_each_other() -> None:
    found = compare_hosts([of_host("a", 40), of_host("b", 40), of_host("c", 4, device_name="L4")])
    assert found.out_of_line == []
    assert [row.name for row in found.speeds] == ["plain copy, to the GPU", "engine, swap in"] * 2


def test_the_band_is_not_narrower_than_the_noise_of_the_speed() -> None:
    assert compare_hosts([of_host("a", 40), of_host("b", 40), of_host("c", 30, noise=0.3)]).out_of_line == []
    assert len(compare_hosts([of_host("a", 40), of_host("b", 40), of_host("c", 30, noise=0.2)]).out_of_line) == 1


def test_a_machine_that_moves_wrong_bytes_is_out_of_line() -> None:
    found = compare_hosts([of_host("a", 40), of_host("b", 40, verdict=Verdict.REFUTED)])
    assert found.exit_code is Exit.REFUTED
    assert found.out_of_line == [("b", "b: the data plane of cuda is refuted: swap-mapping.")]


def test_results_of_one_host_are_named_by_date_and_file() -> None:
    later = of_host("a", 40)
    later[1].run.started = "2026-11-23T10:00:00Z"
    assert compare_hosts([of_host("a", 40), later]).columns == ["a, 2026-11-22 10:00", "a, 2026-11-23 10:00"]
    twice = compare_hosts([("x.json", of_host("a", 40)[1]), ("y.json", of_host("a", 40)[1])])
    assert twice.columns == ["a, 2026-11-22 10:00, x.json", "a, 2026-11-22 10:00, y.json"]


def test_the_page_makes_no_request_and_marks_in_words() -> None:
    page = hosts_page(compare_hosts([of_host("a", 40), of_host("<b>", 40), of_host("c", 25)]))
    assert not re.search(r"<link (?!rel=.icon. href=.data:)|<iframe|src=|url\((?!#)|@import|https?://(?!www.w3)", page)
    assert len(re.findall("<script", page)) == 1
    assert "25.00 (slower)" in page
    assert "&lt;b&gt;" in page


def test_a_result_without_a_data_plane_is_refused() -> None:
    with pytest.raises(DocumentError, match="is no result of a data plane"):
        compare_hosts([("x.json", Result(Run("0.2", "verify", "kvproof", 1)))])
