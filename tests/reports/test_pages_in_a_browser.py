"""The pages in Chromium: nothing is fetched, nothing fails, the keyboard reaches every step, every text can be read."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs.generate import chromium
from docs.generate.example_pages import device_example, history_example, hosts_example

from kvproof.check.counterexample.store import draw, make_trace, save_trace
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.pool import PoolConfig
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.protocol.store import StoreConfig
from kvproof.check.subjects.registry import find
from kvproof.reports.campaign_page import campaign_page
from kvproof.reports.counterexample import FindingView
from kvproof.reports.counterexample_page import counterexample_page
from kvproof.reports.frames import EntryFrame, Lane, PoolFrame, ReplayFrames, StepFrame
from kvproof.reports.result import Check, Result, Run, WitnessCount
from kvproof.reports.run_page import run_page
from kvproof.spec.text.properties import MEANINGS
from kvproof.spec.trace import Operation
from kvproof.spec.verdict import Exit, Verdict

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium.PROGRAM is None, reason="there is no Chromium on this machine"),
]
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

FORKED: list[Operation] = [
    ("new", 1, (1,), (0, 0, 0)),
    ("admit", 1, 3),
    ("run", 0),
    ("fork", 1, 2),
    ("sample", 1, (0, 1)),
    ("append", 1),
]
SCHEDULED: list[Operation] = [("add", 1, (1,), (0, 0, 0), 2), ("schedule",), ("launch", (5,)), ("complete", (5,))]
TAKEN: list[Operation] = [("take", 1, 2), ("take", 2, 3), ("take", 1, 1)]
STORED: list[Operation] = [("begin_store", 1, 1, (0,)), ("land", 1), ("report", 1)]
KINDS = ["run", "history", "hosts", "device", "campaign"]
CONTROLS = {"button", "link", "slider", "region", "navigation", "image", "textbox"}
ATTACK = "</script><script>document.title = 'owned'</script><!--<img src=x onerror=document.title='owned'>"
# The contrast of every text with the nearest paper behind it; the worst comes back.
CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = colours => {
    canvas.fillStyle = "#fff"; canvas.fillRect(0, 0, 1, 1);
    colours.forEach(colour => { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); });
    return Array.from(canvas.getImageData(0, 0, 1, 1).data).slice(0, 3);
  };
  const light = values => values.map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  let worst = [99, ""];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.getClientRects().length) continue;
    const papers = [];
    for (let one = node; one; one = one.parentElement) papers.unshift(getComputedStyle(one).backgroundColor);
    const paper = rgb(papers), ink = rgb([...papers, getComputedStyle(node).color]);
    const [high, low] = [light(paper), light(ink)].sort((a, b) => b - a), ratio = (high + .05) / (low + .05);
    if (ratio < worst[0]) worst = [ratio, walker.currentNode.data.trim().slice(0, 60) + " in " + node.className];
  }
  return worst;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with playwright.sync_playwright() as driver:
        browser = chromium.launch(driver)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a finding at each level, and hostile texts."""
    folder = tmp_path_factory.mktemp("run")
    checks = []
    for name, config, operations in (
        ("kvproof", Config(block_size=2, num_gpu_blocks=40), FORKED),
        ("kvproof-scheduler", SchedulerConfig(block_size=2, num_gpu_blocks=4), SCHEDULED),
        ("kvproof-pool", PoolConfig(num_gpu_blocks=40), TAKEN),
        ("kvproof-store", StoreConfig(), STORED),
    ):
        found = Counterexample(config, operations, Finding("refcount-exact", f"{name} {ATTACK}"))
        trace = make_trace(name, found, "walker", 1, make=find(name))
        path = save_trace(folder, trace)
        draw(path, trace, find(name))
        text = f"{name}: {ATTACK}\nexpected: 2   observed: {ATTACK}"
        id = f"walker/refcount-exact/{name}"
        checks.append(Check(id, "walker", "refcount-exact", Verdict.REFUTED, 1.0, {"runs": 3}, text, path.name))
    result = Result(Run("0.1", "hunt", ATTACK, 1, {"python": "3"}, is_complete=True), checks, messages=[ATTACK])
    result.witnesses = [WitnessCount("fork", "walker", 0), WitnessCount("append", "walker", 7)]
    page = folder / "index.html"
    page.write_text(run_page(result, folder), encoding="utf-8", errors="backslashreplace")
    return page


