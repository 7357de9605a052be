"""The device page and the lines of a terminal: whole, of themselves, and honest about what failed."""

import os
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kvproof.reports.data_plane_result import (
    Bandwidth,
    Comparison,
    DataPlane,
    GeneratedWorkload,
    HostCost,
    InjectedFault,
    MovedCase,
    Speed,
    Spread,
)
from kvproof.reports.device_page import device_page, matrices, size
from kvproof.reports.document import decode, encode
from kvproof.reports.result import Check, Result, Run
from kvproof.reports.terminal import device_lines, plain_text
from kvproof.spec.verdict import Exit, Verdict

FINDING = "after step 2, block 17 of the GPU pool, layer 3, key, slot 5 holds <the key> of block 4"


@pytest.fixture
def result() -> Result:
    """A run in which one case failed, one fault was missed, and one speed is worse."""
    spread = Spread(5.0, 4.0, 6.0)
    plain = Speed("plain copy", "within the GPU pool", "within the GPU pool", 0, 64, 128, spread, Spread(1, 1, 1), 0.0)
    move = Speed("engine", "copy, scattered", "within the GPU pool", 8, 64, 128, spread, Spread(0.4, 0.3, 0.5), 0.02)
    verify = Speed("memcmp", "verify", "within the GPU pool", 0, 64, 64, spread, Spread(0.9, 0.8, 1.0), 0.01)
    cost = HostCost("engine", "copy, scattered", 8, Spread(1.5, 1.0, 2.0))
    plane = DataPlane(
        "cpu",
        cases=[
            MovedCase("engine", "nhd", "int8", "one", "none", "passed", 3, 96, 4096),
            MovedCase("engine", "hnd", "int8", "one", "none", "skipped", text="it needs CUDA"),
            MovedCase(
                "mine:move", "nhd", "int8", "one", "none", "failed", 1, 32, 4096, 0.1, FINDING, [FINDING], {"moved": 8}
            ),
        ],
        num_combinations=1234,
        faults=[InjectedFault("bytes", "a pair is lost", True, "caught"), InjectedFault("race", "no wait", False, "")],
        storms=[GeneratedWorkload("swap", 8, 96, 35, [], {"swapped in": 15})],
        bandwidth=Bandwidth(
            "cpu", "a processor", "nhd", "int8", 64, 30, [plain], [move], [verify], [cost], 0.5, 0.03, ["mine: wrong"]
        ),
        comparisons=[Comparison("engine", "copy, scattered", 0.6, 0.4, -0.33, 0.1, True)],
        baseline="Compared with before.json.",
        notes=["a note"],
    )
    check = Check("data plane/swap-mapping/mine:move", "data plane", "swap-mapping", Verdict.REFUTED, text=FINDING)
    run = Run("0.1", "device", "the data plane of cpu", 7, {"torch": "2.13"}, is_complete=True)
    return Result(run, [check], data_plane=plane)


class Resources(HTMLParser):
    """What a page would fetch, and the tags left open."""

    VOID = ("meta", "br", "link", "img", "input", "hr")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [str(value) for name, value in attrs if name == "src"]
        self.fetched += [
            str(value) for name, value in attrs if name.endswith("href") and not str(value).startswith(("#", "data:"))
        ]
        self.fetched += [tag] if tag == "iframe" else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_one_file_that_fetches_nothing_and_is_the_same_every_time(result: Result) -> None:
    page = device_page(result)
    assert Resources(page).fetched == []
    assert Resources(page).open == []
    assert not re.search(r"url\((?!#)|@import", page)
    assert page == device_page(result)
    assert page.count("<svg") == 3


def test_the_page_shows_what_failed_what_was_missed_and_what_is_slower(result: Result) -> None:
    page = device_page(result)
    assert "the data plane of cpu is refuted: swap-mapping." in page
    assert "holds &lt;the key&gt; of block 4" in page
    assert "Wrong rows: 8 moved." in page
    assert "bytes 1 of 1; race 0 of 1" in page
    assert "MISSED" in page
    assert "-33.0 %" in page
    assert "2.13" in page
    assert "3 cases (1 passed, 1 skipped, 1 failed)" in re.sub(r"\s+", " ", page)


def test_without_matplotlib_the_page_names_it_where_the_plots_would_be(
    result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = device_page(result)
    assert "<svg" not in page
    sentence = "<p>This plot needs matplotlib, which is not installed: pip install &#39;kvproof[device]&#39;</p>"
    assert page.count(sentence) == 3


def test_matplotlib_makes_its_folder_in_the_cache(
    result: Result, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("MPLCONFIGDIR", raising=False)
    device_page(result)
    assert os.environ["MPLCONFIGDIR"] == str(tmp_path / "kvproof" / "matplotlib")


def test_a_cell_of_the_matrix_is_as_bad_as_its_worst_case(result: Result) -> None:
    assert result.data_plane is not None
    result.data_plane.cases.append(MovedCase("mine:move", "nhd", "bfloat16", "one", "own", "passed"))
    engine, mine = matrices(result.data_plane)
    assert (engine.executor, engine.layouts) == ("engine", ["nhd", "hnd"])
    assert [(cell.status, cell.text) for cell in engine.rows[0][1]] == [("passed", "✓ int8"), ("skipped", "– int8")]
    cell, empty = mine.rows[0][1]
    assert (cell.status, cell.text) == ("failed", "✗ int8, ✓ bfloat16 (own stream)")
    assert empty.status == "none"


def test_the_lines_for_a_terminal_say_the_same(result: Result) -> None:
    assert result.data_plane is not None
    lines = [line for line, _ in device_lines(result.data_plane)]
    assert lines[0] == "bytes: 3 cases (1 passed, 1 skipped, 1 failed), 8,192 bytes compared on cpu"
    assert "faults planted into this run, race: 0 of 1 caught" in lines
    assert "  missed: no wait: the harness reported nothing" in lines
    assert "  this process had its core only 50 % of the time: the machine is busy" in lines
    assert any(line.startswith("  engine, copy, scattered: ratio 0.600 before, 0.400 now, -33.0 %") for line in lines)
    assert all(line in plain_text(result, Path()) for line in lines)


def test_a_result_with_a_data_plane_is_read_back_as_it_was_written(result: Result) -> None:
    assert decode(encode(result), Result, "it") == result


def test_worse_than_the_baseline_is_an_exit_code_only_of_a_run_that_is_right(result: Result) -> None:
    assert result.exit_code() is Exit.REFUTED
    result.checks[0].verdict = Verdict.NOT_REFUTED
    assert result.exit_code() is Exit.WORSE_THAN_BASELINE
    assert result.data_plane is not None
    result.data_plane.comparisons[0].is_worse = False
    assert result.exit_code() is Exit.OK


def test_a_result_about_no_bytes_has_no_page() -> None:
    with pytest.raises(ValueError, match="no data plane"):
        device_page(Result(Run("0.1", "verify", "kvproof", 1)))


@pytest.mark.parametrize(
    ("num_bytes", "text"), [(0, "0 bytes"), (1023, "1,023 bytes"), (1536, "1.5 KiB"), (5 * 2**40, "5,120.0 GiB")]
)
def test_sizes_are_written_in_the_largest_unit_that_leaves_a_whole(num_bytes: int, text: str) -> None:
    assert size(num_bytes) == text
