"""The page of a counterexample: a lane for each sequence, a frame for each step, what differs marked, one file."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kvproof.reports.counterexample import Counterexample, counterexamples
from kvproof.reports.counterexample_page import Cell, counterexample_page, devices, overview
from kvproof.reports.frames import Block, Entry, Frame, Lane, Pool, ReplayFrames
from kvproof.reports.result import Result

OPEN = Frame("open", (), (), (Pool("GPU", 3), Pool("host", 1)))
ONE = Frame(
    "admit(group 1)", (Lane("sequence 1", "running", (Entry(2, 1, 0),)),), (Block(2, 1, "used"),), (Pool("GPU", 2),)
)
TWO = Frame(
    "fork(sequence 1, into 2)",
    (
        Lane("sequence 1", "running", (Entry(2, 1, 1), Entry(3, 1, 0))),
        Lane("sequence 2", "running", (Entry(2, 1, 1, observed="block 0"),)),
    ),
    (Block(2, 2, "used", differences=("the subject: refcount 1",), is_named=True), Block(3, 1, "used")),
    (Pool("GPU", 2, observed=3),),
)
FILM = ReplayFrames([OPEN, ONE, TWO], "refcount-exact is refuted at step 2: it says <1>", True, "", 3, 1, 4)
CLOSED_BY_ITSELF = ("meta", "input")


class Page(HTMLParser):
    """Which elements there are, with their attributes; every one is closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in CLOSED_BY_ITSELF:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def found(refuted: Result, tmp_path: Path) -> Counterexample:
    (example,) = counterexamples(refuted, tmp_path)
    return example


def test_every_sequence_has_a_lane_across_all_steps() -> None:
    assert overview(FILM) == [
        ("sequence 1", [Cell("", False, False), Cell("2", False, True), Cell("2, host 0", False, True)]),
        ("sequence 2", [Cell("", False, False), Cell("", False, False), Cell("2", True, True)]),
    ]


def test_every_frame_shows_every_block_that_a_frame_tells_of() -> None:
    free_gpu, free_host = Block(2), Block(3)
    assert devices(FILM) == [
        ("GPU", [[free_gpu], [ONE.blocks[0]], [TWO.blocks[0]]]),
        ("host", [[free_host], [free_host], [TWO.blocks[1]]]),
    ]


def test_the_page_has_a_frame_for_each_step_and_a_bar_over_all(found: Counterexample) -> None:
    page = Page(counterexample_page(found, FILM))
    frames = [attributes["id"] for tag, attributes in page.found if tag == "section"]
    assert frames == ["frame-0", "frame-1", "frame-2"]
    (bar,) = [attributes for tag, attributes in page.found if attributes.get("id") == "bar"]
    assert (bar["type"], bar["min"], bar["max"], bar["value"]) == ("range", "0", "2", "2")


def test_what_differs_is_marked_and_nothing_else(found: Counterexample) -> None:
    text = counterexample_page(found, FILM)
    frames = text[text.index('<table class="lanes">') : text.rindex("</section>")]
    assert re.findall(r'class="[^"]*\bdiffers\b[^"]*"', frames) == [
        'class="differs"',  # the table of sequence 2 in the overview
        'class="cell differs"',  # its entry
        'class="differs"',  # how many blocks of the GPU can be allocated
        'class="cell used differs named"',  # block 2
    ]
    assert "the subject: block 0" in frames
    assert "2 can be allocated; the subject reports 3" in frames
    assert "the subject: refcount 1" in frames


def test_the_page_needs_nothing_else(found: Counterexample) -> None:
    text = counterexample_page(found, FILM)
    assert not re.search(r"\b(src|href)\s*=|url\(|@import|//", text)


def test_every_element_that_the_script_asks_for_is_there(found: Counterexample) -> None:
    text = counterexample_page(found, FILM)
    asked = set(re.findall(r'getElementById\("(\w+)"\)', text))
    assert asked == {"bar", "where", "back", "on"}
    assert asked <= set(re.findall(r'\bid="([\w-]+)"', text))


def test_a_message_is_no_markup(found: Counterexample) -> None:
    found.check.text = "table <script>alert(1)</script> & 'more'"
    text = counterexample_page(found, FILM)
    assert "table &lt;script&gt;alert(1)&lt;/script&gt; &amp; &#39;more&#39;" in text
    assert text.count("<script>") == 1
    assert "it says &lt;1&gt;" in text


def test_a_finding_about_the_call_itself_is_reported_to_differ_in_no_cell(found: Counterexample) -> None:
    sentence = "No cell differs: the finding is about the call itself."
    assert sentence in counterexample_page(found, replace(FILM, frames=[OPEN, ONE]))
    assert sentence not in counterexample_page(found, FILM)
    assert sentence not in counterexample_page(found, replace(FILM, frames=[OPEN, ONE], is_refuted=False))


def test_what_cannot_be_replayed_is_reported_and_the_steps_are_there(found: Counterexample) -> None:
    text = counterexample_page(found, ReplayFrames(problem="the subject refuses <it>"))
    assert "could not be replayed for this page: the subject refuses &lt;it&gt;" in text
    assert "2  fork(&#34;p&#34;, &#34;c&#34;)" in text
    assert "<section" not in text
    assert "<script>" not in text
    Page(text)


def test_an_excused_finding_does_not_look_like_a_failure(found: Counterexample) -> None:
    assert '<h1 class="excused">' not in counterexample_page(found, FILM)
    found.check.excused = "known until 2027-01-31: fixed upstream"
    assert '<h1 class="excused">' in counterexample_page(found, FILM)


def test_a_window_leaves_an_entry_without_a_block(found: Counterexample) -> None:
    lanes = (Lane("sequence 1", "running", (Entry(None, 0, 0), Entry(1, 4, 2))),)
    text = counterexample_page(found, replace(FILM, frames=[OPEN, Frame("run()", lanes, (Block(1),))]))
    assert '<div class="cell left"><b>·</b><small>left the window</small></div>' in text
    assert overview(replace(FILM, frames=[Frame("run()", lanes)])) == [("sequence 1", [Cell("·, 1", False, False)])]
