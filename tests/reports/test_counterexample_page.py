"""The page of a counterexample: the finding, the frames as data, nothing that acts. The browser tests look at it."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kvproof.reports.counterexample import FindingView, counterexamples, page_of
from kvproof.reports.counterexample_page import counterexample_page, frames_as_json, frames_beside
from kvproof.reports.frames import Block, Choice, EntryFrame, Lane, Move, PoolFrame, ReplayFrames, StepFrame
from kvproof.reports.result import Result
from kvproof.spec.trace import CodePlace, EarlierChange, EnteredCode

OPEN = StepFrame(
    "open", (), (Block(1, 1, "used"),), (PoolFrame("GPU", 3), PoolFrame("host", 1)), (), (Choice("new", "", True),)
)
ONE = StepFrame(
    "admit(group 1)",
    (Lane("sequence 1", "running", (EntryFrame(2, 1, 0),)),),
    (Block(2, 1, "used"),),
    (PoolFrame("GPU", 2),),
)
TWO = StepFrame(
    "fork(sequence 1, into 2)",
    (
        Lane("sequence 1", "running", (EntryFrame(2, 1, 1), EntryFrame(3, 1, 0))),
        Lane("sequence 2", "running", (EntryFrame(2, 1, 1, observed="block 0"),)),
    ),
    (Block(2, 1, "used"), Block(3, 1, "used", differences=("the subject: refcount 1",), is_named=True)),
    (PoolFrame("GPU", 2, observed=3),),
    (Move("copy", 2, 3),),
)
FILM = ReplayFrames([OPEN, ONE, TWO], "refcount-exact is refuted at step 2: it says <1>", True, "", 3, 1, 4)
ATTACK = "</script><script>alert(1)</script><!-- <script> ]]> <img src=x onerror=alert(2)> \u202e \u2028 \x1b[2J \ud800"
CLOSED_BY_ITSELF = ("meta", "input", "link", "br")


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
def found(refuted: Result, tmp_path: Path) -> FindingView:
    (example,) = counterexamples(refuted, tmp_path)
    return example


def data_of(page: str) -> dict[str, list[dict[str, list[object]]]]:
    """The frames of the first explorer of a page, as the script reads them."""
    element = re.search(r'<script type="application/json" class="frames">(.*?)</script>', page, re.DOTALL)
    assert element is not None
    found: dict[str, list[dict[str, list[object]]]] = json.loads(element[1])
    return found


def test_the_page_has_every_frame_and_of_each_only_the_blocks_that_changed(found: FindingView) -> None:
    opened, one, two = data_of(counterexample_page(found, FILM))["frames"]
    assert opened["choices"] == [["new", "", True]]
    assert opened["blocks"] == [[1, 1, "used", False, 0, 0, [], False]]
    assert one["blocks"] == [[2, 1, "used", False, 0, 0, [], False], [1, 0, "free", False, 0, 0, [], False]]
    assert two["blocks"] == [[3, 1, "used", False, 0, 0, ["the subject: refcount 1"], True]]
    assert two["lanes"][1] == ["sequence 2", "running", [[2, 1, 1, "block 0", False]]]
    assert two["moves"] == [["copy", 2, 3, ""]]
    assert two["pools"] == [["GPU", 2, 3]]


def test_the_page_names_the_method_the_file_the_line_and_both_sides(found: FindingView) -> None:
    assert found.trace is not None
    found.trace.method = CodePlace("Manager.fork", "examples/broken.py", 14)
    found.check.text = "fork(1): refcount of block 0\nexpected: 2   observed: 1"
    found.trace.steps = ["new(1)", "fork(1)    sequence 2: block 0"]
    text = " ".join(re.sub(r"<[^>]*>", "", counterexample_page(found, FILM)).split())
    assert "Manager.fork examples/broken.py, line 14; step 2, fork(1) refcount of block 0 The spec" in text
    assert re.search(r"The specification expects\s*2\s*The subject shows\s*1\s*The rule that is broken", text)


def test_the_page_and_the_text_say_what_the_method_entered_which_lines_are_new_and_that_the_change_came_earlier(
    found: FindingView,
) -> None:
    assert found.trace is not None
    found.trace.method = CodePlace("Manager.fork", "broken.py", 14)
    found.trace.steps, found.trace.earlier = ["new(1)", "fork(1)    sequence 2: block 0"], EarlierChange(1, "grow")
    found.trace.entered = [
        EnteredCode("Pool.take", "pool.py", 3, 9, [4, 5, 6, 8]),
        EnteredCode("Manager.fork", "broken.py", 14, 20),
    ]
    found.trace.base = "HEAD (1234567890)"
    lines = [
        "in step 1, new(1), by grow; it shows in step 2",
        "which entered Pool.take of pool.py:3",
        "lines 4-6, 8 of Pool.take differ from HEAD (1234567890)",
    ]
    assert found.where == ["while calling Manager.fork of broken.py:14", *(f"  {line}" for line in lines)]
    text = " ".join(re.sub(r"<[^>]*>", "", counterexample_page(found, FILM)).split())
    assert all(text.count(line) == 2 for line in lines)  # beside the method, and in the finding as text


def test_the_page_needs_nothing_else(found: FindingView) -> None:
    page = Page(counterexample_page(found, FILM))
    assert not [attributes for _, attributes in page.found if "src" in attributes]
    links = [attributes["href"] or "" for _, attributes in page.found if "href" in attributes]
    assert all(link.startswith(("#", "data:")) for link in links)
    (policy,) = [attributes["content"] for tag, attributes in page.found if "http-equiv" in attributes]
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "script-src 'sha256-" in policy


def test_a_hostile_text_is_no_markup_wherever_it_stands(found: FindingView) -> None:
    found.check.text = ATTACK
    lanes = (Lane(ATTACK, ATTACK, (EntryFrame(1, 1, 1, ATTACK),)),)
    hostile = StepFrame(ATTACK, lanes, (Block(1, 1, "used", differences=(ATTACK,)),), (PoolFrame(ATTACK, 1),))
    plain, attacked = (
        Page(counterexample_page(found, replace(FILM, frames=[OPEN, frame], outcome=text)))
        for frame, text in ((ONE, "fails"), (hostile, ATTACK))
    )
    assert [tag for tag, _ in plain.found] == [tag for tag, _ in attacked.found]
    assert not [name for _, attributes in attacked.found for name in attributes if name.startswith("on")]
    data = frames_as_json(replace(FILM, frames=[hostile]))
    assert not set("<>&\u2028\u202e\x1b") & set(data)
    assert json.loads(data)["frames"][0]["lanes"][0][0].startswith("</script><script>alert(1)")


def test_the_frames_are_read_back_from_the_page_and_from_no_other_file(found: FindingView, tmp_path: Path) -> None:
    trace = tmp_path / "one.json"
    assert frames_beside(trace) is None
    page_of(trace).write_text(counterexample_page(found, FILM), encoding="utf-8")
    assert frames_beside(trace) == frames_as_json(FILM)
    for other in ("no page", '{"frames": 1}', '{"frames": [{"step": 7}]}', "[" * 100_000):
        page_of(trace).write_text(f'<script type="application/json" class="frames">{other}</script>', encoding="utf-8")
        assert frames_beside(trace) is None


def test_what_cannot_be_replayed_is_reported_and_the_steps_are_there(found: FindingView) -> None:
    text = counterexample_page(found, ReplayFrames(problem="the subject refuses <it>"))
    assert "could not be replayed for this page: the subject refuses &lt;it&gt;" in text
    assert "2  fork(&#34;p&#34;, &#34;c&#34;)" in text
    assert 'class="frames">' not in text
    Page(text)


def test_an_excused_finding_does_not_look_like_a_failure(found: FindingView) -> None:
    assert '<h1 class="wrong">' in counterexample_page(found, FILM)
    found.check.excused = "known until 2027-01-31: fixed upstream"
    assert '<h1 class="excused">' in counterexample_page(found, FILM)