@pytest.fixture(scope="module")
def page_files(page_file: Path) -> dict[str, Path]:
    """One page of each kind, beside the page of a run."""
    found = {"run": page_file}
    campaign = campaign_page([], [], [ATTACK], Exit.OK, page_file.parent)
    for name, text in (
        ("history", history_example(ATTACK)),
        ("hosts", hosts_example()),
        ("device", device_example()),
        ("campaign", campaign),
    ):
        found[name] = page_file.with_name(f"{name}.html")
        found[name].write_text(text, encoding="utf-8")
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1920])
def test_the_page_fetches_nothing_fails_nowhere_fits_and_can_be_read(
    browser: object, page_files: dict[str, Path], kind: str, scheme: str, width: int
) -> None:
    page_file = page_files[kind]
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[attr-defined]
    problems, requests = [], []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(page_file.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    if kind == "run":
        for number in (1, 2, 3, 4):
            page.locator(f"#finding-{number}").scroll_into_view_if_needed()
        playwright.expect(page.locator(".explorer[hidden]")).to_have_count(0)
    assert (problems, requests) == ([], [page_file.as_uri()])
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert "owned" not in page.title().replace("document.title = 'owned'", "").replace("document.title='owned'", "")
    ratio, where = page.evaluate(CONTRAST)
    print(f"{scheme}, {width} px: the least contrast is {ratio:.2f}")
    assert ratio >= 4.5, where
    page.close()


@pytest.mark.parametrize(
    ("number", "last", "expected", "choice"),
    [
        (2, "complete", "Tables", "add"),
        (3, "take", "Tables", "take"),
        (4, "report", "Slots of the store", "begin_store"),
    ],
)
def test_the_run_of_a_scheduler_a_pool_and_a_store_is_walked_through(
    browser: object, page_file: Path, number: int, last: str, expected: str, choice: str
) -> None:
    page = browser.new_page()  # type: ignore[attr-defined]
    page.goto(f"{page_file.as_uri()}#finding-{number}-step-1")
    run = page.locator(f"#finding-{number}-run")
    assert run.locator("output").inner_text().startswith("Step 1 of ")
    run.locator("button", has_text="Last").click()
    assert run.locator(".now-text b").inner_text().split()[1].startswith(last)
    assert any(text.startswith(expected) for text in run.locator("h4").all_inner_texts())
    run.locator("summary", has_text="What could be done next").click()
    assert any(text.startswith(choice) for text in run.locator(".choices li").all_inner_texts())
    run.locator("button", has_text="First").click()
    assert run.locator(".choices .next").count() == 1
    page.close()


@pytest.mark.parametrize(
    ("number", "caption", "entry", "pool", "block"),
    [
        (1, "Blocks after each step", "1\n1 of 2 computed", "37 can be allocated", "used, refcount 1"),
        (3, "Blocks after each step", "0", "35 can be allocated", "0\nused, refcount 1\nholder 1"),
        (4, "Slots after each step", "0\n1 of 1 written", "7 free", "0\nevictable, cached\n1 of 1 written\nkey 0"),
    ],
    ids=["manager", "pool", "store"],
)
def test_the_words_of_a_state_are_those_of_its_level(
    browser: object, page_file: Path, number: int, caption: str, entry: str, pool: str, block: str
) -> None:
    page = browser.new_page()  # type: ignore[attr-defined]
    page.goto(f"{page_file.as_uri()}#finding-{number}-step-99")
    run = page.locator(f"#finding-{number}-run")
    assert run.locator("caption").inner_text() == caption
    assert entry in run.locator(".lane .cell").all_inner_texts()
    assert any(text.endswith(pool) for text in run.locator(".pools h4").all_inner_texts())
    assert any(block in text for text in run.locator(".pools .cell").all_inner_texts())
    page.close()


def test_of_a_long_run_the_steps_around_the_chosen_one_are_in_the_table(browser: object, tmp_path: Path) -> None:
    frames = [
        StepFrame("open", pools=(PoolFrame("GPU", 8),)),
        *(
            StepFrame(f"step   {step}", (Lane(f"sequence {step // 30}", "running", (EntryFrame(step % 8, 1, 1),)),))
            for step in range(1, 3_001)
        ),
    ]
    check = Check("walker/refcount-exact", "walker", "refcount-exact", Verdict.REFUTED, text="wrong")
    page_file = tmp_path / "long.html"
    page_file.write_text(counterexample_page(FindingView(check, "kvproof"), ReplayFrames(frames, "", True, "", 8)))
    page = browser.new_page()  # type: ignore[attr-defined]
    page.goto(f"{page_file.as_uri()}#finding-1-step-3000")
    table = page.locator(".lives")
    assert table.locator("caption").inner_text() == "Blocks after each step, 2881 to 3000 of 3000"
    page.locator("button", has_text="First").click()
    assert table.locator("caption").inner_text() == "Blocks after each step, 0 to 119 of 3000"
    page.goto(f"{page_file.as_uri()}#finding-1-step-1500")
    assert table.locator("caption").inner_text() == "Blocks after each step, 1440 to 1559 of 3000"
    assert table.locator("thead .now").inner_text() == "1500"
    assert table.locator("tbody th").all_inner_texts() == [f"sequence {number}" for number in range(48, 52)]
    assert table.locator("td").count() == 4 * 120
    page.close()


def test_every_step_is_reached_by_keyboard_by_link_and_by_play(browser: object, page_file: Path) -> None:
    page = browser.new_page()  # type: ignore[attr-defined]
    page.goto(f"{page_file.as_uri()}#finding-1-step-2")
    run = page.locator("#finding-1-run")
    assert run.locator("output").inner_text() == "Step 2 of 6"
    run.locator("button", has_text="Next").press("Enter")
    assert run.locator(".now-text b").inner_text().split() == ["3", "run()"]
    assert page.url.endswith("#finding-1-step-3")
    page.keyboard.press("ArrowRight")
    assert run.locator(".now-text b").inner_text().startswith("4  fork")
    assert run.locator('[aria-current="step"]').inner_text().split()[0] == "4"
    run.locator("summary", has_text="instead").click()
    assert run.locator(".choices .next").inner_text() == "sample: group 1 (came next)"
    page.keyboard.press("End")
    assert run.locator("output").inner_text() == "Step 6 of 6"
    assert run.locator(".choices li").all_inner_texts()[0].startswith("copy: block ")
    assert run.locator(".pools svg > path").count() == 1
    assert run.locator("button", has_text="blocks that no sequence here holds").count() == 1
    page.keyboard.press("Home")
    assert run.locator("output").inner_text() == "Before step 1"
    run.locator("button", has_text="Play").click()
    playwright.expect(run.locator("output")).to_have_text("Step 2 of 6")
    assert run.locator("button", has_text="Pause").count() == 1
    page.close()


@pytest.mark.parametrize(("kind", "width"), [("history", 700), ("hosts", 360), ("device", 360)])
def test_every_wide_table_is_reached_and_scrolled_by_keyboard(
    browser: object, page_files: dict[str, Path], kind: str, width: int
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800})  # type: ignore[attr-defined]
    page.goto(page_files[kind].as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert page.locator(".scroll").count() > 0
    unreached = page.evaluate("""() => [...document.querySelectorAll("*")]
        .filter(one => one.scrollWidth > one.clientWidth && getComputedStyle(one).overflowX === "auto")
        .filter(one => one.tabIndex !== 0 ||
            !(one.getAttribute("aria-label") || one.getAttribute("aria-labelledby")))
        .map(one => one.outerHTML.slice(0, 80))""")
    assert unreached == []
    boxes, focused = page.locator(".scroll:visible").count(), set()
    for _ in range(60):
        page.keyboard.press("Tab")
        focused.add(
            page.evaluate("""() => [...document.querySelectorAll(".scroll")].indexOf(document.activeElement)""")
        )
    assert focused - {-1} == set(range(boxes))
    page.locator(".scroll").last.focus()
    page.keyboard.press("ArrowRight")
    playwright.expect(page.locator(".scroll").last).not_to_have_js_property("scrollLeft", 0)
    page.close()


@pytest.mark.parametrize("kind", ["run", "history"])
def test_a_table_is_read_row_by_row_in_a_narrow_window(browser: object, page_files: dict[str, Path], kind: str) -> None:
    page = browser.new_page(viewport={"width": 360, "height": 800})  # type: ignore[attr-defined]
    page.goto(page_files[kind].as_uri())
    tables = page.locator("table.stacked:visible")
    assert tables.count() > 0
    for number in range(tables.count()):
        assert tables.nth(number).evaluate("one => one.scrollWidth <= one.parentElement.clientWidth")
    unnamed = "td:not(.whole):not([data-label])"
    assert page.locator(f".stacked {unnamed}").count() == 0
    page.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_screen_reader_hears_landmarks_headings_in_order_and_a_name_for_each_control(
    browser: object, page_files: dict[str, Path], kind: str
) -> None:
    page = browser.new_page()  # type: ignore[attr-defined]
    page.goto(page_files[kind].as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    session = page.context.new_cdp_session(page)
    nodes = [node for node in session.send("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]
    roles = [node.get("role", {}).get("value") for node in nodes]
    assert {"banner", "main", "heading"} <= set(roles)
    levels = page.evaluate("""() => [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")]
        .filter(one => one.getClientRects().length).map(one => Number(one.tagName[1]))""")
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), levels
    unnamed = [
        role
        for node, role in zip(nodes, roles, strict=True)
        if role in CONTROLS and not node.get("name", {}).get("value", "").strip()
    ]
    assert unnamed == []
    page.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_printed_page_has_every_section_open_and_nothing_to_press(
    browser: object, page_files: dict[str, Path], kind: str
) -> None:
    page = browser.new_page(viewport={"width": 700, "height": 900}, color_scheme="dark")  # type: ignore[attr-defined]
    page.goto(page_files[kind].as_uri())
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("details:not([open])").count() == 0
    assert page.locator("button:visible").count() == 0
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    ratio, where = page.evaluate(CONTRAST)
    assert ratio >= 4.5, where
    assert page.locator(".lives:visible").count() == 0  # its cells are pressed
    assert page.pdf().startswith(b"%PDF")
    page.close()


def test_the_switch_turns_the_colours_and_is_kept(browser: object, page_file: Path) -> None:
    page = browser.new_page(color_scheme="light")  # type: ignore[attr-defined]
    page.goto(page_file.as_uri())
    paper = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    page.locator("#theme").press("Enter")
    dark = page.evaluate(paper)
    assert dark != "rgb(255, 255, 255)"
    page.reload()
    assert page.evaluate(paper) == dark
    page.close()


def test_the_name_of_an_invariant_is_above_the_marks_of_its_column(browser: object, tmp_path: Path) -> None:
    checks = [
        Check(f"prover/refcount-exact/specification/{rule}/{what}", "prover", "refcount-exact", Verdict.PROVED, 1.25)
        for rule in ("fork", "admit")
        for what in ("every_holder_is_counted", "pins_are_no_debt")
    ]
    page_file = tmp_path / "index.html"
    page_file.write_text(run_page(Result(Run("0.1", "prove", "", 1, is_complete=True), checks), tmp_path))
    page = browser.new_page()  # type: ignore[attr-defined]
    page.goto(page_file.as_uri())
    page.locator(".proofs").evaluate("box => { box.closest('details').open = true; }")
    names, marks = (
        page.locator(".proofs thead th").all()[1:],
        page.locator(".proofs tbody tr").first.locator("td").all(),
    )
    middle = "node => { const range = document.createRange(); range.selectNodeContents(node); "
    middle += "const box = range.getClientRects()[0]; return (box.left + box.right) / 2; }"
    for name, mark in zip(names, marks, strict=True):
        assert abs(name.evaluate(middle) - mark.evaluate(middle)) < 12  # pixels
    page.close()


def test_the_page_of_a_large_result_opens_within_a_second(browser: object, tmp_path: Path) -> None:
    checks = [
        Check(f"explorer/{name}/world-{world}", "explorer", name, Verdict.EXHAUSTED, 1.0, {"states": world}, "x" * 150)
        for name in MEANINGS
        for world in range(300)
    ]
    result = Result(Run("0.1", "verify", "kvproof", 1, is_complete=True), checks)
    began = time.monotonic()
    page_file = tmp_path / "index.html"
    page_file.write_text(run_page(result, tmp_path), encoding="utf-8")
    rendered = time.monotonic() - began
    page = browser.new_page()  # type: ignore[attr-defined]
    page.goto(page_file.as_uri())
    milliseconds = page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
    print(
        f"{len(checks):,} checks: {page_file.stat().st_size:,} bytes, rendered in {rendered:.2f} s, {milliseconds} ms"
    )
    assert milliseconds < 1000
    page.close()
