"""Draw the pictures of the documentation: the page of a run, a step of the explorer at each level, history and hosts.

Run it with `make pictures`. It needs Chromium, and the folder into which it writes.
"""

import shutil
import sys
import tempfile
from pathlib import Path
from subprocess import run

from docs.generate.chromium import launch
from docs.generate.example_pages import history_example, hosts_example
from playwright.sync_api import Browser, sync_playwright

from kvproof.check.counterexample.store import draw, make_trace, save_trace
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.pool import PoolConfig
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.subjects.builtin.pool import OwnPool
from kvproof.check.subjects.registry import find

WIDE, NARROW = (1280, 900), (390, 844)
EXAMPLES = {"manager": "forty_lines_broken.py:Adapter", "store": "forty_line_store_broken.py:Store"}
SCHEDULED = [
    ("add", 1, (1,), (0, 0, 0), 3),
    ("add", 2, (2,), (1, 1), 3),
    ("schedule",),
    ("launch", (5, 6)),
    ("complete", (5, 6)),
    ("schedule",),
    ("launch", (7, 8)),
    ("complete", (7, 8)),
    ("schedule",),
]
TAKEN = [("store", 1, (0, 1)), ("take", 2, 2), ("share", 1, 3), ("give", 2), ("reuse", 4, (0,))]


def pages(folder: Path) -> dict[str, Path]:
    """The page of each level: of a failing run, or of a run that is not refuted."""
    found = {}
    shutil.copytree("examples", folder / "examples")
    for level, subject in EXAMPLES.items():
        options = ["--seed", "1", "--effort", "20000", "--stop-at-first", "--out", level]
        command = ["kvproof", "hunt", "--subject", f"examples/{subject}", *options]
        run(command, check=False, capture_output=True, cwd=folder)
        found[level] = folder / level / "index.html"
    scheduled = Counterexample(SchedulerConfig(block_size=2, num_gpu_blocks=6), SCHEDULED, Finding("progress", "none"))
    taken = Counterexample(PoolConfig(num_gpu_blocks=8, caching=True), TAKEN, Finding("refcount-exact", "none"))
    for level, make, example in (("scheduler", find("kvproof-scheduler"), scheduled), ("pool", OwnPool, taken)):
        trace = make_trace(f"kvproof-{level}", example, "walker", 1, make=make)
        found[level] = draw(save_trace(folder, trace), trace, make)
    return found


def picture(browser: Browser, page: str, path: Path, size: tuple[int, int], scheme: str, part: str = "") -> None:
    """Write a picture of a page, or of the part of it that a selector names."""
    width, height = size
    tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    tab.goto(page)
    tab.add_style_tag(content=".bar { position: static !important }")
    tab.wait_for_timeout(200)
    if part:
        tab.locator(part).first.screenshot(path=path)
    else:
        tab.screenshot(path=path)
    tab.close()


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        browser = launch(playwright)
        levels = pages(Path(scratch))
        wholes = {"run": levels["manager"]}
        for name, text in (("history", history_example()), ("hosts", hosts_example())):
            wholes[name] = Path(scratch, f"{name}.html")
            wholes[name].write_text(text, encoding="utf-8")
        shown = [(name, page, "") for name, page in wholes.items()]
        shown += [(name, page, ".explorer") for name, page in levels.items()]
        for name, page, part in shown:
            for scheme in ("light", "dark"):
                for width, size in (("wide", WIDE), ("narrow", NARROW)):
                    picture(browser, page.as_uri(), folder / f"{name}-{scheme}-{width}.png", size, scheme, part)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
